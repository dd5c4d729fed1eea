"""What is put in order in quiet moments, on the database thread."""

import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from scv.core.ids import now_ms
from scv.store import _blobs, _notes, _queries
from scv.store._database import Database
from scv.store._indexer import INDEX_PREFIX
from scv.wire.limits import OP_MEMORY_COUNT, OP_MEMORY_SECONDS

if TYPE_CHECKING:
    import sqlite3

_KEPT_PAGES = 2048
"""Free pages that stay for the next rows: 8 MiB."""
_PAGES_AT_ONCE = 256
"""Given back in one transaction: 1 MiB, some milliseconds."""
_SWEEP_SECONDS = 24 * 3600
_NAMED_WITHIN_SECONDS = 3600
"""A new index may have no name in the tables yet, but not for so long."""
_SWEPT = "SELECT value FROM meta WHERE key='swept'"


def keep_up(database: Database, is_wanted: Callable[[], bool]) -> bool:
    """Forget old operations, give space back, remove files that nothing names.

    Stops early once the thread `is_wanted` elsewhere; returns whether all is done.
    """
    connection = database.connection
    oldest = now_ms() - OP_MEMORY_SECONDS * 1000
    _queries.forget_operations(connection, oldest, OP_MEMORY_COUNT)
    _give_back(connection)
    swept = connection.execute(_SWEPT).fetchone()
    if swept is None or not 0 <= now_ms() - swept[0] < _SWEEP_SECONDS * 1000:
        with contextlib.suppress(BlockingIOError):  # somebody writes blobs: not now
            return _sweep(database.folder, connection, is_wanted)
    return True


def _give_back(connection: "sqlite3.Connection") -> None:
    """Shrink the file, once much of it is free."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if mode != 2 or free <= 2 * _KEPT_PAGES:
        return
    while free > _KEPT_PAGES:
        count = min(_PAGES_AT_ONCE, free - _KEPT_PAGES)
        # `execute` would stop after one page: the statement has a row for each.
        connection.executescript(f"PRAGMA incremental_vacuum({count})")
        free -= count
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _sweep(
    folder: str, connection: "sqlite3.Connection", is_wanted: Callable[[], bool]
) -> bool:
    """Remove what a crash left: blob files and indexes that nothing names.

    Blobs of no session, such as exports that were fetched, go after a day.
    """
    began = now_ms()
    with _blobs.alone_at_once(folder):
        old = [
            (blob.id,)
            for blob in _queries.blobs(connection, "")
            if _blobs.is_older(folder, blob.sha256, _SWEEP_SECONDS)
        ]
        connection.executemany("DELETE FROM blob WHERE id=? AND session_id=''", old)
    for shelf in _blobs.shelves(folder):
        if is_wanted():
            return False
        with _blobs.alone_at_once(folder):
            files, rest = _blobs.files_on(folder, shelf)
            _blobs.remove_files(folder, _queries.unused_files(connection, files))
            for path in rest:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    used = _notes.index_name(connection)
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.startswith(INDEX_PREFIX) and not name.startswith(str(used)):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_mtime < time.time() - _NAMED_WITHIN_SECONDS:
                    os.unlink(path)
    connection.execute("INSERT OR REPLACE INTO meta VALUES('swept', ?)", (began,))
    return True
