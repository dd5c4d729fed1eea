"""`scv/blob/*`: bulky content in chunks."""

import base64
from typing import TYPE_CHECKING

from anyio import CancelScope

from scv.core.records import Json
from scv.core.session import MakeOp
from scv.errors import InvalidParams
from scv.wire.limits import BLOB_CHUNK_BYTES

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def put(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Take one chunk; the last one makes the blob."""
    store = connection.server.store
    keeper = ""
    if "sessionId" in params:
        keeper = (await connection.server.live(params["sessionId"])).id
    chunk = _decoded(params["data"])
    uploads = connection.uploads
    is_first = "uploadId" not in params
    upload_id: str = uploads.begin() if is_first else params["uploadId"]
    upload = uploads.find(upload_id)
    result: Json = {"uploadId": upload_id}
    try:
        # a request that is given up while its result is written has had its effect
        async with upload.lock:
            with CancelScope(shield=True):
                uploads.check(upload_id, params["opId"], len(chunk))
                upload.missing = params["opId"]
                if params.get("last", True):
                    data = bytes(upload.data + chunk)
                    mime_type = params.get("mimeType", "application/octet-stream")
                    blob_id = await store.put_blob(data, mime_type, keeper)
                    result = {"blobId": blob_id}
                await store.commit((make_op(result),))
                upload.data += chunk
                upload.missing = None
    except BaseException:
        if is_first:  # nobody knows its id
            uploads.end(upload_id)
        raise
    if "blobId" in result:
        uploads.end(upload_id)
    return result


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # text that is not ASCII has no error of its own
        raise InvalidParams(
            "params.data: not base64",
            data={"code": "params.invalid", "retryable": False, "path": "data"},
        ) from None


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
