"""Blobs: bulky content beside the event stream."""

from typing import Annotated, NotRequired

from annotated_types import Ge, Le, MaxLen
from typing_extensions import TypedDict

from scv.wire.identifiers import Id, OpId


class PutBlob(TypedDict):
    """Store bytes: chunks of at most 1 MiB, the last one with `last`."""

    opId: OpId
    sessionId: Id
    data: Annotated[str, MaxLen(1_400_000)]
    """Base64 of the chunk."""
    mimeType: NotRequired[Annotated[str, MaxLen(128)]]
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
    offset: NotRequired[Annotated[int, Ge(0)]]
    limit: NotRequired[Annotated[int, Ge(1), Le(1_048_576)]]


class BlobSlice(TypedDict):
    """Base64 of the slice."""

    data: str
    eof: bool
    totalBytes: int
    mimeType: str
