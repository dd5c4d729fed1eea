"""Copies of sessions: `fork`, `rewind`, `export`, `import`; and `delete`."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from scv.core.branch import Cut, all_items, find_cut
from scv.core.history import decode_entry, encode_entry
from scv.core.ids import new_id, now_ms
from scv.core.records import (
    Change,
    HistoryRecord,
    ItemRecord,
    Json,
    SessionRecord,
    Store,
    TurnRecord,
)
from scv.core.session import MakeOp, Session
from scv.core.views import session_view
from scv.core.visible import one_line
from scv.errors import InvalidParams
from scv.server.audit import audit
from scv.server.handlers.workspace import directory
from scv.wire.errors import refuse
from scv.wire.limits import BLOB_CHUNK_BYTES, EVENT_NUMBER_BLOCK

if TYPE_CHECKING:
    from scv.server.connection import Connection

ROWS_PER_COMMIT = 2000
EXPORT_VERSION = 1


async def fork(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Copy a session up to an item."""
    server = connection.server
    session = await server.live(params["sessionId"])
    _require_rest(session)
    store = server.store
    cut = await find_cut(store, session.id, params.get("atItem"))
    title = one_line(params.get("title") or f"{session.record.title} (fork)", 200)
    root = session.record.root
    if "workspace" in params:
        root = directory(params["workspace"]["root"])
    copy = replace(_fresh(session.record, title, root, cut), parent=session.id)
    result = {"session": session_view(copy, "idle")}
    await _copy(store, session.id, copy, cut, (make_op(result),))
    server.tell_row(copy)
    return result


