"""A live session: the single writer of its log, history, turns and questions.

All of it runs on one event loop; a change is made without waiting, and what
must be durable is then committed before anybody is told.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from anyio import CancelScope, Lock

from scv.core.approval import ApprovalDesk
from scv.core.context import ContextLimit, Scale, trim_history
from scv.core.history import Entry, UserEntry
from scv.core.ids import new_id, now_ms
from scv.core.log import EventLog
from scv.core.ports import Asker, Notice, Runtime, TokenUsage
from scv.core.prompt import prompt_text
from scv.core.records import (
    Change,
    HistoryRecord,
    Json,
    OpRecord,
    SessionLock,
    SessionRecord,
    Store,
    TurnRecord,
)
from scv.core.transcript import Transcript
from scv.core.turn import Turn, TurnContext, TurnEnd, duration_ms, run_steps
from scv.core.visible import one_line
from scv.errors import StoreError
from scv.values import frozen
from scv.wire.errors import refuse

logger = logging.getLogger(__name__)

Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], Any]
MakeOp = Callable[[Json], OpRecord]
"""Builds the stored result of the request, to go into the commit of its effect."""


class Equip(Protocol):
    """Builds what a session works with, from its configuration."""

    def __call__(
        self, session: SessionRecord, environment: Mapping[str, str]
    ) -> Runtime:
        """Raise ConfigError when the configuration cannot serve the session."""
        ...


@frozen
class Submitter:
    """The front end behind a request."""

    client_id: str
    name: str


class Session:
    """One live session, owned by this process while `lock` is held."""

    def __init__(
        self,
        record: SessionRecord,
        *,
        store: Store,
        lock: SessionLock,
        equip: Equip,
        asker: Asker,
        spawn: Spawn,
        environment: Mapping[str, str],
        history: list[Entry],
        last_turn: TurnRecord | None = None,
    ) -> None:
        self.record = record
        self.environment = environment
        self.history = history
        self.turn: Turn | None = None
        self.last_turn = last_turn
        self.closed = False
        self._drains = 0
        self._told: set[Notice] = set()
        self._updating = Lock()
        self._positions = len(history)
        self._store = store
        self._lock = lock
        self._equip = equip
        self._spawn = spawn
        self._runtime: Runtime | None = None
        self._scale = Scale()
        self.log = EventLog(
            record.id,
            record.epoch,
            last=record.last_seq,
            ceiling=record.ceiling,
            store=store,
            raise_ceiling=lambda number: replace(self._row(), ceiling=number),
            spawn=spawn,
        )
        self.transcript = Transcript(self.log, store)
        self.desk = ApprovalDesk(self.log, store, asker)

    # --- views ---

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    def state(self) -> str:
        """What a person wants to know at a glance."""
        if self.turn is not None:
            return "needs_approval" if self.desk.pending() else "running"
        if self.last_turn is not None and self.last_turn.status == "failed":
            return "failed"
        return "idle"

    def view(self) -> Json:
        """The session in wire form."""
        return session_view(self._row(), self.state())

    def turn_view(self, turn_id: str | None = None) -> Json | None:
        """The running turn (or the newest), in wire form."""
        if self.turn is not None and turn_id in (None, self.turn.id):
            return turn_view(self._turn_row(self.turn))
        if self.last_turn is not None and turn_id in (None, self.last_turn.id):
            return turn_view(self.last_turn)
        return None

    def runtime(self) -> Runtime:
        """Model, tools and settings as configured now.

        Raises:
            ConfigError: The configuration cannot serve this session.
        """
        if self._runtime is None:
            self._runtime = self._equip(self._row(), self.environment)
        return self._runtime

    # --- acts ---

    async def start_turn(
        self, parts: list[Json], submitter: Submitter, op_id: str, make_op: MakeOp
    ) -> Json:
        """Accept a prompt: returns when it is on disk; the turn runs by itself.

        Raises:
            RequestRefused: 4241 while another turn runs.
            ConfigError: No usable model; nothing is accepted.
            StoreError: It could not be kept; nothing is accepted.
        """
        self._check_open()
        if self.turn is not None:
            raise refuse(
                "session.busy",
                "a turn is running in this session; wait for its end or cancel it",
                turnId=self.turn.id,
            )
        text = prompt_text(parts)
        runtime = self.runtime()
        before = self.record
        turn = Turn(new_id("t"), now_ms(), submitter.client_id)
        self.turn = turn
        self.log.append(
            "turn.accepted", {"owner": submitter.client_id}, turn_id=turn.id, held=True
        )
        item, item_row = self.transcript.add(
            "user_message",
            turn.id,
            held=True,
            parts=parts,
            opId=op_id,
            author={"clientId": submitter.client_id, "name": submitter.name},
        )
        title_changed = not self.record.title
        if title_changed:
            self._set(title=one_line(text, 80), rev=self.record.rev + 1)
        entry = UserEntry(text)
        self.history.append(entry)
        position = self._positions
        self._positions += 1
        result: Json = {
            "outcome": "started",
            "turnId": turn.id,
            "itemId": item["id"],
            "seq": self.log.last,
        }
        self._spawn(lambda: self._run(turn, runtime))
        self._set(updated_at=turn.started_at)
        try:
            await self.log.commit(
                self._row(),
                self._turn_row(turn),
                item_row,
                HistoryRecord(self.id, position, turn.id, entry),
                make_op(result),
            )
        except BaseException:
            turn.refused = True
            turn.scope.cancel()
            turn.accepted.set()
            if title_changed and self.record.rev == before.rev + 1:
                self._set(title=before.title, rev=before.rev)
            await self._forget(turn, entry, position)
            raise
        turn.accepted.set()
        for state in turn.unsaid:
            self.log.append("turn.state", {"state": state}, turn_id=turn.id)
        if title_changed:
            self._announce({"title": self.record.title})
        return result

    async def cancel_turn(self, turn_id: str, reason: str, make_op: MakeOp) -> Json:
        """Stop exactly this turn; answers at once with what is being stopped.

        Raises:
            RequestRefused: 4243 when another turn runs, or none.
        """
        turn = self.turn
        if turn is None or turn.id != turn_id:
            data = {"turnId": turn.id} if turn is not None else {"idle": True}
            raise refuse("turn.not_current", "that turn is not running", **data)
        receipt: Json = {
            "processes": sorted(turn.processes),
            "approvals": [],
            "queueHeld": False,
            "queued": [],
        }
        state = "ended" if turn.state == "ended" else "cancelling"
        result: Json = {"state": state, "receipt": receipt}
        if turn.cancel_reason is None:
            turn.cancel_reason = reason or "cancelled"
            self._set_state(turn, "cancelling")
        turn.scope.cancel()
        receipt["approvals"] = self.desk.cancel()
        try:
            await self.log.commit(make_op(result))
        except StoreError as error:  # the turn is cancelled all the same
            logger.warning("session %s: %s", self.id, error.message)
        return result

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
        """Decide a question of this session; see `ApprovalDesk.answer`."""
        await self.desk.answer(
            approval_id,
            digest=digest,
            option_id=option_id,
            feedback=feedback,
            by=by,
            extra=extra,
        )

    async def update(
        self,
        *,
        title: str | None,
        archived: bool | None,
        config: Json | None,
        if_rev: int | None,
        make_op: MakeOp,
    ) -> Json:
        """Change title, archive mark or configuration.

        Raises:
            RequestRefused: 4242 when `if_rev` is not the current revision.
            ConfigError: The new configuration cannot serve; nothing changes.
        """
        async with self._updating:
            return await self._update(title, archived, config, if_rev, make_op)

    async def _update(
        self,
        title: str | None,
        archived: bool | None,
        config: Json | None,
        if_rev: int | None,
        make_op: MakeOp,
    ) -> Json:
        self._check_open()
        if if_rev is not None and if_rev != self.record.rev:
            raise refuse(
                "rev.conflict",
                "the session was changed meanwhile",
                rev=self.record.rev,
                session=self.view(),
            )
        changed: Json = {}
        if title is not None:
            changed["title"] = one_line(title, 200)
        if archived is not None:
            changed["archived"] = archived
        if config is not None:
            changed["config"] = {**self.record.config, **config}
        fields = {**changed, "rev": self.record.rev + 1, "updated_at": now_ms()}
        row = replace(self._row(), **fields)
        runtime = self._equip(row, self.environment) if config is not None else None
        result = {"session": session_view(row, self.state())}
        self.log.append("session.updated", {"rev": row.rev, **changed}, held=True)
        await self.log.commit(row, make_op(result))
        self._set(**fields)
        if runtime is not None:
            self._runtime = runtime
        return result

    async def drain(self) -> None:
        """Wait for the end of a running turn; from now on no other one starts.

        Cancelling takes that back.
        """
        self._drains += 1
        try:
            if self.turn is not None:
                await self.turn.ended.wait()
        except BaseException:
            self._drains -= 1
            raise

    async def close(self, *changes: Change) -> None:
        """End a running turn, put everything on disk, give the session up.

        Raises:
            StoreError: The final numbers and `changes` could not be kept.
        """
        self.closed = True
        await self.end_turn("closed")
        await self._release(*changes)

    async def end_turn(self, reason: str) -> None:
        """Cancel a running turn and wait for its end."""
        turn = self.turn
        if turn is not None:
            if turn.cancel_reason is None:
                turn.cancel_reason = reason
                self._set_state(turn, "cancelling")
            turn.scope.cancel()
            self.desk.cancel()
            await turn.ended.wait()

    def use_environment(self, environment: Mapping[str, str]) -> None:
        """Give commands these variables, from the next turn on."""
        if environment != self.environment:
            self.environment = environment
            self._runtime = None

    # --- inside ---

    async def _release(self, *changes: Change) -> None:
        """Write the final numbers and free the lock."""
        self.log.flush_delta()
        final = replace(self._row(), ceiling=self.log.last)
        try:
            await self._store.commit((final, *changes))
        finally:
            self._lock.release()

    def _check_open(self) -> None:
        if self.closed:
            raise refuse("session.not_found", "the session is closed; attach again")
        if self._drains:
            raise refuse(
                "draining",
                "the session closes when its turn has ended; attach again then",
            )

    def _set(self, **fields: Any) -> None:
        self.record = replace(self.record, **fields)

    def _row(self) -> SessionRecord:
        return replace(self.record, last_seq=self.log.last, ceiling=self.log.ceiling)

    def _announce(self, changed: Json, *, held: bool = False) -> None:
        self.log.append(
            "session.updated", {"rev": self.record.rev, **changed}, held=held
        )

    def _turn_row(self, turn: Turn) -> TurnRecord:
        end = turn.end if turn.state == "ended" else None
        return TurnRecord(
            turn.id,
            self.id,
            turn.state,
            turn.started_at,
            turn.owner,
            status=end.status if end else None,
            stop_reason=end.stop_reason if end else None,
            ended_at=now_ms() if end else None,
            error=end.error if end else None,
            usage=turn.usage,
        )

    def _set_state(self, turn: Turn, state: str) -> None:
        if turn.refused or turn.state in (state, "cancelling", "ended"):
            return
        turn.state = state
        if turn.accepted.is_set():
            self.log.append("turn.state", {"state": state}, turn_id=turn.id)
        else:
            turn.unsaid.append(state)

    def _remember(self, entry: Entry, turn_id: str) -> None:
        self.history.append(entry)
        self._store.enqueue((HistoryRecord(self.id, self._positions, turn_id, entry),))
        self._positions += 1

    def _used(self, turn: Turn, usage: TokenUsage | None, estimate: int) -> None:
        size = self.runtime().settings.context.max_tokens
        total = {**self.record.usage, "contextUsed": estimate, "contextSize": size}
        if usage is not None:
            for name, value in (
                ("inputTokens", usage.input_tokens),
                ("outputTokens", usage.output_tokens),
                ("cachedTokens", usage.cached_tokens),
                ("reasoningTokens", usage.reasoning_tokens),
            ):
                total[name] = total.get(name, 0) + value
                turn.usage[name] = turn.usage.get(name, 0) + value
            total["contextUsed"] = usage.input_tokens + usage.output_tokens
        self._set(usage=total)
        self.log.append("usage.updated", {"usage": total}, turn_id=turn.id)

    async def _run(self, turn: Turn, runtime: Runtime) -> None:
        """The turn's own task: ends the turn exactly once."""
        end = TurnEnd("cancelled", "cancelled")
        try:
            with turn.scope:
                self._set_state(turn, "preparing")
                await self._tell(turn, runtime.notices)
                await self._trim(turn, runtime)
                end = await run_steps(turn, self._context())
        except ContextLimit as error:
            end = _failed("history_limit", error.message)
        except Exception:
            logger.exception("turn %s failed (session %s)", turn.id, self.id)
            end = _failed(
                "internal_error",
                "SCV failed inside; its log says why. The session can go on.",
            )
        finally:  # also when the whole server is cancelled from outside
            if turn.cancel_reason and end.status == "cancelled":
                end = replace(end, stop_reason=turn.cancel_reason)
            with CancelScope(shield=True):
                await self._end(turn, end)

    async def _forget(self, turn: Turn, entry: Entry, position: int) -> None:
        """Undo a turn whose prompt could not be kept."""
        with CancelScope(shield=True):
            await turn.ended.wait()
        if self.history and self.history[-1] is entry:
            del self.history[-1]
        self._positions = position
        self.turn = None

    async def _end(self, turn: Turn, end: TurnEnd) -> None:
        await turn.accepted.wait()
        if turn.refused:
            turn.ended.set()
            return
        turn.end = end
        turn.state = "ended"
        data: Json = {
            "status": end.status,
            "stopReason": end.stop_reason,
            "usage": turn.usage,
            "durationMs": duration_ms(turn),
        }
        if end.error is not None:
            data["error"] = end.error
        row = self._turn_row(turn)
        self._set(updated_at=now_ms())
        self.log.append("turn.ended", data, turn_id=turn.id, held=True)
        try:
            await self.log.commit(self._row(), row)
        except Exception as error:
            # the end must still be told, and is kept as soon as the disk takes it
            logger.error("session %s: end of turn not synced: %s", self.id, error)
            self.log.append("turn.ended", data, turn_id=turn.id)
            self._store.enqueue((row, self._row()))
        finally:  # whoever waits for the end finds it told and the session free
            self.last_turn = row
            self.turn = None
            turn.ended.set()

    async def _tell(self, turn: Turn, notices: tuple[Notice, ...]) -> None:
        """Write each notice once in the life of this session."""
        for notice in notices:
            if notice not in self._told:
                await turn.until_kept()
                self._told.add(notice)
                self.transcript.add(
                    "notice", turn.id, code=notice.code, message=notice.message
                )

    async def _trim(self, turn: Turn, runtime: Runtime) -> None:
        limits = runtime.settings.session
        self.history, removed = trim_history(
            self.history,
            max_messages=limits.max_messages,
            max_bytes=limits.max_history_bytes,
            note_chars=runtime.settings.context.summary_max_chars,
            scale=self._scale,
        )
        if removed:
            await turn.until_kept()
            self.transcript.add(
                "notice",
                turn.id,
                code="history.trimmed",
                message=f"{removed} old messages left the model's history",
            )

    def _context(self) -> TurnContext:
        return TurnContext(
            session_id=self.id,
            workspace=self.record.root,
            runtime=self.runtime,
            log=self.log,
            store=self._store,
            transcript=self.transcript,
            desk=self.desk,
            scale=self._scale,
            history=self.history,
            remember=self._remember,
            set_state=self._set_state,
            used=self._used,
        )


