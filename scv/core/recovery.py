"""Take a stored session over: finish what its last owner left unfinished.

An interrupted turn is listed as interrupted and nothing of it runs again; its
partial text stays, its open questions expire, its calls get an output that
says that the outcome is unknown.
"""

import json
from dataclasses import replace

from scv.core.history import AssistantEntry, Entry, OutputEntry
from scv.core.ids import now_ms
from scv.core.queue import PromptQueue, waiting_from_item
from scv.core.records import (
    HOLE,
    ApprovalRecord,
    Change,
    EventRecord,
    HistoryRecord,
    ItemRecord,
    Json,
    SessionRecord,
    Store,
    StoredSession,
)

UNKNOWN_OUTCOME = (
    "interrupted: SCV stopped while this call was open; whether it had an effect"
    " is unknown and it was not run again"
)


async def recover(store: Store, stored: StoredSession) -> StoredSession:
    """Bring a session whose lock we hold to rest; changes are on disk on return.

    Numbering goes on above the ceiling when the last owner did not close it.

    Raises:
        StoreError: The changes could not be kept.
    """
    session = stored.session
    open_turns = [turn for turn in stored.turns if turn.state != "ended"]
    last = await store.last_event(session.id, session.epoch)
    queue = PromptQueue(session.id, stored.queue)
    unheld = bool(len(queue)) and not queue.held  # nothing resumes by itself
    clean = not open_turns and session.ceiling == session.last_seq >= last
    if clean and not unheld:
        return stored
    changes: list[Change] = []
    number = max(session.ceiling, last)  # some may have been kept beyond the ceiling
    if number > last:
        changes.append(
            EventRecord(session.id, session.epoch, last + 1, number, HOLE, None, b"")
        )

    def event(event_type: str, data: Json, **where: str | None) -> None:
        nonlocal number
        number += 1
        body: Json = {"type": event_type, "at": now_ms()}
        body.update({key: value for key, value in where.items() if value is not None})
        body["data"] = data
        encoded = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        changes.append(
            EventRecord(
                session.id,
                session.epoch,
                number,
                number,
                event_type,
                where.get("itemId"),
                encoded,
            )
        )

    for approval in stored.approvals:
        expired = _expire(approval)
        changes.append(expired)
        event(
            "approval.resolved",
            expired.decision or {},
            turnId=approval.turn_id,
            itemId=approval.item_id,
        )
    history = list(stored.history)
    requeued = []
    for item in stored.open_items:
        if item.kind == "user_message":
            waiting = waiting_from_item(item.body)
            requeued.append(waiting)
            event(
                "steer.requeued",
                {"queueId": waiting.id},
                turnId=item.turn_id,
                itemId=item.id,
            )
        closed = await _close_item(store, session, item)
        changes.append(closed)
        if closed.kind == "assistant_message" and closed.body["text"]:
            history.append(AssistantEntry(closed.body["text"]))
        event(
            "item.completed",
            {"item": closed.body},
            turnId=item.turn_id,
            itemId=item.id,
        )
    history.extend(_missing_outputs(history))
    turns = [turn for turn in stored.turns if turn.state == "ended"]
    for turn in open_turns:
        ended = replace(
            turn,
            state="ended",
            status="interrupted",
            stop_reason="server_stopped",
            ended_at=now_ms(),
        )
        turns.append(ended)
        changes.append(ended)
        event(
            "turn.ended",
            {
                "status": "interrupted",
                "stopReason": "server_stopped",
                "usage": turn.usage,
                "durationMs": max(0, now_ms() - turn.started_at),
            },
            turnId=turn.id,
        )
    turn_id = open_turns[-1].id if open_turns else None
    changes.extend(
        HistoryRecord(session.id, position, turn_id, history[position])
        for position in range(len(stored.history), len(history))
    )
    if requeued:
        queue.put_first(requeued)
    if requeued or unheld:
        queue.hold(True)
        event("queue.changed", queue.view())
        changes.append(queue.record())
    rested = replace(session, last_seq=number, ceiling=number)
    changes.append(rested)
    await store.commit(tuple(changes))
    return StoredSession(rested, tuple(turns), (), tuple(history), (), queue.record())


def _expire(approval: ApprovalRecord) -> ApprovalRecord:
    now = now_ms()
    decision: Json = {
        "approvalId": approval.id,
        "decision": "expired",
        "by": {},
        "at": now,
    }
    return replace(approval, state="expired", decision=decision, resolved_at=now)


async def _close_item(
    store: Store, session: SessionRecord, item: ItemRecord
) -> ItemRecord:
    body = {**item.body, "status": "interrupted"}
    if item.kind == "user_message":
        body["status"] = "cancelled"
    if item.kind == "tool_call":
        body["result"] = {
            "success": False,
            "output": UNKNOWN_OUTCOME,
            "truncated": False,
        }
    elif "text" in body:
        body["text"] = await _partial_text(store, session, item)
        body["partial"] = True
    return replace(item, body=body)


async def _partial_text(store: Store, session: SessionRecord, item: ItemRecord) -> str:
    parts: list[str] = []
    length = 0
    after, complete = item.seq - session.base - 1, False
    while not complete:
        events, complete = await store.events(
            session.id, session.epoch, after=after, limit_bytes=1024 * 1024
        )
        if not events:
            break
        after = events[-1].last
        for event in events:
            if event.item_id == item.id and event.type == "item.delta":
                data = json.loads(event.data)["data"]
                text = data["append"][max(0, length - data["offset"]) :]
                parts.append(text)
                length += len(text)
    return "".join(parts)


def _missing_outputs(history: list[Entry]) -> list[OutputEntry]:
    """Outputs for the calls of the last response that never got one."""
    open_calls = {}
    for entry in history:
        if isinstance(entry, AssistantEntry):
            open_calls.update({call.call_id: call for call in entry.calls})
        elif isinstance(entry, OutputEntry):
            open_calls.pop(entry.call_id, None)
    return [
        OutputEntry(call.call_id, call.name, UNKNOWN_OUTCOME, is_error=True)
        for call in open_calls.values()
    ]
