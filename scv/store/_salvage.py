"""Set a damaged database aside and carry over what can be read of it.

Theory of operation. The caller holds the store exclusively and has no
connection. Rows go from the damaged pages into `sessions.db.part`; once that is
complete and synced it is renamed to `sessions.db.salvaged-STAMP`. From here on
`finish` moves the old files to `sessions.db.damaged-STAMP` and the new one into
place; a crash in between is made up for at the next start, so there is never a
moment without either the old file or the whole new one.
"""

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from scv.core.history import NoteEntry
from scv.core.records import HistoryRecord
from scv.store import _pages
from scv.store._places import make_private_file, sync_folder
from scv.store._rows import Row, checksum, prepare
from scv.store._schema import (
    APPROVAL,
    FILE_NAME,
    HISTORY,
    ITEM,
    SALVAGED,
    SESSION,
    TABLES,
    TURN,
    Table,
    lay_out,
    migrate,
)

if TYPE_CHECKING:
    import sqlite3

_GAP = "SCV: a part of this conversation was damaged on disk and is missing here"
_WHEN_NEWER = {
    SESSION: "excluded.updated_at >= updated_at",
    TURN: "excluded.ended >= ended",
    ITEM: "excluded.open <= open",
    APPROVAL: "excluded.state <> 'pending'",
}
"""Of two rows with one key, an older one may stand in a page that was reused."""


def salvage(folder: str) -> str:
    """Replace the damaged database; returns the sentence that tells about it.

    Raises:
        OSError, sqlite3.Error: The old files are as they were.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    count = 1
    while os.path.exists(f"{folder}/{FILE_NAME}.damaged-{stamp}"):
        count += 1
        stamp = f"{stamp.partition('.')[0]}.{count}"
    part = f"{folder}/{FILE_NAME}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    make_private_file(part)
    kept = _fill(part, folder)
    os.rename(part, f"{folder}/{SALVAGED}{stamp}")
    sync_folder(folder)
    finish(folder)
    rows = ", ".join(f"{number} {name}" for name, number in kept.items())
    return (
        f"{folder}/{FILE_NAME} was damaged: what could be read ({rows}) is in use,"
        f" the damaged file is kept as {folder}/{FILE_NAME}.damaged-{stamp}"
    )


def finish(folder: str) -> None:
    """Put a salvaged database in place, if one waits.

    Raises:
        OSError: Some of the steps are left; calling again goes on.
    """
    waiting = [name for name in os.listdir(folder) if name.startswith(SALVAGED)]
    for name in sorted(waiting):
        damaged = f"{folder}/{FILE_NAME}.damaged-{name.removeprefix(SALVAGED)}"
        main = f"{folder}/{FILE_NAME}"
        if not os.path.exists(damaged):
            with contextlib.suppress(FileNotFoundError):
                os.rename(main, damaged)
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{main}-wal", f"{damaged}-wal")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{main}-shm")
        sync_folder(folder)
        os.rename(f"{folder}/{name}", main)
        sync_folder(folder)


def _fill(part: str, folder: str) -> dict[str, int]:
    import sqlite3

    connection = sqlite3.connect(part, isolation_level=None)
    try:
        lay_out(connection)
        migrate(connection)
        connection.execute("BEGIN")
        with contextlib.ExitStack() as files:
            main = _open(f"{folder}/{FILE_NAME}", files)
            log = _open(f"{folder}/{FILE_NAME}-wal", files)
            if main is not None:
                for values in _pages.read_rows(main, log):
                    table = _table_of(values)
                    if table is not None:
                        connection.execute(_keep_newer(table), values)
        _close_gaps(connection)
        connection.execute("COMMIT")
        return {
            table.name: connection.execute(
                f"SELECT count(*) FROM {table.name}"
            ).fetchone()[0]
            for table in (SESSION, TURN, ITEM, HISTORY)
        }
    finally:
        connection.close()


def _open(path: str, files: contextlib.ExitStack) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    files.callback(os.close, fd)
    return fd


def _table_of(values: tuple[Any, ...]) -> Table | None:
    """Name the table a row belongs to; its checksum fits no other."""
    if len(values) < 2 or not isinstance(values[-2], bytes):
        return None
    for table in TABLES:
        if len(table.columns) == len(values):
            if checksum(table, values[:-1]) == values[-1]:
                return table
    return None


def _keep_newer(table: Table) -> str:
    condition = _WHEN_NEWER.get(table)
    return table.upsert if condition is None else f"{table.upsert} WHERE {condition}"


def _close_gaps(connection: "sqlite3.Connection") -> None:
    """Let histories count without a hole; a note stands where entries are missing."""
    rows = connection.execute(
        "SELECT session_id, position FROM history ORDER BY session_id, position"
    ).fetchall()
    expected: dict[str, int] = {}
    broken: set[str] = set()
    for session_id, position in rows:
        if position != expected.get(session_id, 0):
            broken.add(session_id)
        expected[session_id] = position + 1
    for session_id in sorted(broken):
        _renumber(connection, session_id)


def _renumber(connection: "sqlite3.Connection", session_id: str) -> None:
    entries = connection.execute(
        "SELECT position, turn_id, body FROM history WHERE session_id=?"
        " ORDER BY position",
        (session_id,),
    ).fetchall()
    connection.execute("DELETE FROM history WHERE session_id=?", (session_id,))
    written, expected = 0, 0
    for position, turn_id, body in entries:
        if position != expected:
            note = prepare(HistoryRecord(session_id, written, turn_id, NoteEntry(_GAP)))
            assert isinstance(note, Row)
            connection.execute(HISTORY.upsert, note.values)
            written += 1
        values = (session_id, written, turn_id, body)
        connection.execute(HISTORY.upsert, (*values, checksum(HISTORY, values)))
        written, expected = written + 1, position + 1
