"""`scv/turn/*`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.session import MakeOp, turn_view
from scv.wire.errors import refuse

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def start(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Accept a prompt; answered when it is on disk."""
    session = await connection.server.live(params["sessionId"])
    return await session.start_turn(
        params["input"], connection.submitter(), params["opId"], make_op
    )


async def cancel(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Stop the named turn and no other."""
    session = await connection.server.live(params["sessionId"])
    return await session.cancel_turn(
        params["turnId"], params.get("reason", ""), make_op
    )


async def get(connection: "Connection", params: Json) -> Json:
    """Answer one turn of a session."""
    session = await connection.server.live(params["sessionId"])
    view = session.turn_view(params["turnId"])
    if view is None:
        row = await connection.server.store.turn(session.id, params["turnId"])
        if row is None:
            raise refuse("object.not_found", "this session has no such turn")
        view = turn_view(row)
    return {"turn": view}
