"""Field types that every noun shares."""

from typing import Annotated, Literal

from scv.shapes import LARGEST_INTEGER, Bounds

Id = Annotated[str, Bounds(1, 64)]
"""Opaque id, sortable by creation; prefixes: s_ t_ i_ a_ q_ c_ p_ b_."""

OpId = Annotated[str, Bounds(1, 64)]
"""Chosen by the client, new for each mutating call; repeating a call repeats the id."""

Millis = Annotated[int, Bounds(0, LARGEST_INTEGER)]
"""Milliseconds since 1970, UTC."""

Seq = Annotated[int, Bounds(0, LARGEST_INTEGER)]
"""Number of an event in its session's log; the first is 1."""

PageLimit = Annotated[int, Bounds(1, 200)]
"""Most rows of one page."""

Path = Annotated[str, Bounds(1, 4096)]
"""Absolute path on the server's host, or a `file:` URI of one."""

Role = Literal["controller", "observer"]
"""A controller may act; an observer only reads."""
