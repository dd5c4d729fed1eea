"""What was and is: snapshot, events and items of a session, read without owning it."""

import json
from typing import TYPE_CHECKING, Any

from scv.core.excerpt import encoded_bytes
from scv.core.queue import PromptQueue
from scv.core.records import HOLE, Json, SessionRecord
from scv.core.session import Session
from scv.core.views import session_view, turn_view
from scv.errors import RequestRefused, StoreError
from scv.shapes import LARGEST_INTEGER
from scv.wire.errors import refuse
from scv.wire.limits import (
    ITEM_PAGE_BYTES,
    REPLAY_BYTES,
    REPLAY_PAGE_BYTES,
)

if TYPE_CHECKING:
    from scv.server.connection import Connection
    from scv.server.server import Server

TAIL_ITEMS = 50


async def get(connection: "Connection", params: Json) -> Json:
    """Answer a snapshot without history."""
    server = connection.server
    found = await server.found(params["sessionId"])
    clients = [
        {**other.author(), "role": other.roles[found.id]}
        for other in server.connections
        if found.id in other.streams
    ]
    if isinstance(found, Session):
        view, turn = found.view(), found.turn_view()
        approvals, queue = found.desk.pending(), found.queue
    else:
        newest = await server.store.newest_turn(found.id)
        turn = None if newest is None else turn_view(newest)
        approvals = await stored_approvals(server, found.id)
        view = await stored_view(server, found)
        queue = PromptQueue(found.id, await server.store.queue(found.id))
        view["lastSeq"] = (await position(server, found))[1]
    return {
        "session": view,
        "turn": turn,
        "queue": queue.view(),
        "approvals": approvals,
        "clients": clients,
    }


async def stored_view(server: "Server", record: SessionRecord) -> Json:
    """Show a session that does not run here."""
    turn = await server.store.newest_turn(record.id)
    state = "idle"
    if turn is not None:
        state = "running" if turn.status is None else state
        state = "failed" if turn.status == "failed" else state
    return session_view(record, state)


async def stored_approvals(server: "Server", session_id: str) -> list[Json]:
    """List the open questions of a session that another process runs."""
    rows = await server.store.pending_approvals()
    return [row.body for row in rows if row.session_id == session_id]


async def position(server: "Server", found: Session | SessionRecord) -> tuple[str, int]:
    """Name the epoch and the newest number that clients may have seen."""
    if isinstance(found, Session):
        return found.log.epoch, found.log.published
    kept = await server.store.last_event(found.id, found.epoch)
    return found.epoch, max(found.last_seq, kept)


async def replay(connection: "Connection", params: Json) -> Json:
    """Read a piece of the log; resumes this connection's lagged stream."""
    server = connection.server
    found = await server.found(params["sessionId"])
    epoch, upto = await position(server, found)
    if params["epoch"] != epoch:
        raise refuse(
            "replay.unavailable",
            "the session's epoch is another one; attach again",
            epoch=epoch,
        )
    after = params["after"]
    await check_replayable(server, found, after)
    rows, complete = await server.store.events(
        found.id,
        epoch,
        after=after,
        limit_bytes=min(params.get("limitBytes", REPLAY_PAGE_BYTES), REPLAY_PAGE_BYTES),
    )
    rows = [row for row in rows if row.last <= upto]
    last = rows[-1].last if rows else after
    if complete:
        last = max(last, upto)
    stream = connection.streams.get(found.id)
    if complete and stream is not None and stream.is_lagged:
        stream.resume(last)
        connection.spawn(stream.catch_up)
    return {
        "sessionId": found.id,
        "epoch": epoch,
        "from": after + 1,
        "to": last,
        "events": [json.loads(row.data) for row in rows if row.type != HOLE],
        "complete": complete,
    }


async def check_replayable(
    server: "Server", found: Session | SessionRecord, after: int
) -> None:
    """Refuse numbers that a client cannot go on from.

    Raises:
        RequestRefused: 4244; attach with `history` instead.
    """
    epoch, upto = await position(server, found)
    store = server.store
    rows, _ = await store.events(found.id, epoch, after=after, limit_bytes=1)
    in_hole = bool(rows) and rows[0].type == HOLE and rows[0].first <= after
    if after > upto or in_hole:
        raise refuse(
            "replay.unavailable",
            "events up to this number were lost when a server died; attach with"
            " `history`",
            epoch=epoch,
            lastSeq=upto,
        )
    if await store.events_exceed(
        found.id, epoch, after=after, limit_bytes=REPLAY_BYTES
    ):
        raise refuse(
            "replay.unavailable",
            f"more than {REPLAY_BYTES} bytes of events follow; attach with `history`",
            epoch=epoch,
            lastSeq=upto,
        )


async def history(connection: "Connection", params: Json) -> Json:
    """Page through items; a page also ends where it would be too large."""
    server = connection.server
    found = await server.found(params["sessionId"])
    after = params.get("after")
    rows, previous, following = await server.store.items(
        found.id,
        before=params.get("before"),
        after=after,
        limit=params.get("limit", TAIL_ITEMS),
    )
    items = as_they_are(found, [row.body for row in rows])
    if after is not None:
        kept = fitting(items)
        if len(kept) < len(items):
            following = kept[-1]["id"]
    else:
        kept = fitting(items[::-1])[::-1]
        if len(kept) < len(items):
            previous = kept[0]["id"]
    return {"items": kept, "prev": previous, "next": following}


def as_they_are(found: Session | SessionRecord, items: list[Json]) -> list[Json]:
    """Take running items as far as they have come."""
    running = found.transcript.open_items() if isinstance(found, Session) else {}
    return [running.get(item["id"], item) for item in items]


def fitting(items: list[Json]) -> list[Json]:
    """Keep the first items, as many as one answer can hold, one at least."""
    size = 0
    for count, item in enumerate(items):
        size += encoded_bytes(item)
        if size > ITEM_PAGE_BYTES and count:
            return items[:count]
    return items


async def attached_items(
    server: "Server", session: Session, params: Json
) -> list[Json]:
    """Read the items that an answer to `attach` carries, oldest first.

    Raises:
        RequestRefused: 4261, all of them are too much for one answer.
    """
    if params["history"] == "tail":
        limit = params.get("tailItems", TAIL_ITEMS)
        rows, _, _ = await server.store.items(session.id, limit=limit)
        items = as_they_are(session, [row.body for row in rows])
        return fitting(items[::-1])[::-1]
    items = []
    size = 0
    before: str | None = None
    while True:
        rows, before, _ = await server.store.items(session.id, before=before, limit=200)
        page = as_they_are(session, [row.body for row in rows])
        size += sum(map(encoded_bytes, page))
        if size > ITEM_PAGE_BYTES:
            raise refuse(
                "limit.message",
                f"this history has more than {ITEM_PAGE_BYTES} bytes; attach with"
                " `history: tail` and page back with `scv/session/history`",
                maxBytes=ITEM_PAGE_BYTES,
            )
        items = page + items
        if before is None:
            return items


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
        status = await _resumable(server, session, epoch, after)
    except (RequestRefused, StoreError):
        return {"sessionId": session_id, "status": "unknown"}
    return {
        "sessionId": session_id,
        "epoch": session.log.epoch,
        "lastSeq": session.log.published,
        "status": status,
    }


async def _resumable(server: "Server", session: Session, epoch: Any, after: int) -> str:
    if epoch != session.log.epoch or after > LARGEST_INTEGER:
        return "reset"
    status = "current" if after == session.log.published else "replaying"
    try:
        await check_replayable(server, session, after)
    except RequestRefused:
        return "reset"
    return status
