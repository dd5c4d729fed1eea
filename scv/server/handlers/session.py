"""`scv/session/*`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.session import MakeOp
from scv.core.views import session_view
from scv.core.visible import one_line
from scv.server.handlers.reading import (
    TAIL_ITEMS,
    attached_items,
    check_replayable,
    stored_view,
)
from scv.server.handlers.workspace import directory, real_path
from scv.server.paging import decode_cursor, encode_cursor
from scv.server.server import new_session_record
from scv.wire.errors import refuse
from scv.wire.limits import ENVIRONMENT_BYTES

if TYPE_CHECKING:
    from scv.server.connection import Connection

TITLE_CHARACTERS = 200
CHANNEL_CHARACTERS = 64


async def create(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Start a session in an existing directory."""
    server = connection.server
    store = await server.ready()
    workspace = params["workspace"]
    record = new_session_record(
        root=directory(workspace["root"]),
        folders=tuple(directory(path) for path in workspace.get("folders", [])),
        title=one_line(params.get("title", ""), TITLE_CHARACTERS),
        config=params.get("config", {}),
        channel=one_line(params.get("channel", ""), CHANNEL_CHARACTERS) or None,
    )
    given = _environment(params)
    environment = server.environment if given is None else given
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


def _environment(params: Json) -> dict[str, str] | None:
    """Take the variables of the place a person works in, if they are given.

    Raises:
        RequestRefused: 4261.
    """
    given: dict[str, str] | None = params.get("environment")
    size = sum(
        len(part.encode("utf-8", "surrogatepass"))
        for pair in (given or {}).items()
        for part in pair
    )
    if size > ENVIRONMENT_BYTES:
        raise refuse(
            "limit.message",
            f"params.environment: {size} bytes, the limit is {ENVIRONMENT_BYTES}",
            maxBytes=ENVIRONMENT_BYTES,
            path="environment",
        )
    return given


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
            session = server.sessions.get(record.id)
            view = session.view() if session else await stored_view(server, record)
            before = (record.updated_at, record.id)
            if wanted is None or view["state"] in wanted:
                rows.append(view)
                if len(rows) == limit:
                    return {"sessions": rows, "nextCursor": encode_cursor(before)}
        if len(page) < limit:
            return {"sessions": rows, "nextCursor": None}


async def attach(connection: "Connection", params: Json) -> Json:
    """Follow a session; open questions come again as requests."""
    session = await connection.server.live(params["sessionId"])
    may_set = connection.role != "observer" and not connection.is_delegated
    environment = _environment(params)
    if environment is not None and may_set:
        session.use_environment(environment)
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
        await check_replayable(connection.server, session, after)
    result: Json = {
        "session": session.view(),
        "epoch": log.epoch,
        "lastSeq": at,
        "pending": {"approvals": session.desk.pending()},
        "queue": session.queue.view(),
    }
    if params.get("history", "none") != "none":
        result["items"] = await attached_items(connection.server, session, params)
    connection.follow(session, after=after, role=params.get("role"))
    return result


async def detach(connection: "Connection", params: Json) -> Json:
    """Stop following; never stops work."""
    connection.unfollow(params["sessionId"])
    return {}


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
    if params["mode"] == "drain":
        await session.drain()
    await session.end_turn("closed")
    session.log.append("session.closed", {})
    for other in list(server.connections):
        other.unfollow(session.id)
    await server.give_up(session, make_op({}))
    return {}
