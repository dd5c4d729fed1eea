"""Records to rows and back: JSON bodies, each row under a checksum."""

import json
import zlib
from typing import Any

from scv.core.history import (
    Entry,
    decode_entry,
    encode_entry,
)
from scv.core.ids import new_id
from scv.core.records import (
    ApprovalRecord,
    AuditRecord,
    DeltasDone,
    EventRecord,
    EventReplaced,
    HistoryCut,
    HistoryRecord,
    ItemRecord,
    ItemsCut,
    OpRecord,
    QueueRecord,
    SessionRecord,
    TurnRecord,
)
from scv.store._schema import (
    APPROVAL,
    AUDIT,
    BLOB,
    EVENT,
    HISTORY,
    ITEM,
    OPERATION,
    QUEUE,
    SESSION,
    TURN,
    Table,
)
from scv.values import frozen

OPEN_STATUSES = frozenset({"pending", "in_progress", "waiting_approval"})
"""Statuses of an item that will still change."""

_CUT_HISTORY = "DELETE FROM history WHERE session_id=? AND position>=?"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_DROP_EVENT = "DELETE FROM event WHERE session_id=? AND epoch=? AND first=?"
Values = tuple[Any, ...]


@frozen
class Row:
    """A row to write; its values do not change when the record's parts do."""

    table: Table
    values: Values


@frozen
class BlobRecord:
    """A session's use of a blob file."""

    id: str
    session_id: str
    sha256: str
    size: int
    mime_type: str


@frozen
class Statement:
    """A statement to run as it is; its values may be stored."""

    sql: str
    values: Values


@frozen
class SessionDeleted:
    """A session goes; `writes` are made if it was there."""

    session_id: str
    writes: "tuple[Write, ...]"


Write = Row | EventRecord | DeltasDone | Statement | ItemsCut | SessionDeleted


class DamagedRow(Exception):
    """A row is not what was written."""


# --- writing ---


def prepare(
    change: SessionRecord
    | TurnRecord
    | ItemRecord
    | EventRecord
    | DeltasDone
    | EventReplaced
    | HistoryRecord
    | ApprovalRecord
    | OpRecord
    | QueueRecord
    | HistoryCut
    | ItemsCut
    | AuditRecord
    | BlobRecord,
) -> Write:
    """Fix a change's present content; events are fixed already and stay as they are.

    Raises:
        TypeError: A body holds something that is not JSON.
    """
    match change:
        case EventReplaced():
            key = (change.session_id, change.epoch, change.number)
            return Statement(_DROP_EVENT, key)
        case EventRecord() | DeltasDone() | ItemsCut():
            return change
        case SessionRecord():
            keys: Values = (change.id, change.updated_at, _bytes(change.root))
            return _row(SESSION, (*keys, int(change.archived)), _fields(change))
        case TurnRecord():
            ended = int(change.state == "ended")
            keys = (change.session_id, change.id, change.started_at)
            return _row(TURN, (*keys, ended), _fields(change))
        case ItemRecord():
            is_open = int(change.body.get("status") in OPEN_STATUSES)
            keys = (change.session_id, change.seq, change.id)
            return _row(ITEM, (*keys, is_open), _fields(change))
        case HistoryRecord():
            keys = (change.session_id, change.position, change.turn_id)
            return _row(HISTORY, keys, encode_entry(change.entry))
        case ApprovalRecord():
            keys = (change.id, change.session_id, change.created_at)
            return _row(APPROVAL, (*keys, change.state), _fields(change))
        case OpRecord():
            found_by = (text(change.client_id), text(change.op_id), change.at)
            return _row(OPERATION, found_by, _fields(change))
        case QueueRecord():
            return _row(QUEUE, (change.session_id,), _fields(change))
        case AuditRecord():
            session_id = None if change.session_id is None else text(change.session_id)
            keys = (change.at, new_id("l"), session_id)
            return _row(AUDIT, keys, _fields(change))
        case HistoryCut():
            return Statement(_CUT_HISTORY, (change.session_id, change.position))
        case BlobRecord():
            blob = (change.id, change.session_id, change.sha256, change.size)
            return _row(BLOB, blob, {"mime_type": change.mime_type})


def event_row(event: EventRecord) -> Values:
    """Lay an event out as a row of its table."""
    values = (
        event.session_id,
        event.epoch,
        event.first,
        event.last,
        event.type,
        event.item_id,
        event.data,
    )
    return (*values, checksum(EVENT, values))


def checksum(table: Table, values: Values) -> int:
    """CRC-32 over a row: its table, all values before the body, the body."""
    head = f"{table.name}\x1f{values[:-1]!r}".encode()
    return zlib.crc32(values[-1], zlib.crc32(head))


def op_key(client_id: str, op_id: str) -> tuple[str, str]:
    """Spell an operation's key as it is stored."""
    return text(client_id), text(op_id)


def root_key(root: str) -> bytes:
    """Spell a session's root as it is stored: paths need not be valid text."""
    return _bytes(root)


def _row(table: Table, found_by: Values, body: dict[str, Any]) -> Row:
    values = (*found_by, _bytes(_encode(body)))
    return Row(table, (*values, checksum(table, values)))


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def text(value: str) -> str:
    """Spell a text as it is stored to be found by."""
    if value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


# --- reading ---


def read_body(table: Table, values: Values) -> Any:
    """Check a whole row and decode its body.

    Raises:
        DamagedRow: The checksum says that something changed.
    """
    if checksum(table, values[:-1]) != values[-1]:
        raise DamagedRow(table.name)
    return json.loads(values[-2].decode("utf-8", "surrogatepass"))


def read_session(values: Values) -> SessionRecord:
    """Decode a row of `session`."""
    body = read_body(SESSION, values)
    body["folders"] = tuple(body["folders"])
    return SessionRecord(**body)


def read_turn(values: Values) -> TurnRecord:
    """Decode a row of `turn`."""
    return TurnRecord(**read_body(TURN, values))


def read_item(values: Values) -> ItemRecord:
    """Decode a row of `item`."""
    return ItemRecord(**read_body(ITEM, values))


def read_approval(values: Values) -> ApprovalRecord:
    """Decode a row of `approval`."""
    return ApprovalRecord(**read_body(APPROVAL, values))


def read_operation(values: Values) -> OpRecord:
    """Decode a row of `operation`."""
    return OpRecord(**read_body(OPERATION, values))


def read_queue(values: Values) -> QueueRecord:
    """Decode a row of `queue`."""
    body = read_body(QUEUE, values)
    body["entries"] = tuple(body["entries"])
    return QueueRecord(**body)


def read_audit(values: Values) -> AuditRecord:
    """Decode a row of `audit`."""
    return AuditRecord(**read_body(AUDIT, values))


def read_blob(values: Values) -> BlobRecord:
    """Decode a row of `blob`."""
    blob_id, session_id, sha256, size, *_ = values
    mime_type = read_body(BLOB, values)["mime_type"]
    return BlobRecord(blob_id, session_id, sha256, size, mime_type)


def read_event(values: Values) -> EventRecord:
    """Check a row of `event` and take it as it is."""
    if checksum(EVENT, values[:-1]) != values[-1]:
        raise DamagedRow(EVENT.name)
    return EventRecord(*values[:-1])


def read_entry(values: Values) -> Entry:
    """Decode a row of `history`."""
    return decode_entry(read_body(HISTORY, values))