def _failed(code: str, message: str) -> TurnEnd:
    return TurnEnd(
        "failed", code, {"code": code, "message": message, "retryable": False}
    )


def session_view(record: SessionRecord, state: str) -> Json:
    """A session in wire form."""
    workspace: Json = {"root": record.root}
    if record.folders:
        workspace["folders"] = list(record.folders)
    view: Json = {
        "id": record.id,
        "title": record.title,
        "workspace": workspace,
        "state": state,
        "createdAt": record.created_at,
        "updatedAt": record.updated_at,
        "config": record.config,
        "rev": record.rev,
        "epoch": record.epoch,
        "lastSeq": record.last_seq,
        "usage": record.usage,
    }
    if record.archived:
        view["archived"] = True
    if record.parent:
        view["parent"] = record.parent
    if record.channel:
        view["channel"] = record.channel
    return view


def turn_view(row: TurnRecord) -> Json:
    """A turn in wire form."""
    view: Json = {
        "id": row.id,
        "sessionId": row.session_id,
        "state": row.state,
        "startedAt": row.started_at,
        "usage": row.usage,
    }
    for name, value in (
        ("status", row.status),
        ("stopReason", row.stop_reason),
        ("endedAt", row.ended_at),
        ("error", row.error),
        ("owner", row.owner),
    ):
        if value is not None:
            view[name] = value
    return view
