"""The protocol's own description, as data."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from scv.wire.identifiers import Id


class GetSchema(TypedDict):
    """Ask for the types this server validates with."""

    format: NotRequired[Literal["jsonschema"]]


class SchemaBlob(TypedDict):
    """Where to read it; `hash` is the handshake's `schemaHash`."""

    blobId: Id
    hash: str
