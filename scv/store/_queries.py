"""What can be asked of the database; each runs on the database thread."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from scv.core.history import Entry
from scv.core.records import (
    ApprovalRecord,
    AuditRecord,
    EventRecord,
    ItemRecord,
    OpRecord,
    QueueRecord,
    SessionRecord,
    StoredSession,
    TurnRecord,
)
from scv.errors import NotFound
from scv.store import _rows
from scv.store._rows import BlobRecord
from scv.store._schema import (
    APPROVAL,
    AUDIT,
    BLOB,
    EVENT,
    HISTORY,
    ITEM,
    OF_A_SESSION,
    OPERATION,
    QUEUE,
    SESSION,
    TURN,
    Table,
)

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


def _select(table: Table) -> str:
    return f"SELECT {','.join(table.columns)} FROM {table.name} "


_SESSIONS, _TURNS, _ITEMS = _select(SESSION), _select(TURN), _select(ITEM)
_EVENTS, _ENTRIES, _APPROVALS = _select(EVENT), _select(HISTORY), _select(APPROVAL)
_OPERATIONS, _BLOBS = _select(OPERATION), _select(BLOB)
_QUEUES, _AUDITS = _select(QUEUE), _select(AUDIT)
_NEWEST_TURN = "ORDER BY started_at DESC, id DESC LIMIT 1"


def load(db: "sqlite3.Connection", session_id: str) -> StoredSession | None:
    """Read all that a session's new owner needs."""
    key = (session_id,)
    found = db.execute(_SESSIONS + "WHERE id=?", key).fetchone()
    if found is None:
        return None
    turns = db.execute(
        _TURNS + f"WHERE session_id=? AND ended=1 {_NEWEST_TURN}", key
    ).fetchall()
    turns += db.execute(
        _TURNS + "WHERE session_id=? AND ended=0 ORDER BY started_at, id", key
    )
    items = db.execute(_ITEMS + "WHERE session_id=? AND open=1 ORDER BY seq, id", key)
    entries = db.execute(_ENTRIES + "WHERE session_id=? ORDER BY position", key)
    approvals = db.execute(
        _APPROVALS + "WHERE state='pending' AND session_id=? ORDER BY created_at, id",
        key,
    )
    queue = db.execute(_QUEUES + "WHERE session_id=?", key).fetchone()
    return StoredSession(
        _rows.read_session(found),
        tuple(_rows.read_turn(row) for row in turns),
        tuple(_rows.read_item(row) for row in items),
        tuple(_rows.read_entry(row) for row in entries),
        tuple(_rows.read_approval(row) for row in approvals),
        _rows.read_queue(queue) if queue is not None else None,
    )


def session(db: "sqlite3.Connection", session_id: str) -> SessionRecord | None:
    """Read one session."""
    return _one(db, _SESSIONS + "WHERE id=?", (session_id,), _rows.read_session)


def queue(db: "sqlite3.Connection", session_id: str) -> QueueRecord | None:
    """Read a session's waiting prompts."""
    return _one(db, _QUEUES + "WHERE session_id=?", (session_id,), _rows.read_queue)


def sessions(
    db: "sqlite3.Connection",
    *,
    root: str | None,
    archived: bool | None,
    title_contains: str | None,
    limit: int,
    before: tuple[int, str] | None,
) -> list[SessionRecord]:
    """List sessions, newest first; titles are compared without regard to case."""
    conditions: dict[str, tuple[Any, ...]] = {}
    if root is not None:
        conditions["root=?"] = (_rows.root_key(root),)
    if archived is not None:
        conditions["archived=?"] = (int(archived),)
    if before is not None:
        conditions["(updated_at, id)<(?, ?)"] = before
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    values = [value for part in conditions.values() for value in part]
    wanted = (title_contains or "").casefold()
    found: list[SessionRecord] = []
    rows = db.execute(_SESSIONS + where + "ORDER BY updated_at DESC, id DESC", values)
    for row in rows:
        if len(found) >= limit:
            break
        session = _rows.read_session(row)
        if wanted in session.title.casefold():
            found.append(session)
    rows.close()
    return found


def events(
    db: "sqlite3.Connection",
    session_id: str,
    epoch: str,
    after: int,
    limit_bytes: int,
) -> tuple[list[EventRecord], bool]:
    """Read events in order up to a size; the first may begin at or before `after`."""
    key = (session_id, epoch, after)
    found: list[EventRecord] = []
    size = 0
    across = db.execute(
        _EVENTS + "WHERE session_id=? AND epoch=? AND first<=?"
        " ORDER BY first DESC LIMIT 1",
        key,
    ).fetchone()
    if across is not None:
        event = _rows.read_event(across)
        if event.last > after:
            found.append(event)
            size = len(event.data)
    rows = db.execute(
        _EVENTS + "WHERE session_id=? AND epoch=? AND first>? ORDER BY first", key
    )
    try:
        for row in rows:
            event = _rows.read_event(row)
            size += len(event.data)
            if size > limit_bytes and found:
                return found, False
            found.append(event)
    finally:
        rows.close()
    return found, True


