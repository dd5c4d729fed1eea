"""Mutating calls run once: the same operation id and params, the same result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from anyio import Event

from scv.core.ids import now_ms
from scv.wire.errors import refuse

if TYPE_CHECKING:
    from scv.core.records import Json, Store
    from scv.core.session import MakeOp


class Operations:
    """Finds stored results and keeps two copies of one call from running at once."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], Event] = {}

    async def run(
        self,
        store: Store,
        client_id: str,
        method: str,
        params: Json,
        act: Callable[[MakeOp], Awaitable[Any]],
    ) -> Any:
        """Return the stored result, or run `act`, which stores its own.

        Raises:
            RequestRefused: 4204 when the id was used with other params.
        """
        from scv.core.digest import canonical, sha256_hex
        from scv.core.records import OpRecord

        op_id = params["opId"]
        key = (client_id, op_id)
        digest = sha256_hex(canonical([method, params]))
        while (running := self._running.get(key)) is not None:
            await running.wait()
        done = self._running[key] = Event()
        try:
            stored = await store.operation(client_id, op_id)
            if stored is None:

                def make_op(result: Json) -> OpRecord:
                    return OpRecord(client_id, op_id, digest, result, now_ms())

                return await act(make_op)
            if stored.params_sha256 != digest:
                raise refuse(
                    "op.conflict",
                    "this opId was used with other params; use a new one",
                )
            return stored.result
        finally:
            del self._running[key]
            done.set()
