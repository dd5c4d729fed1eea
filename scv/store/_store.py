"""The session store: the core's `Store` port on SQLite and blob files."""

import re
from functools import partial
from types import TracebackType
from typing import Self

from scv.core.ids import now_ms
from scv.core.records import (
    ApprovalRecord,
    Change,
    EventRecord,
    ItemRecord,
    OpRecord,
    SessionLock,
    SessionRecord,
    StoredSession,
    TurnRecord,
)
from scv.errors import NotFound
from scv.store import _blobs, _queries
from scv.store._database import Database, reasons
from scv.store._keeper import Keeper
from scv.store._locks import SessionFileLock
from scv.store._places import make_private_folder
from scv.store._rows import BlobRecord, prepare
from scv.store._writer import Writer
from scv.wire.limits import OP_MEMORY_COUNT, OP_MEMORY_SECONDS

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class SqliteStore:
    """All sessions of one instance, in one folder; several processes may share it.

    `notices` are sentences for a person: what was damaged and where it is kept.
    They appear when the file is opened, or when damage is met.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self._writer = Writer(folder, Keeper(folder, self.notices, _keep_up))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open the database now instead of at the first use.

        Raises:
            StoreError: It cannot be used; names path and remedy.
        """
        await self._writer.read(_nothing)

    async def aclose(self) -> None:
        """Write what is enqueued and close.

        Raises:
            StoreError: Some of it could not be kept.
        """
        await self._writer.close()

    # --- writing ---

    def enqueue(self, changes: tuple[Change, ...]) -> None:
        """Keep these soon, without waiting for the disk."""
        self._writer.enqueue(tuple(map(prepare, changes)))

    async def commit(self, changes: tuple[Change, ...]) -> None:
        """Keep these and all enqueued before them; on disk, synced, on return.

        Cancelling ends the wait, not the write.

        Raises:
            StoreError: None of `changes` is kept.
        """
        await self._writer.commit(tuple(map(prepare, changes)))

    # --- reading ---

    async def load(self, session_id: str) -> StoredSession | None:
        """Read what a new owner of the session needs."""
        return await self._writer.read(partial(_queries.load, session_id=session_id))

    async def session(self, session_id: str) -> SessionRecord | None:
        """Read a session's own row."""
        return await self._writer.read(lambda db: _queries.session(db, session_id))

    async def sessions(
        self,
        *,
        root: str | None = None,
        archived: bool | None = None,
        title_contains: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> list[SessionRecord]:
        """List newest first; `title_contains` does not regard case."""
        return await self._writer.read(
            partial(
                _queries.sessions,
                root=root,
                archived=archived,
                title_contains=title_contains,
                limit=limit,
                before=before,
            )
        )

    async def events(
        self, session_id: str, epoch: str, *, after: int, limit_bytes: int
    ) -> tuple[list[EventRecord], bool]:
        """Read events ending behind `after`, at least one, and whether that is all."""
        return await self._writer.read(
            lambda db: _queries.events(db, session_id, epoch, after, limit_bytes)
        )

    async def events_exceed(
        self, session_id: str, epoch: str, *, after: int, limit_bytes: int
    ) -> bool:
        """Tell whether the events that begin behind `after` are above a size."""
        return await self._writer.read(
            lambda db: _queries.events_exceed(db, session_id, epoch, after, limit_bytes)
        )

    async def last_event(self, session_id: str, epoch: str) -> int:
        """Number of the newest event kept; 0 when there is none."""
        return await self._writer.read(
            lambda db: _queries.last_event(db, session_id, epoch)
        )

    async def items(
        self,
        session_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[list[ItemRecord], str | None, str | None]:
        """Read a page of items, with the ids to pass as `before` and `after` next.

        Raises:
            NotFound: The session has no such item.
        """
        return await self._writer.read(
            lambda db: _queries.items(db, session_id, before, after, limit)
        )

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        """Read one turn."""
        return await self._writer.read(
            lambda db: _queries.turn(db, session_id, turn_id)
        )

    async def newest_turn(self, session_id: str) -> TurnRecord | None:
        """Read the turn that started last."""
        return await self._writer.read(lambda db: _queries.turn(db, session_id, None))

    async def operation(self, client_id: str, op_id: str) -> OpRecord | None:
        """Find the stored result of an operation, at most 24 h old."""
        oldest = now_ms() - OP_MEMORY_SECONDS * 1000
        return await self._writer.read(
            lambda db: _queries.operation(db, client_id, op_id, oldest)
        )

    async def approval(self, approval_id: str) -> ApprovalRecord | None:
        """Read one approval in any state."""
        return await self._writer.read(lambda db: _queries.approval(db, approval_id))

    async def pending_approvals(self) -> list[ApprovalRecord]:
        """List pending approvals of all sessions, oldest first."""
        return await self._writer.read(_queries.pending_approvals)

    async def unfinished_sessions(self) -> list[str]:
        """List sessions with a turn that is not ended, live ones included."""
        return await self._writer.read(_queries.unfinished_sessions)

    # --- blobs ---

    async def put_blob(self, data: bytes, mime_type: str, session_id: str) -> str:
        """Keep bytes, synced to disk on return; the same bytes and type, the same id.

        Raises:
            StoreError: Nothing is kept.
        """
        from anyio import to_thread

        with reasons(f"{self.folder}/blobs"):
            sha256 = await to_thread.run_sync(_blobs.write_file, self.folder, data)
        blob_id = _blobs.blob_id(sha256, mime_type)
        record = BlobRecord(blob_id, session_id, sha256, len(data), mime_type)
        self._writer.enqueue((prepare(record),))
        return blob_id

    async def read_blob(
        self, blob_id: str, *, offset: int, limit: int
    ) -> tuple[bytes, int, str]:
        """Read a slice of a blob: bytes, total size, MIME type.

        Raises:
            NotFound: No such blob.
            StoreError: The disk refuses.
        """
        from anyio import to_thread

        found = await self._writer.read(lambda db: _queries.blob(db, blob_id))
        if found is None:
            raise NotFound(f"no blob {blob_id}")
        with reasons(f"{self.folder}/blobs"):
            data = await to_thread.run_sync(
                _blobs.read_file, self.folder, found.sha256, offset, limit
            )
        return data, found.size, found.mime_type

    # --- ownership ---

    def lock_session(self, session_id: str) -> SessionLock:
        """Take a live session; any death of this process gives it up.

        Raises:
            SessionLocked: A process owns it, this one perhaps.
            NotFound: This is no session's id.
            StoreError: The lock file cannot be made.
        """
        if not _ID.fullmatch(session_id):  # it becomes a file's name
            raise NotFound("no such session")
        folder = f"{self.folder}/locks"
        with reasons(folder):
            make_private_folder(folder)
            return SessionFileLock(folder, session_id)


def open_store(state_dir: str) -> SqliteStore:
    """Make the store of an instance's `state` folder; the first use opens it."""
    return SqliteStore(state_dir)


def _nothing(_: object) -> None:
    """Ask nothing: that the database opens is the answer."""


def _keep_up(database: Database) -> None:
    oldest = now_ms() - OP_MEMORY_SECONDS * 1000
    _queries.forget_operations(database.connection, oldest, OP_MEMORY_COUNT)
