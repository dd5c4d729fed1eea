"""One module per noun; `serve` finds the handler of a request and runs it.

A handler takes the connection and validated params; a mutating one also takes
`make_op`, which it must put into the commit of its effect.
"""

from typing import TYPE_CHECKING, Any

from scv.core.session import MakeOp
from scv.errors import ConfigError, NotFound, StoreError, UnknownMethod
from scv.server.audit import AUDITED, of_request
from scv.server.handlers import (
    approval,
    attention,
    blob,
    branch,
    queue,
    reading,
    schema,
    session,
    turn,
)
from scv.wire.errors import refuse
from scv.wire.methods import METHODS
from scv.wire.validate import check_params

if TYPE_CHECKING:
    from scv.server.connection import Connection

HANDLERS: dict[str, Any] = {
    "scv/session/create": session.create,
    "scv/session/get": reading.get,
    "scv/session/list": session.list_sessions,
    "scv/session/attach": session.attach,
    "scv/session/detach": session.detach,
    "scv/session/replay": reading.replay,
    "scv/session/history": reading.history,
    "scv/session/update": session.update,
    "scv/session/close": session.close,
    "scv/session/fork": branch.fork,
    "scv/session/rewind": branch.rewind,
    "scv/session/compact": session.compact,
    "scv/session/search": attention.search,
    "scv/session/delete": branch.delete,
    "scv/session/export": branch.export,
    "scv/session/import": branch.import_,
    "scv/attention/list": attention.list_attention,
    "scv/attention/seen": attention.mark_seen,
    "scv/usage/get": attention.usage,
    "scv/turn/start": turn.start,
    "scv/turn/cancel": turn.cancel,
    "scv/turn/steer": turn.steer,
    "scv/turn/steer/retract": turn.retract,
    "scv/turn/retry": turn.retry,
    "scv/tool/cancel": turn.cancel_tool,
    "scv/queue/list": queue.list_queue,
    "scv/queue/add": queue.add,
    "scv/queue/update": queue.update,
    "scv/queue/move": queue.move,
    "scv/queue/remove": queue.remove,
    "scv/queue/clear": queue.clear,
    "scv/queue/hold": queue.hold,
    "scv/queue/release": queue.release,
    "scv/queue/promote": queue.promote,
    "scv/turn/get": turn.get,
    "scv/approval/answer": approval.answer,
    "scv/approval/list": approval.list_approvals,
    "scv/blob/put": blob.put,
    "scv/blob/read": blob.read,
    "scv/schema/get": schema.get,
}


AFTERWARDS: dict[str, Any] = {"scv/session/create": session.follow_created}
"""What a method does for its connection when its result is there, also a stored one."""


async def serve(connection: "Connection", method: str, params: Any) -> Any:
    """Validate, check the role, and run a request; foreign errors become the wire's."""
    handler = HANDLERS.get(method)
    if handler is None:
        raise UnknownMethod(f"unknown method {method[:80]!r}")
    entry = METHODS[method]
    checked = check_params(method, params)
    if not entry.observer:
        connection.require_controller(checked.get("sessionId"))
    try:
        if not entry.mutating:
            return await handler(connection, checked)
        if connection.server.is_stopping:
            raise refuse("draining", "this server is stopping and takes no new work")
        store = await connection.server.ready()

        async def act(make_op: MakeOp) -> Any:
            result = await handler(connection, checked, make_op)
            if method in AUDITED:
                store.enqueue((of_request(connection, method, checked),))
            return result

        result = await connection.server.operations.run(
            store,
            connection.client_id,
            method,
            checked,
            act,
        )
        if method in AFTERWARDS:
            await AFTERWARDS[method](connection, checked, result)
        return result
    except ConfigError as error:
        raise refuse("config.invalid", error.message, key=error.key) from error
    except StoreError as error:
        raise refuse("store.failed", error.message) from error
    except NotFound as error:
        raise refuse("object.not_found", error.message) from error
