"""`scv/queue/*`: prompts that wait."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from scv.core.queue import PromptQueue
from scv.core.records import Json
from scv.core.session import MakeOp

if TYPE_CHECKING:
    from scv.server.connection import Connection


async def list_queue(connection: "Connection", params: Json) -> Json:
    """Show the queue."""
    session = await connection.server.live(params["sessionId"])
    return session.queue.view()


async def add(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Append a prompt, or put it before another."""

    def act(queue: PromptQueue) -> Json:
        queue.check_rev(params.get("ifRev"))
        entry = queue.add(
            params["input"],
            op_id=params["opId"],
            submitter=connection.author(),
            before=params.get("before"),
        )
        return {"rev": queue.rev, "entry": entry.view()}

    return await _change(connection, params, act, make_op)


async def update(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Replace the text of an entry."""

    def act(queue: PromptQueue) -> Json:
        entry = queue.update(params["queueId"], params["entryRev"], params["input"])
        return {"rev": queue.rev, "entry": entry.view()}

    return await _change(connection, params, act, make_op)


async def move(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Put an entry elsewhere."""

    def act(queue: PromptQueue) -> Json:
        queue.check_rev(params.get("ifRev"))
        queue.move(params["queueId"], params.get("before"))
        return {"rev": queue.rev}

    return await _change(connection, params, act, make_op)


async def remove(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Remove an entry."""

    def act(queue: PromptQueue) -> Json:
        queue.check_rev(params.get("ifRev"))
        queue.remove(params["queueId"])
        return {"rev": queue.rev}

    return await _change(connection, params, act, make_op)


async def clear(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Remove all entries."""

    def act(queue: PromptQueue) -> Json:
        queue.check_rev(params.get("ifRev"))
        queue.clear()
        return {"rev": queue.rev}

    return await _change(connection, params, act, make_op)


async def hold(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Let nothing start by itself."""
    return await _change(connection, params, _holding(True), make_op)


async def release(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Go on with the first entry."""
    return await _change(connection, params, _holding(False), make_op)


def _holding(held: bool) -> Callable[[PromptQueue], Json]:
    def act(queue: PromptQueue) -> Json:
        queue.hold(held)
        return {"rev": queue.rev, "held": held}

    return act


async def promote(connection: "Connection", params: Json, make_op: MakeOp) -> Json:
    """Move an entry to the head, or into the running turn."""
    session = await connection.server.live(params["sessionId"])
    return await session.promote(params["queueId"], params["as"], make_op)


async def _change(
    connection: "Connection",
    params: Json,
    act: Callable[[PromptQueue], Json],
    make_op: MakeOp,
) -> Json:
    session = await connection.server.live(params["sessionId"])
    return await session.change_queue(act, make_op)
