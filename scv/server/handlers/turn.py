"""`scv/turn/*`."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.session import MakeOp, Session, turn_view
from scv.core.visible import one_line
from scv.wire.errors import refuse

if TYPE_CHECKING:
    from scv.server.connection import Connection

REASON_CHARACTERS = 200


async def start(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Accept a prompt; answered when it is on disk."""
    session = await connection.server.live(params["sessionId"])
    return await session.start_turn(
        params["input"], connection.submitter(), params["opId"], make_op
    )


async def cancel(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Stop the named turn and no other."""
    session = await connection.server.live(params["sessionId"])
    reason = one_line(params.get("reason", ""), REASON_CHARACTERS)
    return await session.cancel_turn(params["turnId"], reason, make_op)


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
