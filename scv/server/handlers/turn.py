"""`scv/turn/*`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.session import MakeOp, Session
from scv.core.views import turn_view
from scv.core.visible import one_line
from scv.wire.errors import refuse

if TYPE_CHECKING:
    from scv.server.connection import Connection

REASON_CHARACTERS = 200


async def start(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Accept a prompt; answered when it is on disk."""
    session = await connection.server.live(params["sessionId"])
    wanted = params.get("ifBusy", "reject")
    given = (params["input"], connection.submitter(), params["opId"])
    if session.turn is not None and wanted == "steer":

        def steered(result: Json) -> Json:
            return {**result, "outcome": "steered", "seq": session.log.last}

        result = await session.steer(
            None, *given, lambda result: make_op(steered(result))
        )
        return steered(result)
    if wanted != "reject" and (session.turn is not None or len(session.queue)):
        return await session.queue_prompt(*given, make_op)
    return await session.start_turn(*given, make_op)


async def steer(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Say something to a running turn."""
    session = await connection.server.live(params["sessionId"])
    given = (params["input"], connection.submitter(), params["opId"])
    idle = session.turn is None
    if idle and params.get("ifIdle") == "start" and not len(session.queue):
        return await session.start_turn(*given, make_op)
    if idle and params.get("ifIdle") in ("start", "queue"):
        return await session.queue_prompt(*given, make_op)
    return await session.steer(params["turnId"], *given, make_op)


async def retract(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Take a steer back before the model gets it."""
    session = await connection.server.live(params["sessionId"])
    return await session.retract_steer(params["itemId"], make_op)


async def retry(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Go on after a turn that failed or was interrupted."""
    session = await connection.server.live(params["sessionId"])
    return await session.retry_turn(params["turnId"], connection.submitter(), make_op)


async def cancel_tool(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Stop one call; the turn goes on."""
    session = await connection.server.live(params["sessionId"])
    return await session.cancel_tool(params["itemId"], make_op)


async def cancel(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Stop the named turn and no other."""
    session = await connection.server.live(params["sessionId"])
    reason = one_line(params.get("reason", ""), REASON_CHARACTERS)
    return await session.cancel_turn(
        params["turnId"], reason, make_op, queue=params.get("queue", "hold")
    )


async def get(connection: "Connection", params: Json) -> Json:
    """Answer one turn of a session."""
    server = connection.server
    found = await server.found(params["sessionId"])
    view = None
    if isinstance(found, Session):
        view = found.turn_view(params["turnId"])
    if view is None:
        row = await server.store.turn(found.id, params["turnId"])
        if row is None:
            raise refuse("object.not_found", "this session has no such turn")
        view = turn_view(row)
    return {"turn": view}
