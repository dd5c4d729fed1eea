"""Records to store: one of everything, and a conversation of any length."""

from collections.abc import Iterator

from scv.core.history import (
    AssistantEntry,
    Call,
    NoteEntry,
    OutputEntry,
    UserEntry,
)
from scv.core.records import (
    ApprovalRecord,
    AuditRecord,
    Change,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    OpRecord,
    QueueRecord,
    SessionRecord,
    TurnRecord,
)

NOW = 1_800_000_000_000
ODD = 'é 漢字 \U0001f600 \x00 \u202e "quoted" \\ \ud800'
"""Text with all that encodings trip over, a lone surrogate too."""

ENTRIES = (
    UserEntry("fix it " + ODD),
    AssistantEntry(
        "I read the file",
        (Call("call_1", "read", '{"path": "a.py"}'), Call("call_2", "bash", "{")),
        ({"type": "reasoning", "encrypted": "x==", "n": 1.5}, {"b": None, "a": []}),
        "responses",
        "model-1",
    ),
    OutputEntry("call_1", "read", "text " + ODD, is_error=True),
    OutputEntry("call_2", "bash", ""),
    NoteEntry("something was left out"),
    AssistantEntry("done"),
)


def session(name: str, **fields: object) -> SessionRecord:
    """Make a session's record."""
    values: dict[str, object] = {
        "id": name,
        "title": f"about {name}",
        "root": "/srv/app",
        "folders": ("/srv/app", "/srv/lib"),
        "config": {"provider": "practice", "limits": {"steps": 3}},
        "created_at": NOW,
        "updated_at": NOW,
        "rev": 1,
        "epoch": "e_1",
        "last_seq": 0,
        "ceiling": 10_000,
    }
    return SessionRecord(**{**values, **fields})  # type: ignore[arg-type]


def turn(name: str, session_id: str, **fields: object) -> TurnRecord:
    """Make a running turn's record."""
    values: dict[str, object] = {"state": "model", "started_at": NOW, "owner": "c_1"}
    return TurnRecord(name, session_id, **{**values, **fields})  # type: ignore[arg-type]


def item(name: str, session_id: str, seq: int, status: str = "completed") -> ItemRecord:
    """Make an assistant message."""
    body = {"id": name, "kind": "assistant_message", "status": status, "text": ODD}
    return ItemRecord(name, session_id, "t_1", seq, "assistant_message", body)


def prompt(
    name: str, session_id: str, seq: int, text: str, at: int = NOW
) -> ItemRecord:
    """Make a prompt of one text and a file's name."""
    parts = [{"type": "text", "text": text}, {"type": "file", "uri": "file:///a.py"}]
    body = {"id": name, "kind": "user_message", "status": "completed", "parts": parts}
    body["createdAt"] = at
    return ItemRecord(name, session_id, "t_1", seq, "user_message", body)


def answer(
    name: str, session_id: str, seq: int, text: str, at: int = NOW
) -> ItemRecord:
    """Make a complete answer."""
    record = item(name, session_id, seq)
    record.body.update(text=text, createdAt=at)
    return record


def event(session_id: str, first: int, **fields: object) -> EventRecord:
    """Make one event."""
    values: dict[str, object] = {
        "epoch": "e_1",
        "first": first,
        "last": first,
        "type": "turn.state",
        "item_id": None,
        "data": b'{"type":"turn.state","at":%d}' % first,
    }
    return EventRecord(session_id, **{**values, **fields})  # type: ignore[arg-type]


def delta(session_id: str, first: int, item_id: str) -> EventRecord:
    """Make one delta of an item."""
    data = b'{"type":"item.delta","data":{"field":"text","append":"word "}}'
    return event(session_id, first, type="item.delta", item_id=item_id, data=data)


def approval(name: str, session_id: str, **fields: object) -> ApprovalRecord:
    """Make a pending question."""
    values: dict[str, object] = {
        "turn_id": "t_1",
        "item_id": "i_1",
        "state": "pending",
        "created_at": NOW,
        "body": {"approvalId": name, "title": ODD},
    }
    return ApprovalRecord(name, session_id, **{**values, **fields})  # type: ignore[arg-type]


def queue(session_id: str) -> QueueRecord:
    """Make a queue of two waiting prompts."""
    entries = ({"id": "q_1", "text": ODD}, {"id": "q_2", "text": "later"})
    return QueueRecord(session_id, 3, True, entries)


def audit(
    at: int, session_id: str | None, action: str = "approval.allowed"
) -> AuditRecord:
    """Make a row of the audit."""
    return AuditRecord(at, action, session_id, "c_1", f"editor {ODD}", 4711, {"n": 1})


def operation(client_id: str, op_id: str, at: int) -> OpRecord:
    """Make an operation's stored result."""
    return OpRecord(client_id, op_id, "ab" * 32, {"turnId": "t_1", "odd": ODD}, at)


def step(session_id: str, number: int) -> tuple[Change, ...]:
    """Make what one step of a conversation commits: number 1, 2, 3, …"""
    return (
        session(session_id, last_seq=number, updated_at=NOW + number),
        event(session_id, number),
        item(f"i_{number}", session_id, number),
        HistoryRecord(session_id, number - 1, "t_1", UserEntry(f"step {number}")),
    )


def conversation(session_id: str, length: int) -> Iterator[tuple[Change, ...]]:
    """Make the steps of a whole conversation, in order."""
    for number in range(1, length + 1):
        yield step(session_id, number)
