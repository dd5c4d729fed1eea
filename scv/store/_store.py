"""The session store: the core's `Store` port on SQLite and blob files."""

import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from scv.core.history import Entry
from scv.core.ids import now_ms
from scv.core.records import (
    ApprovalRecord,
    AuditRecord,
    Change,
    EventRecord,
    Hit,
    ItemRecord,
    ItemsCut,
    OpRecord,
    QueueRecord,
    SessionLock,
    SessionRecord,
    StoredSession,
    TurnRecord,
)
from scv.errors import NotFound, StoreError
from scv.store import _blobs, _notes, _queries
from scv.store._database import Database, reasons
from scv.store._indexer import Indexer
from scv.store._keeper import Keeper
from scv.store._locks import SessionFileLock
from scv.store._places import make_private_folder
from scv.store._rows import BlobRecord, SessionDeleted, Write, prepare
from scv.store._upkeep import keep_up
from scv.store._writer import Writer
from scv.wire.limits import OP_MEMORY_SECONDS

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SIZED_AT_ONCE = 20
"""Sessions added up before others have a turn."""


class SqliteStore:
    """All sessions of one instance, in one folder; several processes may share it.

    `notices` are sentences for a person: what was damaged and where it is kept.
    They appear when the file is opened, or when damage is met.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self._writer = Writer(folder, Keeper(folder, self.notices, self._keep_up))
        self._indexer = Indexer(folder, self._writer)
        self._titles: dict[str, str] = {}

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
        self._indexer.stop()
        await self._writer.close()

    # --- writing ---

    def enqueue(self, changes: tuple[Change, ...]) -> None:
        """Keep these soon, without waiting for the disk."""
        self._writer.enqueue(self._prepare(changes))

    async def commit(self, changes: tuple[Change, ...]) -> None:
        """Keep these and all enqueued before them; on disk, synced, on return.

        Cancelling ends the wait, not the write.

        Raises:
            StoreError: None of `changes` is kept.
        """
        try:
            await self._writer.commit(self._prepare(changes))
        except StoreError:
            self._titles.clear()  # some were noted in what is not kept
            raise

    def _prepare(self, changes: tuple[Change, ...]) -> tuple[Write, ...]:
        """Fix changes; messages that are complete, and new titles, are noted."""
        writes = list[Write]()
        for change in changes:
            if isinstance(change, ItemsCut):
                writes.append(_notes.note_after(change))
            writes.append(prepare(change))
            if isinstance(change, ItemRecord):
                if _notes.wants_note(change):
                    writes.append(_notes.note(change.session_id, change.id))
            elif isinstance(change, SessionRecord):
                if self._titles.get(change.id) != change.title:
                    self._titles[change.id] = change.title
                    writes.append(_notes.note(change.id, _notes.TITLE))
        return tuple(writes)

    # --- reading ---

    async def load(self, session_id: str) -> StoredSession | None:
        """Read what a new owner of the session needs."""
        return await self._writer.read(partial(_queries.load, session_id=session_id))

    async def queue(self, session_id: str) -> QueueRecord | None:
        """Read what waits in a session."""
        return await self._writer.read(lambda db: _queries.queue(db, session_id))

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

    async def turns(self, session_id: str) -> list[TurnRecord]:
        """Read every turn, oldest first."""
        return await self._writer.read(lambda db: _queries.turns(db, session_id))

    async def history(self, session_id: str) -> list[tuple[str | None, Entry]]:
        """Read the whole history, each entry with its turn's id."""
        return await self._writer.read(lambda db: _queries.history(db, session_id))

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

    async def audit(
        self, *, session_id: str | None = None, limit: int = 200
    ) -> list[AuditRecord]:
        """Read the newest audit rows, newest first; of deleted sessions too."""
        return await self._writer.read(lambda db: _queries.audit(db, session_id, limit))

    async def search(
        self,
        text: str,
        *,
        root: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> list[Hit]:
        """Find messages and titles with every word of `text`, newest first.

        What was written before is found. `before` is a hit's `at`, and its session
        and item with a slash between. Cancelling ends the wait.

        Raises:
            StoreError: The disk refuses, or this Python's SQLite cannot search.
        """
        from anyio import to_thread

        await self.open()
        look = partial(self._indexer.search, root=root, limit=limit, before=before)
        return await to_thread.run_sync(look, text, abandon_on_cancel=True)

    async def sizes(self) -> dict[str, int]:
        """Bytes each session takes, rows and blobs only it uses."""
        found: dict[str, int] = {}
        ids = await self._writer.read(_queries.session_ids)
        for start in range(0, len(ids), _SIZED_AT_ONCE):
            some = ids[start : start + _SIZED_AT_ONCE]
            look = partial(_queries.sizes, first=some[0], last=some[-1])
            sizes = await self._writer.read(look)
            found.update((each, sizes.get(each, 0)) for each in some)
        return found

    # --- deleting ---

    async def delete_session(self, session_id: str, *changes: Change) -> None:
        """Remove a session for good, together with `changes`; on disk on return.

        A crash leaves it whole or gone. Its audit rows stay.

        Raises:
            StoreError: It is all there, and nothing of `changes` is.
        """
        from anyio import to_thread

        blobs = await self._writer.read(lambda db: _queries.blobs(db, session_id))
        await self._writer.commit((SessionDeleted(session_id, self._prepare(changes)),))
        self._titles.pop(session_id, None)
        await to_thread.run_sync(
            self._remove_rest, session_id, [blob.sha256 for blob in blobs]
        )

    def _remove_rest(self, session_id: str, files: list[str]) -> None:
        """Remove what has no rows any more; what this cannot, upkeep will."""
        try:
            if files:
                with _blobs.alone(self.folder):
                    unused = self._writer.ask(
                        lambda db: _queries.unused_files(db, files)
                    )
                    _blobs.remove_files(self.folder, unused)
            self._indexer.forget(session_id)
        except (OSError, StoreError) as error:
            logger.warning("session store: after deleting a session: %s", error)

    # --- blobs ---

    async def put_blob(self, data: bytes, mime_type: str, session_id: str) -> str:
        """Keep bytes, synced to disk on return; the same bytes and type, the same id.

        Raises:
            StoreError: Nothing is kept.
        """
        from anyio import to_thread

        with reasons(f"{self.folder}/blobs"):
            lock = await to_thread.run_sync(_blobs.lock_shared, self.folder)
        try:
            with reasons(f"{self.folder}/blobs"):
                sha256 = await to_thread.run_sync(_blobs.write_file, self.folder, data)
            blob_id = _blobs.blob_id(sha256, mime_type)
            record = BlobRecord(blob_id, session_id, sha256, len(data), mime_type)
            self._writer.enqueue((prepare(record),))
            await self._writer.read(_nothing)  # now everybody sees the row
        finally:
            os.close(lock)
        return blob_id

    async def share_blobs(self, source: str, target: str) -> None:
        """Let a session use every blob that another one uses."""
        found = await self._writer.read(lambda db: _queries.blobs(db, source))
        shared = (replace(blob, session_id=target) for blob in found)
        self._writer.enqueue(tuple(map(prepare, shared)))

    async def blobs(self, session_id: str) -> list[str]:
        """List the ids of the blobs a session uses."""
        found = await self._writer.read(lambda db: _queries.blobs(db, session_id))
        return [blob.id for blob in found]

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

    def _keep_up(self, database: Database, is_wanted: Callable[[], bool]) -> bool:
        """Use a quiet moment of the database thread; returns whether all is done."""
        if _notes.waits(database.connection):
            self._indexer.start()
        return keep_up(database, is_wanted)


def open_store(state_dir: str) -> SqliteStore:
    """Make the store of an instance's `state` folder; the first use opens it."""
    return SqliteStore(state_dir)


def _nothing(_: object) -> None:
    """Ask nothing: that the database opens is the answer."""