def events_exceed(
    db: "sqlite3.Connection",
    session_id: str,
    epoch: str,
    after: int,
    limit_bytes: int,
) -> bool:
    """Add up events until they are above a size, or the log ends."""
    rows = db.execute(
        "SELECT length(body) FROM event WHERE session_id=? AND epoch=? AND first>?"
        " ORDER BY first",
        (session_id, epoch, after),
    )
    size = 0
    for (length,) in rows:
        size += length
        if size > limit_bytes:
            rows.close()
            return True
    return False


def last_event(db: "sqlite3.Connection", session_id: str, epoch: str) -> int:
    """Number of the newest event kept, or 0."""
    found = db.execute(
        "SELECT last FROM event WHERE session_id=? AND epoch=?"
        " ORDER BY first DESC LIMIT 1",
        (session_id, epoch),
    ).fetchone()
    return 0 if found is None else int(found[0])


def items(
    db: "sqlite3.Connection",
    session_id: str,
    before: str | None,
    after: str | None,
    limit: int,
) -> tuple[list[ItemRecord], str | None, str | None]:
    """Read a page of items and the ids that name the pages around it."""
    if after is not None:
        place = _place(db, session_id, after)
        rows = _page(db, session_id, ">", place, "ASC", limit)
    elif before is not None:
        place = _place(db, session_id, before)
        rows = _page(db, session_id, "<", place, "DESC", limit)[::-1]
    else:
        rows = _page(db, session_id, ">", (-1, ""), "DESC", limit)[::-1]
    found = [_rows.read_item(row) for row in rows]
    if not found:
        return [], None, None
    first, last = (found[0].seq, found[0].id), (found[-1].seq, found[-1].id)
    is_more_before = _page(db, session_id, "<", first, "DESC", 1)
    is_more_after = _page(db, session_id, ">", last, "ASC", 1)
    return (
        found,
        found[0].id if is_more_before else None,
        found[-1].id if is_more_after else None,
    )


def _page(
    db: "sqlite3.Connection",
    session_id: str,
    side: str,
    place: tuple[int, str],
    order: str,
    limit: int,
) -> list[tuple[Any, ...]]:
    return db.execute(
        _ITEMS + f"WHERE session_id=? AND (seq, id){side}(?, ?)"
        f" ORDER BY seq {order}, id {order} LIMIT ?",
        (session_id, *place, limit),
    ).fetchall()


def _place(db: "sqlite3.Connection", session_id: str, item_id: str) -> tuple[int, str]:
    found = db.execute(
        "SELECT seq FROM item WHERE session_id=? AND id=?", (session_id, item_id)
    ).fetchone()
    if found is None:
        raise NotFound(f"no item {item_id} in this session")
    return int(found[0]), item_id


def turn(
    db: "sqlite3.Connection", session_id: str, turn_id: str | None
) -> TurnRecord | None:
    """Read one turn; the one that started last when no id is given."""
    if turn_id is None:
        newest = _TURNS + f"WHERE session_id=? {_NEWEST_TURN}"
        return _one(db, newest, (session_id,), _rows.read_turn)
    query = _TURNS + "WHERE session_id=? AND id=?"
    return _one(db, query, (session_id, turn_id), _rows.read_turn)


def turns(db: "sqlite3.Connection", session_id: str) -> list[TurnRecord]:
    """Read all turns, oldest first."""
    query = _TURNS + "WHERE session_id=? ORDER BY started_at, id"
    return [_rows.read_turn(row) for row in db.execute(query, (session_id,))]


def history(
    db: "sqlite3.Connection", session_id: str
) -> list[tuple[str | None, Entry]]:
    """Read the whole history, each entry with its turn's id."""
    rows = db.execute(_ENTRIES + "WHERE session_id=? ORDER BY position", (session_id,))
    return [(row[2], _rows.read_entry(row)) for row in rows]


def audit(
    db: "sqlite3.Connection", session_id: str | None, limit: int
) -> list[AuditRecord]:
    """Read the newest audit rows, newest first."""
    key = () if session_id is None else (_rows.text(session_id),)
    where = "WHERE session_id=? " if key else ""
    query = f"{_AUDITS}{where}ORDER BY at DESC, id DESC LIMIT ?"
    rows = db.execute(query, (*key, limit))
    return [_rows.read_audit(row) for row in rows]


