"""Carries questions to every front end that may answer, and answers back.

Parallel requests, one per connection; the first valid answer wins and the
others are withdrawn. An unusable answer is never an answer: it is named to
its sender and asked again, three times at most.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from scv.errors import ConnectionLost, ProtocolError, StoreError
from scv.wire.errors import CODES
from scv.wire.limits import INVALID_ANSWERS

if TYPE_CHECKING:
    from scv.core.records import Json
    from scv.server.connection import Connection
    from scv.server.server import Server

logger = logging.getLogger(__name__)
REQUEST = "scv/approval/request"
UNKNOWN_METHOD = -32601


class Courier:
    """The `Asker` of all sessions."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._out: dict[str, dict[Connection, CancelScope]] = {}

    def offer(self, session_id: str, approval: Json) -> bool:
        """Send a question to everybody who may answer it now."""
        self._out.setdefault(approval["approvalId"], {})
        attended = False
        for connection in self._server.connections:
            attended = self.offer_to(connection, session_id, approval) or attended
        return attended

    def offer_to(self, connection: Connection, session_id: str, approval: Json) -> bool:
        """Send a question to one front end; False when it may not answer."""
        if not connection.may_answer(session_id):
            return False
        approval_id = approval["approvalId"]
        out = self._out.get(approval_id)
        if out is None or connection in out:
            return out is not None
        if not connection.is_live(session_id):
            return True  # it gets the request when its stream has caught up
        scope = out[connection] = CancelScope()
        connection.spawn(self._ask, connection, session_id, approval, scope)
        return True

    def is_attended(self, approval_id: str) -> bool:
        """True while somebody who may answer has the question."""
        return bool(self._out.get(approval_id))

    def withdraw(self, session_id: str, approval_id: str) -> None:
        """Take a closed question away from everybody."""
        for scope in self._out.pop(approval_id, {}).values():
            scope.cancel()

    def take_back(self, connection: Connection, session_id: str) -> None:
        """Ask this front end nothing of a session any more."""
        session = self._server.sessions.get(session_id)
        for approval in session.desk.pending() if session is not None else ():
            out = self._out.get(approval["approvalId"], {})
            scope = out.pop(connection, None)
            if scope is not None:
                scope.cancel()

    def check_attended(self, session_id: str) -> None:
        """Note the open questions of a session that nobody can answer now."""
        session = self._server.sessions.get(session_id)
        for approval in session.desk.pending() if session is not None else ():
            self._check_attended(session_id, approval["approvalId"])

    def _check_attended(self, session_id: str, approval_id: str) -> None:
        session = self._server.sessions.get(session_id)
        if session is not None and not any(
            connection.may_answer(session_id) for connection in self._server.connections
        ):
            session.desk.unattended(approval_id)

    async def _ask(
        self,
        connection: Connection,
        session_id: str,
        approval: Json,
        scope: CancelScope,
    ) -> None:
        """Ask one front end until it answers usefully, defers, or is given up."""
        approval_id = approval["approvalId"]
        with scope:
            invalid = lost = 0
            while invalid < INVALID_ANSWERS:
                try:
                    answer = await connection.peer.request(REQUEST, approval)
                    if isinstance(answer, dict) and answer.get("defer") is True:
                        return
                    await self._use(connection, session_id, approval, answer)
                    return
                except ConnectionLost:
                    return
                except StoreError as error:  # not the front end's fault
                    problem = error.message
                    lost += 1
                    if lost == INVALID_ANSWERS:
                        self._out.get(approval_id, {}).pop(connection, None)
                        return
                except ProtocolError as error:
                    if error.code == CODES["approval.resolved"]:
                        return
                    if error.code == UNKNOWN_METHOD:
                        break
                    problem = error.message
                    invalid += 1
                connection.peer.notify(
                    "scv/approval/invalid",
                    {"approvalId": approval_id, "reason": problem},
                )
            connection.cannot_approve = True
            logger.warning(
                "connection %s gives no usable answers; it is not asked again",
                connection.id,
            )
            self._out.get(approval_id, {}).pop(connection, None)
            self._check_attended(session_id, approval_id)

    async def _use(
        self, connection: Connection, session_id: str, approval: Json, answer: Any
    ) -> None:
        """Decide a question with a front end's answer.

        Raises:
            ProtocolError: The answer is not usable, or comes too late.
            StoreError: The outcome could not be kept; the question stays open.
        """
        from scv.server.audit import audit
        from scv.wire.approval import Decision
        from scv.wire.validate import check

        decision = check(Decision, answer)
        session = self._server.sessions.get(session_id)
        if session is None or not connection.may_answer(session_id):
            return
        # the outcome must be stored even when this front end leaves meanwhile
        with CancelScope(shield=True):
            await session.answer(
                approval["approvalId"],
                digest=decision["digest"],
                option_id=decision["optionId"],
                feedback=decision.get("feedback", ""),
                by=connection.author(),
                extra=(
                    audit(
                        connection,
                        "approval/answer",
                        session_id,
                        {
                            "approvalId": approval["approvalId"],
                            "optionId": decision["optionId"],
                        },
                    ),
                ),
            )
