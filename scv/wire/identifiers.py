"""Field types that every noun shares."""

from typing import Annotated, Literal

from annotated_types import Ge, Le, MaxLen, MinLen

Id = Annotated[str, MinLen(1), MaxLen(64)]
"""Opaque id, sortable by creation; prefixes: s_ t_ i_ a_ q_ c_ p_ b_."""

OpId = Annotated[str, MinLen(1), MaxLen(64)]
"""Chosen by the client, new for each mutating call; repeating a call repeats the id."""

Millis = Annotated[int, Ge(0)]
"""Milliseconds since 1970, UTC."""

Seq = Annotated[int, Ge(0)]
"""Number of an event in its session's log; the first is 1."""

PageLimit = Annotated[int, Ge(1), Le(200)]
"""Most rows of one page."""

Path = Annotated[str, MinLen(1), MaxLen(4096)]
"""Absolute path on the server's host, or a `file:` URI of one."""

Role = Literal["controller", "observer"]
"""A controller may act; an observer only reads."""