def operation(
    db: "sqlite3.Connection", client_id: str, op_id: str, not_before: int
) -> OpRecord | None:
    """Find an operation's result, unless it is too old."""
    key = (*_rows.op_key(client_id, op_id), not_before)
    query = _OPERATIONS + "WHERE client_id=? AND op_id=? AND at>=?"
    return _one(db, query, key, _rows.read_operation)


def approval(db: "sqlite3.Connection", approval_id: str) -> ApprovalRecord | None:
    """Read one approval."""
    return _one(db, _APPROVALS + "WHERE id=?", (approval_id,), _rows.read_approval)


def pending_approvals(db: "sqlite3.Connection") -> list[ApprovalRecord]:
    """List pending approvals, oldest first."""
    rows = db.execute(_APPROVALS + "WHERE state='pending' ORDER BY created_at, id")
    return [_rows.read_approval(row) for row in rows]


def unfinished_sessions(db: "sqlite3.Connection") -> list[str]:
    """List sessions with a turn that is not ended."""
    rows = db.execute("SELECT DISTINCT session_id FROM turn WHERE ended=0 ORDER BY 1")
    return [row[0] for row in rows]


def blob(db: "sqlite3.Connection", blob_id: str) -> BlobRecord | None:
    """Find a blob, whichever session keeps it."""
    return _one(db, _BLOBS + "WHERE id=? LIMIT 1", (blob_id,), _rows.read_blob)


def blobs(db: "sqlite3.Connection", session_id: str) -> list[BlobRecord]:
    """List a session's blobs."""
    rows = db.execute(_BLOBS + "WHERE session_id=? ORDER BY id", (session_id,))
    return [_rows.read_blob(row) for row in rows]


def unused_files(db: "sqlite3.Connection", files: list[str]) -> list[str]:
    """Choose the blob files, by hash, that no session uses."""
    query = "SELECT 1 FROM blob WHERE sha256=? LIMIT 1"
    return [file for file in files if db.execute(query, (file,)).fetchone() is None]


def session_ids(db: "sqlite3.Connection") -> list[str]:
    """List all sessions, in the order of their ids."""
    return [row[0] for row in db.execute("SELECT id FROM session ORDER BY id")]


def sizes(db: "sqlite3.Connection", first: str, last: str) -> dict[str, int]:
    """Add up the records of sessions from one id to another, and their own blobs."""
    found: dict[str, int] = {}
    range_ = "BETWEEN ? AND ?"
    for query in (
        f"SELECT id, length(body) FROM session WHERE id {range_}",
        *(
            f"SELECT session_id, sum(length(body)) FROM {table.name}"
            f" WHERE session_id {range_} GROUP BY session_id"
            for table in OF_A_SESSION
        ),
        # A file counts once, and only where no other session uses it.
        "SELECT session_id, sum(size) FROM (SELECT DISTINCT session_id, sha256, size"
        f" FROM blob AS own WHERE session_id {range_} AND NOT EXISTS (SELECT 1 FROM"
        " blob WHERE sha256=own.sha256 AND session_id<>own.session_id))"
        " GROUP BY session_id",
    ):
        for session_id, size in db.execute(query, (first, last)):
            found[session_id] = found.get(session_id, 0) + size
    return found


def sessions_at(db: "sqlite3.Connection", root: str) -> set[str]:
    """List the sessions of a workspace."""
    query = "SELECT id FROM session WHERE root=?"
    return {row[0] for row in db.execute(query, (_rows.root_key(root),))}


def exists(db: "sqlite3.Connection", session_id: str, item_id: str) -> bool:
    """Tell whether a session is there, and an item of it; no id means no item."""
    query, values = "SELECT 1 FROM session WHERE id=?", [session_id]
    if item_id:
        query += " AND EXISTS(SELECT 1 FROM item WHERE session_id=? AND id=?)"
        values += [session_id, item_id]
    return db.execute(query, values).fetchone() is not None


def forget_operations(db: "sqlite3.Connection", not_before: int, most: int) -> None:
    """Remove results that are too old, or over the count."""
    db.execute("DELETE FROM operation WHERE at<?", (not_before,))
    db.execute(
        "DELETE FROM operation WHERE at<coalesce((SELECT at FROM operation"
        " ORDER BY at DESC LIMIT 1 OFFSET ?), 0)",
        (most - 1,),
    )


def _one(
    db: "sqlite3.Connection",
    query: str,
    values: tuple[Any, ...],
    read: Callable[[tuple[Any, ...]], T],
) -> T | None:
    found = db.execute(query, values).fetchone()
    return None if found is None else read(found)
