"""Blobs: bulky content beside the event stream."""

from typing import Annotated, NotRequired, TypedDict

from scv.shapes import LARGEST_INTEGER, Bounds
from scv.wire.identifiers import Id, OpId


class PutBlob(TypedDict):
    """Store bytes: chunks of at most 1 MiB, the last one with `last`."""

    opId: OpId
    sessionId: NotRequired[Id]
    """The session that keeps it; absent for what `scv/session/import` reads."""
    data: Annotated[str, Bounds(0, 1_400_000)]
    """Base64 of the chunk."""
    mimeType: NotRequired[Annotated[str, Bounds(0, 128)]]
    uploadId: NotRequired[Id]
    """Continues an upload; absent for its first chunk."""
    last: NotRequired[bool]
    """True when absent."""


class BlobStored(TypedDict):
    """`blobId` after the last chunk, else `uploadId` for the next."""

    blobId: NotRequired[Id]
    uploadId: NotRequired[Id]


class ReadBlob(TypedDict):
    """Read a slice of at most 1 MiB."""

    blobId: Id
    offset: NotRequired[Annotated[int, Bounds(0, LARGEST_INTEGER)]]
    limit: NotRequired[Annotated[int, Bounds(1, 1_048_576)]]


class BlobSlice(TypedDict):
    """Base64 of the slice."""

    data: str
    eof: bool
    totalBytes: int
    mimeType: str
