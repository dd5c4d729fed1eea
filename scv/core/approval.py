"""Open questions of one session: one pending-to-resolved transition each.

The first valid answer wins; its outcome is on disk before anything runs.
Null, unknown, late and mismatched answers change nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from anyio import Event, move_on_after

from scv.core.ids import new_id, now_ms
from scv.core.log import EventLog
from scv.core.ports import Asker, PreparedCall
from scv.core.question import build
from scv.core.records import ApprovalRecord, Change, Json, Store
from scv.errors import InvalidParams
from scv.values import frozen
from scv.wire.errors import refuse
from scv.wire.limits import PENDING_APPROVALS

NOBODY = "nobody to ask"
Outcome = Literal["allowed", "denied", "cancelled"]


@frozen
class Answer:
    """How a question ended; `stop` also ends the turn."""

    outcome: Outcome
    feedback: str = ""
    stop: bool = False
    reason: str = ""


@dataclass(slots=True)
class _Open:
    record: ApprovalRecord
    done: Event = field(default_factory=Event)
    answer: Answer | None = None
    deciding: Event | None = None
    """Set when the commit of an answer is over, whichever way it went."""
    overdue: Answer | None = None
    """The outcome if that commit fails, because nobody waits any more."""


class ApprovalDesk:
    """Asks, takes answers, withdraws."""

    def __init__(
        self,
        log: EventLog,
        store: Store,
        asker: Asker,
        changed: Callable[[], None],
    ) -> None:
        """`changed` hears when a question opens or closes."""
        self._log = log
        self._store = store
        self._asker = asker
        self._changed = changed
        self._open: dict[str, _Open] = {}

    def pending(self) -> list[Json]:
        """Open questions in wire form, oldest first."""
        return [entry.record.body for entry in self._open.values()]

    async def ask(
        self,
        call: PreparedCall,
        *,
        turn_id: str,
        item_id: str,
        tool: str,
        workspace: str,
        digest: str,
        attempt: int,
        reason: str,
        timeout_seconds: int,
        on_open: Callable[[str], None],
    ) -> Answer:
        """Put one question and wait for its answer.

        Cancelling withdraws the question. After `timeout_seconds` without an
        answer it is a denial; 0 denies as soon as nobody can answer. The question
        is on disk before anybody sees it.

        Raises:
            StoreError: It could not be kept; nobody was asked.
        """
        if len(self._open) >= PENDING_APPROVALS:
            return Answer("denied", reason="too many open questions")
        now = now_ms()
        approval_id = new_id("a")
        session_id = self._log.session_id

        async def put_blob(data: bytes) -> str:
            return await self._store.put_blob(data, "text/plain", session_id)

        body = await build(
            call,
            put_blob,
            approvalId=approval_id,
            sessionId=session_id,
            turnId=turn_id,
            itemId=item_id,
            attempt=attempt,
            digest=digest,
            createdAt=now,
            expiresAt=now + timeout_seconds * 1000 if timeout_seconds else None,
            tool=tool,
            workspace=workspace,
            reason=reason,
        )
        entry = _Open(
            ApprovalRecord(
                approval_id, session_id, turn_id, item_id, "pending", now, body
            )
        )
        self._open[approval_id] = entry
        on_open(approval_id)
        self._log.append(
            "approval.requested",
            {"approval": body},
            turn_id=turn_id,
            item_id=item_id,
            held=True,
        )
        self._changed()
        try:
            await self._log.commit(entry.record)
        except BaseException:
            del self._open[approval_id]
            raise
        try:
            attended = entry.answer is not None or self._asker.offer(session_id, body)
            if not attended:
                self.unattended(approval_id)
            with move_on_after(timeout_seconds or None):
                await entry.done.wait()
            if entry.deciding is not None:
                await entry.deciding.wait()
            if entry.answer is None:
                reason = "nobody answered in time" if attended else NOBODY
                self._close(entry, Answer("denied", reason=reason), {})
        finally:
            over = Answer("cancelled", reason="the turn ended")
            if entry.answer is None and entry.deciding is None:
                self._close(entry, over, {})
            elif entry.answer is None:
                entry.overdue = over
        assert entry.answer is not None
        return entry.answer

    def unattended(self, approval_id: str) -> None:
        """Note that nobody who could answer is there now; deny what does not wait."""
        entry = self._open.get(approval_id)
        if entry is not None and entry.deciding is None:
            self._log.append(
                "approval.unattended",
                {"approvalId": approval_id},
                turn_id=entry.record.turn_id,
                item_id=entry.record.item_id,
            )
            if entry.record.body["expiresAt"] is None:
                self._close(entry, Answer("denied", reason=NOBODY), {})

    async def answer(
        self,
        approval_id: str,
        *,
        digest: str,
        option_id: str,
        feedback: str,
        by: Json,
        extra: tuple[Change, ...] = (),
    ) -> None:
        """Decide a question; returns when the outcome is on disk.

        Raises:
            RequestRefused: 4245 (decided already), 4246 (digest).
            InvalidParams: No such option; the question stays open.
            StoreError: The outcome could not be kept; the question stays open.
        """
        entry = self._open.get(approval_id)
        if entry is None or entry.deciding is not None:
            raise refuse("approval.resolved", "this question is already decided")
        if digest != entry.record.body["digest"]:
            raise refuse(
                "approval.digest",
                "the answer's digest is not that of the question as it stands",
            )
        kinds = {
            option["id"]: option["kind"] for option in entry.record.body["options"]
        }
        kind = kinds.get(option_id)
        if kind is None:
            raise InvalidParams(
                f"params.optionId: the options are {', '.join(kinds)}",
                data={"code": "params.invalid", "retryable": False, "path": "optionId"},
            )
        entry.deciding = over = Event()
        answer = Answer(
            "allowed" if kind == "allow_once" else "denied",
            feedback=feedback,
            stop=kind == "deny_stop",
            reason="denied by the user",
        )
        resolved = self._resolution(entry, answer, by, option_id)
        try:
            self._log.append(
                "approval.resolved",
                resolved.decision,
                turn_id=resolved.turn_id,
                item_id=resolved.item_id,
                held=True,
            )
            await self._log.commit(resolved, *extra)
        except BaseException:
            entry.deciding = None
            if entry.overdue is not None:
                self._close(entry, entry.overdue, {})
            over.set()
            raise
        self._finish(entry, answer, resolved)
        over.set()

    def cancel(self) -> list[str]:
        """Close every open question as cancelled; returns their ids."""
        entries = [entry for entry in self._open.values() if entry.deciding is None]
        for entry in entries:
            self._close(entry, Answer("cancelled", reason="the turn was cancelled"), {})
        return [entry.record.id for entry in entries]

    def _close(self, entry: _Open, answer: Answer, by: Json) -> None:
        resolved = self._resolution(entry, answer, by, None)
        self._log.append(
            "approval.resolved",
            resolved.decision,
            turn_id=resolved.turn_id,
            item_id=resolved.item_id,
        )
        self._store.enqueue((resolved,))
        self._finish(entry, answer, resolved)

    def _finish(self, entry: _Open, answer: Answer, resolved: ApprovalRecord) -> None:
        entry.record, entry.answer, entry.deciding = resolved, answer, None
        self._open.pop(entry.record.id, None)
        self._asker.withdraw(self._log.session_id, entry.record.id)
        entry.done.set()
        self._changed()

    @staticmethod
    def _resolution(
        entry: _Open, answer: Answer, by: Json, option_id: str | None
    ) -> ApprovalRecord:
        now = now_ms()
        decision: dict[str, Any] = {
            "approvalId": entry.record.id,
            "decision": answer.outcome,
            "by": by,
            "at": now,
        }
        if option_id is not None:
            decision["optionId"] = option_id
        if answer.feedback:
            decision["feedback"] = answer.feedback
        return replace(
            entry.record, state="resolved", decision=decision, resolved_at=now
        )