async def rewind(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Take a conversation back; the old branch stays as a session of its own."""
    server = connection.server
    session = await server.live(params["sessionId"])
    _require_rest(session)
    store = server.store
    cut = await find_cut(store, session.id, params["toItem"])
    whole = await find_cut(store, session.id, None)
    plan = {"items": cut.removed, "turns": len(whole.turns - cut.turns)}
    if params.get("dryRun"):
        await store.commit((make_op({"plan": plan}),))
        return {"plan": plan}
    record = session.record
    branch = replace(
        _fresh(record, f"{record.title} (before rewind)", record.root, whole),
        parent=session.id,
    )
    await _copy(store, session.id, branch, whole, ())
    _require_rest(session)
    result: Json = {"plan": plan, "newEpoch": new_id("e"), "forkId": branch.id}
    await session.rewind(
        cut, epoch=result["newEpoch"], previous=branch.id, op=make_op(result)
    )
    server.tell_row(branch)
    for other in list(server.connections):
        if session.id in other.streams:
            other.follow(session, after=0, role=other.roles[session.id])
    return result


async def delete(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Remove a session for good."""
    server = connection.server
    session_id = params["sessionId"]
    store = await server.ready()
    deleted = audit(connection, "session/delete", session_id, {})
    if await store.load(session_id) is None:
        await store.commit((make_op({}),))
        return {}
    session = await server.live(session_id)
    if session.turn is not None and not params.get("force"):
        raise refuse(
            "session.busy",
            "a turn is running; cancel it, or delete with `force`",
            turnId=session.turn.id,
        )
    await session.end_turn("deleted")
    session.log.append("session.closed", {})
    for other in list(server.connections):
        other.unfollow(session_id)
    await server.give_up(session)
    lock = store.lock_session(session_id)
    try:
        await store.delete_session(session_id, make_op({}), deleted)
    finally:
        lock.release()
    server.tell_removed(session_id)
    return {}


async def export(connection: "Connection", params: Json) -> Json:
    """Write a session into one file: JSON lines, blobs included."""
    server = connection.server
    session = await server.live(params["sessionId"])
    _require_rest(session)
    store = server.store
    lines: list[Json] = [
        {
            "scvSession": EXPORT_VERSION,
            "session": asdict(session.record),
        }
    ]
    lines += [{"turn": asdict(turn)} for turn in await store.turns(session.id)]
    lines += [{"item": asdict(item)} for item in await all_items(store, session.id)]
    for turn_id, entry in await store.history(session.id):
        lines.append({"history": encode_entry(entry), "turnId": turn_id})
    lines += [await _blob_line(store, each) for each in await store.blobs(session.id)]
    data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    blob_id = await store.put_blob(
        data.encode("utf-8", "surrogatepass"), "application/jsonl", ""
    )
    return {"blobId": blob_id}


async def import_(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Make a new session of an exported file."""
    server = connection.server
    store = await server.ready()
    data = await _whole_blob(store, params["blobId"])
    try:
        record, rows, blobs = _parse(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidParams(
            f"params.blobId: no exported session ({type(error).__name__})",
            data={"code": "params.invalid", "retryable": False, "path": "blobId"},
        ) from None
    place = params["workspace"]["root"] if "workspace" in params else record.root
    record = replace(record, root=directory(place))
    for mime_type, content in blobs:
        await store.put_blob(content, mime_type, record.id)
    result = {"session": session_view(record, "idle")}
    await _commit(store, rows, (record, make_op(result)))
    server.tell_row(record)
    return result


def _require_rest(session: Session) -> None:
    if session.turn is not None:
        raise refuse(
            "session.busy",
            "a turn is running; wait for its end or cancel it",
            turnId=session.turn.id,
        )


def _fresh(source: SessionRecord, title: str, root: str, cut: Cut) -> SessionRecord:
    now = now_ms()
    return replace(
        source,
        id=new_id("s"),
        title=one_line(title, 200),
        root=root,
        created_at=now,
        updated_at=now,
        rev=1,
        epoch=new_id("e"),
        last_seq=0,
        ceiling=EVENT_NUMBER_BLOCK,
        base=cut.seq,
        ended=0,
        seen=0,
        archived=False,
    )


async def _copy(
    store: Store,
    source_id: str,
    copy: SessionRecord,
    cut: Cut,
    changes: tuple[Change, ...],
) -> None:
    """Write the rows of a copy; its session row comes last, so it is whole or not."""
    rows: list[Change] = [
        replace(turn, session_id=copy.id)
        for turn in await store.turns(source_id)
        if turn.id in cut.turns
    ]
    rows += [replace(item, session_id=copy.id) for item in cut.items]
    entries = (await store.history(source_id))[: cut.position]
    rows += [
        HistoryRecord(copy.id, position, turn_id, entry)
        for position, (turn_id, entry) in enumerate(entries)
    ]
    await store.share_blobs(source_id, copy.id)
    await _commit(store, rows, (copy, *changes))


async def _commit(store: Store, rows: list[Change], last: tuple[Change, ...]) -> None:
    for start in range(0, len(rows), ROWS_PER_COMMIT):
        await store.commit(tuple(rows[start : start + ROWS_PER_COMMIT]))
    await store.commit(last)


async def _whole_blob(store: Store, blob_id: str) -> bytes:
    data = b""
    while True:
        part, total, _ = await store.read_blob(
            blob_id, offset=len(data), limit=BLOB_CHUNK_BYTES
        )
        data += part
        if len(data) >= total or not part:
            return data


async def _blob_line(store: Store, blob_id: str) -> Json:
    import base64

    _, _, mime_type = await store.read_blob(blob_id, offset=0, limit=1)
    data = await _whole_blob(store, blob_id)
    return {
        "blob": blob_id,
        "mimeType": mime_type,
        "data": base64.b64encode(data).decode(),
    }


def _parse(
    data: bytes,
) -> tuple[SessionRecord, list[Change], list[tuple[str, bytes]]]:
    """Read an exported file; raises the errors of wrong JSON."""
    import base64

    lines: Iterable[Json] = (json.loads(line) for line in data.splitlines() if line)
    head = next(iter(lines))
    if head["scvSession"] != EXPORT_VERSION:
        raise ValueError("version")
    session_id = new_id("s")
    rows: list[Change] = []
    blobs: list[tuple[str, bytes]] = []
    position, highest = 0, 0
    for line in lines:
        if "turn" in line:
            rows.append(TurnRecord(**_owned(line["turn"], session_id)))
        elif "item" in line:
            item = ItemRecord(**_owned(line["item"], session_id))
            highest = max(highest, item.seq)
            rows.append(item)
        elif "history" in line:
            entry = decode_entry(line["history"])
            rows.append(HistoryRecord(session_id, position, line["turnId"], entry))
            position += 1
        elif "blob" in line:
            blobs.append((line["mimeType"], base64.b64decode(line["data"])))
    fields = dict(head["session"], folders=tuple(head["session"]["folders"]))
    record = _fresh(
        SessionRecord(**fields),
        fields["title"],
        fields["root"],
        Cut(highest, position, (), frozenset(), 0),
    )
    return replace(record, id=session_id, parent=None), rows, blobs


def _owned(fields: dict[str, Any], session_id: str) -> dict[str, Any]:
    return {**fields, "session_id": session_id}
