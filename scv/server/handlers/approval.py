"""`scv/approval/*` from clients that were not asked."""

from typing import TYPE_CHECKING

from scv.core.records import Json
from scv.core.session import MakeOp, Session
from scv.errors import RequestRefused
from scv.server.handlers.reading import stored_approvals
from scv.wire.errors import CODES, refuse

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def answer(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Decide a question by its id."""
    connection.require_person()
    server = connection.server
    store = await server.ready()
    record = await store.approval(params["approvalId"])
    if record is None:
        raise refuse("object.not_found", "there is no question of this id")
    connection.require_controller(record.session_id)
    result: Json = {"accepted": True}
    session = await server.live(record.session_id)
    try:
        await session.answer(
            record.id,
            digest=params["digest"],
            option_id=params["optionId"],
            feedback=params.get("feedback", ""),
            by=connection.author(),
            extra=(make_op(result),),
        )
    except RequestRefused as error:
        if error.code != CODES["approval.resolved"]:
            raise
        record = await store.approval(record.id)
        decision = (record.decision if record else None) or {}
        code = "approval.resolved"
        if decision.get("decision") == "expired":
            code = "approval.expired"
        raise refuse(
            code,
            "this question is already decided",
            decision=decision.get("decision"),
            by=decision.get("by"),
            at=decision.get("at"),
        ) from None
    return result


async def list_approvals(connection: "Connection", params: Json) -> Json:
    """List open questions, oldest first."""
    server = connection.server
    wanted = params.get("sessionId")
    sessions = [await server.found(wanted)] if wanted else server.sessions.values()
    pending: list[Json] = []
    for session in sessions:
        if isinstance(session, Session):
            pending += session.desk.pending()
        else:
            pending += await stored_approvals(server, session.id)
    return {"approvals": sorted(pending, key=lambda body: body["createdAt"])}
