"""The database side of the store: transactions, what the disk refused, mending.

Used by one thread only. A commit that was refused is gone; writes that nobody
waits for stay in memory for the next try, and readers see them all the same.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from scv.core.records import EventRecord
from scv.errors import StoreError
from scv.store._database import (
    Database,
    is_damage,
    is_refusal,
    open_database,
    reasons,
)
from scv.store._jobs import Job, Read
from scv.store._rows import SessionDeleted, Statement, Write
from scv.store._schema import FILE_NAME, PAGE_BYTES
from scv.store._transaction import apply, is_delta, roll_back

logger = logging.getLogger(__name__)

_KEPT_BYTES = 8 << 20
"""Events held in memory while the disk refuses; above it deltas are dropped."""
_LOG_BYTES = 4 << 20
"""Log written since the last upkeep that makes the next one due."""
_COMMIT_PAGES = 4
_TOUCH = "INSERT OR REPLACE INTO meta VALUES('synced', ?)"
"""Something to sync, when what a commit shall sync was written before."""


class Keeper:
    """Keeps one folder's database open and writes to it."""

    def __init__(
        self,
        folder: str,
        notices: list[str],
        upkeep: Callable[[Database, Callable[[], bool]], bool],
    ) -> None:
        """`upkeep` runs in quiet moments, and again soon when it was not done."""
        self._folder, self._notices, self._upkeep = folder, notices, upkeep
        self._database: Database | None = None
        self._kept: tuple[Write, ...] = ()
        self._is_full_sync: bool | None = None
        self._is_synced = True
        self._touched = 0
        self._log_bytes = 0
        self._needs_upkeep = True

    @property
    def holds_back(self) -> bool:
        """Whether writes wait for the disk to take them."""
        return bool(self._kept)

    @property
    def wants_rest(self) -> bool:
        """Whether a quiet moment would be of use."""
        return self._needs_upkeep or self._log_bytes > _LOG_BYTES

    # --- writing ---

    def write(self, jobs: list[Job]) -> None:
        """Make all writes in one transaction, synced when somebody waits for one.

        When it is refused, each commit is tried alone: what one of them asks may
        be too much, and the others shall not suffer.
        """
        waiting = [job for job in jobs if job.expects_answer]
        writes = (*self._kept, *(write for job in jobs for write in job.writes))
        error = self._attempt(writes, bool(waiting))
        if error is None:
            self._kept = ()
            for job in waiting:
                job.settle()
        elif len(waiting) <= 1:
            self._refused(jobs, error)
        else:
            part: list[Job] = []
            for job in jobs:
                part.append(job)
                if job.expects_answer:
                    self.write(part)
                    part = []
            if part:
                self.write(part)

    def _attempt(
        self, writes: tuple[Write, ...], is_full: bool
    ) -> BaseException | None:
        """Make one transaction; a damaged file is mended first, once."""
        try:
            self._transact(writes, is_full)
        except Exception as error:
            if not is_damage(error):
                return error
            failure = self._mend()
            if failure is not None:
                return failure
        else:
            return None
        try:
            self._transact(writes, is_full)
        except Exception as error:
            return error
        return None

    def _transact(self, writes: tuple[Write, ...], is_full: bool) -> None:
        connection = self._open().connection
        if not writes and (self._is_synced or not is_full):
            return
        if is_full != self._is_full_sync:
            level = "FULL" if is_full else "NORMAL"
            connection.execute(f"PRAGMA synchronous={level}")
            self._is_full_sync = is_full
        connection.execute("BEGIN IMMEDIATE")
        try:
            size = apply(connection, writes)
            if is_full and not size:
                self._touched += 1
                connection.execute(_TOUCH, (self._touched,))
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        self._is_synced = is_full
        self._log_bytes += size + _COMMIT_PAGES * PAGE_BYTES
        if any(isinstance(write, Statement | SessionDeleted) for write in writes):
            self._needs_upkeep = True

    def _refused(self, jobs: list[Job], error: BaseException) -> None:
        unwaited = [job for job in jobs if not job.expects_answer]
        if is_refusal(error) or isinstance(error, StoreError):
            self._keep(unwaited)
        elif unwaited or self._kept:
            logger.error("session store: dropped writes that cannot be made: %r", error)
            self._kept = ()
        for job in jobs:
            job.settle(error=self._explain(error))

    def _keep(self, jobs: Iterable[Job]) -> None:
        kept = (*self._kept, *(write for job in jobs for write in job.writes))
        size = sum(len(w.data) for w in kept if isinstance(w, EventRecord))
        if size > _KEPT_BYTES:
            kept = tuple(write for write in kept if not is_delta(write))
        self._kept = kept

    # --- reading ---

    def read(self, job: Job) -> None:
        """Answer a query; a damaged file is mended first, once."""
        assert job.read is not None
        try:
            try:
                job.settle(self._query(job.read))
            except Exception as error:
                if not is_damage(error):
                    raise
                failure = self._mend()
                if failure is not None:
                    raise failure from error
                job.settle(self._query(job.read))
        except Exception as error:
            job.settle(error=self._explain(error))

    def _query(self, read: Read) -> Any:
        connection = self._open().connection
        if not self._kept:
            return read(connection)
        try:  # the disk refuses what was queued; readers see it all the same
            connection.execute("BEGIN IMMEDIATE")
            apply(connection, self._kept)
        except Exception:
            roll_back(connection)
            return read(connection)
        try:
            return read(connection)
        finally:
            roll_back(connection)

    # --- mending, upkeep, the end ---

    def _open(self) -> Database:
        if self._database is None:
            self._database = open_database(self._folder, self._notices)
            self._is_full_sync = None
            self._needs_upkeep = True
        return self._database

    def _mend(self) -> BaseException | None:
        database = self._database
        assert database is not None
        self._is_full_sync = None
        try:
            self._notices.append(database.mend())
        except StoreError as error:
            logger.warning("session store: %s", error.message)
            self._forget(database)
            return error
        return None

    def _forget(self, database: Database) -> None:
        self._database = None
        try:
            database.close()
        except Exception:
            logger.exception("session store: closing a damaged database")

    def rest(self, is_wanted: Callable[[], bool]) -> None:
        """Use a quiet moment; stops early once it `is_wanted` elsewhere."""
        database = self._database
        if database is None:
            self._needs_upkeep = False  # until a database is open again
            return
        connection = database.connection
        connection.set_progress_handler(is_wanted, 10_000)
        try:
            if self._log_bytes > _LOG_BYTES:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            is_done = self._upkeep(database, is_wanted)
            if not (database.is_checked or database.check()):
                self._mend()
            self._needs_upkeep, self._log_bytes = not is_done, 0
        except Exception as error:
            if is_damage(error):
                self._mend()
            elif not is_wanted():
                logger.warning("session store: upkeep: %s", self._explain(error))
                self._needs_upkeep, self._log_bytes = False, 0
        finally:
            if self._database is not None:
                self._database.connection.set_progress_handler(None, 0)

    def close(self) -> None:
        """Close the database.

        Raises:
            StoreError: The disk refused something to the end.
        """
        database, self._database = self._database, None
        if database is not None:
            with reasons(database.path):
                database.close()
        if self._kept:
            raise StoreError(
                f"{self._folder}/{FILE_NAME}: the disk refused the last changes"
            )

    def _explain(self, error: BaseException) -> BaseException:
        """Turn what the disk or the database says into ours; a bug stays itself."""
        if not isinstance(error, Exception):
            return error
        try:
            with reasons(f"{self._folder}/{FILE_NAME}"):
                raise error
        except Exception as explained:
            return explained
