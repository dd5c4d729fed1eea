"""`scv/blob/*`: bulky content in chunks."""

import base64
import binascii
from typing import TYPE_CHECKING

from scv.core.ids import new_id
from scv.core.records import Json
from scv.core.session import MakeOp
from scv.errors import InvalidParams
from scv.wire.errors import refuse
from scv.wire.limits import BLOB_CHUNK_BYTES, BLOB_TOTAL_BYTES

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def put(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Take one chunk; the last one makes the blob."""
    server = connection.server
    await server.live(params["sessionId"])
    try:
        chunk = base64.b64decode(params["data"], validate=True)
    except binascii.Error:
        raise InvalidParams(
            "params.data: not base64",
            data={"code": "params.invalid", "retryable": False, "path": "data"},
        ) from None
    upload_id = params.get("uploadId")
    if upload_id is None:
        upload_id = new_id("u")
        connection.uploads[upload_id] = bytearray()
    upload = connection.uploads.get(upload_id)
    if upload is None:
        raise refuse("object.not_found", "there is no upload of this id here")
    if len(upload) + len(chunk) > BLOB_TOTAL_BYTES:
        del connection.uploads[upload_id]
        raise refuse(
            "limit.message",
            f"a blob holds at most {BLOB_TOTAL_BYTES} bytes",
            maxBytes=BLOB_TOTAL_BYTES,
        )
    upload += chunk
    if not params.get("last", True):
        result: Json = {"uploadId": upload_id}
    else:
        del connection.uploads[upload_id]
        mime_type = params.get("mimeType", "application/octet-stream")
        blob_id = await server.store.put_blob(
            bytes(upload), mime_type, params["sessionId"]
        )
        result = {"blobId": blob_id}
    await server.store.commit((make_op(result),))
    return result


async def read(connection: "Connection", params: Json) -> Json:
    """Answer a slice of at most 1 MiB."""
    store = await connection.server.ready()
    offset = params.get("offset", 0)
    data, total, mime_type = await store.read_blob(
        params["blobId"], offset=offset, limit=params.get("limit", BLOB_CHUNK_BYTES)
    )
    return {
        "data": base64.b64encode(data).decode(),
        "eof": offset + len(data) >= total,
        "totalBytes": total,
        "mimeType": mime_type,
    }
