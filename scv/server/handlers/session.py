"""`scv/session/*`."""

import json
import os
from typing import TYPE_CHECKING

from scv.core.prompt import shown_path
from scv.core.records import HOLE, Json, SessionRecord
from scv.core.session import MakeOp, Session
from scv.core.views import session_view
from scv.errors import RequestRefused
from scv.server.handlers.workspace import directory
from scv.server.paging import decode_cursor, encode_cursor
from scv.server.server import new_session_record
from scv.wire.errors import refuse
from scv.wire.limits import REPLAY_PAGE_BYTES

if TYPE_CHECKING:
    from scv.server.connection import Connection
    from scv.server.server import Server

TAIL_ITEMS = 50


async def create(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Start a session in an existing directory."""
    server = connection.server
    store = await server.ready()
    workspace = params["workspace"]
    record = new_session_record(
        root=directory(workspace["root"]),
        folders=tuple(directory(path) for path in workspace.get("folders", [])),
        title=params.get("title", "").strip(),
        config=params.get("config", {}),
        channel=params.get("channel"),
    )
    environment = params.get("environment", server.environment)
    if params.get("attach", True):
        connection.require_room()
    server.equip(record, environment)  # refuses before anything is kept
    lock = store.lock_session(record.id)
    try:
        view = session_view(record, "idle")
        result: Json = {"session": view, "seq": 0, "epoch": record.epoch}
        await store.commit((record, make_op(result)))
    except BaseException:
        lock.release()
        raise
    server.adopt(record, lock, history=[], environment=environment)
    server.tell_row(record)
    return result


async def follow_created(connection: "Connection", params: Json, result: Json) -> None:
    """Attach to the session that was made, also when a repeated call only names it."""
    session_id = result["session"]["id"]
    if params.get("attach", True) and session_id not in connection.streams:
        session = await connection.server.live(session_id)
        connection.follow(session, after=result["seq"], role=None)


def real_path(path: str) -> str:
    return os.path.realpath(shown_path(path))


async def get(connection: "Connection", params: Json) -> Json:
    """Answer a snapshot without history."""
    session = await connection.server.live(params["sessionId"])
    clients = [
        {**other.author(), "role": other.roles[session.id]}
        for other in connection.server.connections
        if session.id in other.streams
    ]
    return {
        "session": session.view(),
        "turn": session.turn_view(),
        "queue": session.queue.view(),
        "approvals": session.desk.pending(),
        "clients": clients,
    }


async def list_sessions(connection: "Connection", params: Json) -> Json:
    """Page through all sessions of the instance, whoever runs them."""
    server = connection.server
    store = await server.ready()
    limit = params.get("limit", TAIL_ITEMS)
    root = params.get("workspace")
    wanted = params.get("state")
    real_root = real_path(root) if root else None
    before = decode_cursor(params["cursor"]) if "cursor" in params else None
    rows: list[Json] = []
    while True:
        page = await store.sessions(
            root=real_root,
            archived=params.get("archived"),
            title_contains=params.get("query"),
            limit=limit,
            before=before,
        )
        for record in page:
            view = await _row(server, record)
            before = (record.updated_at, record.id)
            if wanted is None or view["state"] in wanted:
                rows.append(view)
                if len(rows) == limit:
                    return {"sessions": rows, "nextCursor": encode_cursor(before)}
        if len(page) < limit:
            return {"sessions": rows, "nextCursor": None}


async def _row(server: "Server", record: SessionRecord) -> Json:
    session = server.sessions.get(record.id)
    if session is not None:
        return session.view()
    turn = await server.store.newest_turn(record.id)
    state = "idle"
    if turn is not None:
        state = "running" if turn.status is None else state
        state = "failed" if turn.status == "failed" else state
    return session_view(record, state)


async def attach(connection: "Connection", params: Json) -> Json:
    """Follow a session; open questions come again as requests."""
    session = await connection.server.live(params["sessionId"])
    may_set = connection.role != "observer" and not connection.is_delegated
    if "environment" in params and may_set:
        session.use_environment(params["environment"])
    log = session.log
    at = log.published
    after = at
    if "after" in params:
        if params.get("epoch") != log.epoch:
            raise refuse(
                "replay.unavailable",
                "the numbers belong to another epoch; attach without `after`",
                epoch=log.epoch,
                lastSeq=at,
            )
        after = params["after"]
        await _check_replayable(connection.server, session, after)
    result: Json = {
        "session": session.view(),
        "epoch": log.epoch,
        "lastSeq": at,
        "pending": {"approvals": session.desk.pending()},
        "queue": session.queue.view(),
    }
    wanted = params.get("history", "none")
    if wanted != "none":
        result["items"] = await _items(session, connection, wanted, params)
    connection.follow(session, after=after, role=params.get("role"))
    return result


async def _items(
    session: Session, connection: "Connection", wanted: str, params: Json
) -> list[Json]:
    store = connection.server.store
    limit = params.get("tailItems", TAIL_ITEMS) if wanted == "tail" else 200
    items: list[Json] = []
    before: str | None = None
    while True:
        page, before, _ = await store.items(session.id, before=before, limit=limit)
        items = [record.body for record in page] + items
        if wanted == "tail" or before is None:
            break
    running = session.transcript.open_items()
    return [running.get(item["id"], item) for item in items]


async def detach(connection: "Connection", params: Json) -> Json:
    """Stop following; never stops work."""
    connection.unfollow(params["sessionId"])
    return {}


async def replay(connection: "Connection", params: Json) -> Json:
    """Read a piece of the log; resumes this connection's lagged stream."""
    session = await connection.server.live(params["sessionId"])
    log = session.log
    if params["epoch"] != log.epoch:
        raise refuse(
            "replay.unavailable",
            "the session's epoch is another one; attach again",
            epoch=log.epoch,
        )
    after, upto = params["after"], log.published
    await _check_replayable(connection.server, session, after)
    limit = min(params.get("limitBytes", REPLAY_PAGE_BYTES), REPLAY_PAGE_BYTES)
    kept, complete = await connection.server.store.events(
        session.id, log.epoch, after=after, limit_bytes=max(limit, 1)
    )
    rows = [row for row in kept if row.last <= upto]
    complete = complete or len(rows) < len(kept)
    last = rows[-1].last if rows else after
    if complete:
        last = max(last, upto)
    stream = connection.streams.get(session.id)
    if complete and stream is not None and stream.is_lagged:
        stream.resume(last)
        connection.spawn(stream.catch_up)
    return {
        "sessionId": session.id,
        "epoch": log.epoch,
        "from": after + 1,
        "to": last,
        "events": [json.loads(row.data) for row in rows if row.type != HOLE],
        "complete": complete,
    }


async def _check_replayable(server: "Server", session: Session, after: int) -> None:
    """Refuse numbers that this history cannot continue from.

    Raises:
        RequestRefused: 4244; attach with `history` instead.
    """
    log = session.log
    rows, _ = await server.store.events(
        session.id, log.epoch, after=after, limit_bytes=1
    )
    in_hole = bool(rows) and rows[0].type == HOLE and rows[0].first <= after
    if after > log.published or in_hole:
        raise refuse(
            "replay.unavailable",
            "events up to this number were lost when a server died; attach with"
            " `history`",
            epoch=log.epoch,
            lastSeq=log.published,
        )


async def history(connection: "Connection", params: Json) -> Json:
    """Page through items."""
    session = await connection.server.live(params["sessionId"])
    rows, previous, following = await connection.server.store.items(
        session.id,
        before=params.get("before"),
        after=params.get("after"),
        limit=params.get("limit", TAIL_ITEMS),
    )
    running = session.transcript.open_items()
    return {
        "items": [running.get(row.id, row.body) for row in rows],
        "prev": previous,
        "next": following,
    }


async def update(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Change title, archive mark or configuration."""
    if "config" in params:
        connection.require_person()
    session = await connection.server.live(params["sessionId"])
    return await session.update(
        title=params.get("title"),
        archived=params.get("archived"),
        config=params.get("config"),
        if_rev=params.get("ifRev"),
        make_op=make_op,
    )


async def compact(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Let the model summarise the conversation."""
    session = await connection.server.live(params["sessionId"])
    return await session.compact(
        params.get("instructions", ""), connection.submitter(), make_op
    )


async def close(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Free a session's resources; it can be attached again at any time."""
    server = connection.server
    session = await server.live(params["sessionId"])
    turn = session.turn
    if turn is not None and params["mode"] == "drain":
        await turn.ended.wait()
    await session.end_turn("closed")
    session.log.append("session.closed", {})
    for other in list(server.connections):
        other.unfollow(session.id)
    await server.give_up(session)
    await server.store.commit((make_op({}),))
    return {}


async def resume_status(server: "Server", point: Json) -> Json:
    """Say what becomes of one resume point of a handshake."""
    session_id, epoch, after = (
        point.get("sessionId"),
        point.get("epoch"),
        point.get("after"),
    )
    if not isinstance(session_id, str) or type(after) is not int or after < 0:
        return {"sessionId": str(session_id)[:64], "status": "unknown"}
    try:
        session = await server.live(session_id)
    except RequestRefused:
        return {"sessionId": session_id, "status": "unknown"}
    log = session.log
    status = "current" if after == log.published else "replaying"
    try:
        if epoch != log.epoch:
            status = "reset"
        else:
            await _check_replayable(server, session, after)
    except RequestRefused:
        status = "reset"
    return {
        "sessionId": session_id,
        "epoch": log.epoch,
        "lastSeq": log.published,
        "status": status,
    }
