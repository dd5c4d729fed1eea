"""Blobs on their way in: what one connection has sent of them so far."""

from dataclasses import dataclass, field

from anyio import Lock

from scv.core.ids import new_id
from scv.wire.errors import refuse
from scv.wire.limits import BLOB_TOTAL_BYTES, UPLOADS


@dataclass(slots=True)
class Upload:
    """One blob's chunks; `lock` keeps them in the order in which they came.

    `missing` is the operation id of a chunk that could not be kept: nothing may
    take its place but itself.
    """

    data: bytearray = field(default_factory=bytearray)
    lock: Lock = field(default_factory=Lock)
    missing: str | None = None


class Uploads:
    """The unfinished uploads of one connection, in memory and within bounds."""

    def __init__(self) -> None:
        self._open: dict[str, Upload] = {}

    def begin(self) -> str:
        """Start an upload; returns its id.

        Raises:
            RequestRefused: 4262.
        """
        if len(self._open) >= UPLOADS:
            raise refuse(
                "limit.count",
                f"a connection has at most {UPLOADS} unfinished uploads",
                limit="uploads",
            )
        upload_id = new_id("u")
        self._open[upload_id] = Upload()
        return upload_id

    def find(self, upload_id: str) -> Upload:
        """Return an unfinished upload.

        Raises:
            RequestRefused: 4202.
        """
        upload = self._open.get(upload_id)
        if upload is None:
            raise refuse("object.not_found", "there is no upload of this id here")
        return upload

    def check(self, upload_id: str, op_id: str, more_bytes: int) -> None:
        """Refuse a chunk that has no place; one that is too much ends its upload.

        Raises:
            RequestRefused: 4202 it is over, 4290 it would leave a gap, 4261.
        """
        if self.find(upload_id).missing not in (None, op_id):
            raise refuse(
                "store.failed", "an earlier chunk was not kept; repeat that one first"
            )
        held = sum(len(upload.data) for upload in self._open.values())
        if held + more_bytes > BLOB_TOTAL_BYTES:
            self.end(upload_id)
            raise refuse(
                "limit.message",
                "a blob, and all unfinished uploads of a connection together, hold at"
                f" most {BLOB_TOTAL_BYTES} bytes",
                maxBytes=BLOB_TOTAL_BYTES,
            )

    def end(self, upload_id: str) -> None:
        """Forget an upload."""
        self._open.pop(upload_id, None)
