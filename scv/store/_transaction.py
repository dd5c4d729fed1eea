"""What a transaction does to the tables, write after write."""

from typing import TYPE_CHECKING, Any

from scv.core.records import DeltasDone, EventRecord, ItemsCut
from scv.store._notes import NOTE_SESSION
from scv.store._rows import (
    Row,
    SessionDeleted,
    Statement,
    Values,
    Write,
    event_row,
    read_approval,
    read_item,
)
from scv.store._schema import APPROVAL, EVENT, ITEM, OF_A_SESSION

if TYPE_CHECKING:
    import sqlite3

_ROW_BYTES = 200
_DROP_DELTAS = (
    "DELETE FROM event WHERE session_id=?1 AND epoch=?2 AND first>="
    "coalesce((SELECT first FROM event WHERE session_id=?1 AND epoch=?2 AND item_id=?3"
    " AND type='item.started' ORDER BY first DESC LIMIT 1), 0)"
    " AND item_id=?3 AND type='item.delta'"
)
_ITEMS_BEFORE = (
    f"SELECT {','.join(ITEM.columns)} FROM item WHERE session_id=? AND seq<=?"
    " ORDER BY seq DESC, id DESC"
)
_ITEMS_AFTER = f"SELECT {','.join(ITEM.columns)} FROM item WHERE session_id=? AND seq>?"
_APPROVALS = f"SELECT {','.join(APPROVAL.columns)} FROM approval WHERE session_id=?"


def apply(connection: "sqlite3.Connection", writes: "tuple[Write, ...]") -> int:
    """Make writes in order, runs of one statement at a time.

    Deltas of an item that completes in the same batch are never written.
    Returns about how many bytes were written.
    """
    done = {
        (write.session_id, write.epoch, write.item_id)
        for write in writes
        if isinstance(write, DeltasDone)
    }
    size = 0
    sql, run = "", list[Values]()
    for write in writes:
        if isinstance(write, EventRecord):
            key = (write.session_id, write.epoch, write.item_id)
            if done and write.type == "item.delta" and key in done:
                continue
            statement, values = EVENT.upsert, event_row(write)
            size += len(write.data) + _ROW_BYTES
        elif isinstance(write, Row):
            statement, values = write.table.upsert, write.values
            size += len(values[-2]) + _ROW_BYTES
        elif isinstance(write, Statement):
            statement, values = write.sql, write.values
            size += _ROW_BYTES
        elif isinstance(write, DeltasDone):
            statement = _DROP_DELTAS
            values = (write.session_id, write.epoch, write.item_id)
        else:
            _run(connection, sql, run)
            sql, run = "", []
            if isinstance(write, ItemsCut):
                size += _cut_items(connection, write)
            else:
                size += _delete_session(connection, write)
            continue
        if statement is not sql:
            _run(connection, sql, run)
            sql, run = statement, []
        run.append(values)
    _run(connection, sql, run)
    return size


def _run(connection: "sqlite3.Connection", sql: str, run: list[Values]) -> None:
    if run:
        connection.executemany(sql, run)


def _cut_items(connection: "sqlite3.Connection", cut: ItemsCut) -> int:
    """Remove items after a place, their approvals, and turns that began with them.

    A turn's items stand together, so the newest turn that keeps one is the only
    one that may have some on both sides.
    """
    key = (cut.session_id, cut.seq)
    gone = [read_item(row) for row in connection.execute(_ITEMS_AFTER, key)]
    turns = {item.turn_id for item in gone} - {None}
    for row in connection.execute(_ITEMS_BEFORE, key):
        turn_id = read_item(row).turn_id
        if turn_id is not None:
            turns.discard(turn_id)
            break
    items = {item.id for item in gone}
    approvals = [
        (approval.id,)
        for approval in map(
            read_approval, connection.execute(_APPROVALS, (cut.session_id,))
        )
        if approval.item_id in items
    ]
    connection.execute("DELETE FROM item WHERE session_id=? AND seq>?", key)
    connection.executemany(
        "DELETE FROM turn WHERE session_id=? AND id=?",
        [(cut.session_id, turn_id) for turn_id in turns],
    )
    connection.executemany("DELETE FROM approval WHERE id=?", approvals)
    return _ROW_BYTES * (len(gone) + len(turns) + len(approvals))


def _delete_session(connection: "sqlite3.Connection", write: SessionDeleted) -> int:
    key = (write.session_id,)
    if not connection.execute("DELETE FROM session WHERE id=?", key).rowcount:
        return 0
    for table in OF_A_SESSION:
        connection.execute(f"DELETE FROM {table.name} WHERE session_id=?", key)
    connection.execute("DELETE FROM unindexed WHERE session_id=?", key)
    connection.execute(NOTE_SESSION, key)
    connection.execute("DELETE FROM meta WHERE key='swept'")
    return _ROW_BYTES + apply(connection, write.writes)


def roll_back(connection: "sqlite3.Connection") -> None:
    """Undo what is open, if anything is."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def is_delta(write: Any) -> bool:
    """Tell whether a write is a delta, which a client can do without."""
    return isinstance(write, EventRecord) and write.type == "item.delta"
