"""`scv/schema/get`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.wire.schema_hash import SCHEMA_HASH

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def get(connection: "Connection", params: Json) -> Json:
    """Put the protocol's JSON Schema into a blob and name it."""
    from importlib import resources  # it brings archives and temporary files along

    store = await connection.server.ready()
    text = resources.files("scv.wire").joinpath("schema.json").read_bytes()
    blob_id = await store.put_blob(text, "application/schema+json", "")
    return {"blobId": blob_id, "hash": SCHEMA_HASH}
