"""The protocol's own description, as data."""

from typing import Literal, NotRequired, TypedDict

from scv.wire.identifiers import Id


class GetSchema(TypedDict):
    """Ask for the types this server validates with."""

    format: NotRequired[Literal["jsonschema"]]


class SchemaBlob(TypedDict):
    """Where to read it; `hash` is the handshake's `schemaHash`."""

    blobId: Id
    hash: str
