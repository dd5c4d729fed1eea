"""A live session: the single writer of its log, history, turns and questions.

All of it runs on one event loop; a change is made without waiting, and what
must be durable is then committed before anybody is told.
"""

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from anyio import CancelScope, Lock

from scv.core.approval import ApprovalDesk
from scv.core.branch import Cut
from scv.core.compaction import summarize, visible
from scv.core.context import ContextLimit, Scale, tokens_of, trim_history
from scv.core.history import Entry, NoteEntry, UserEntry
from scv.core.ids import new_id, now_ms
from scv.core.log import EventLog
from scv.core.ports import Asker, Notice, Runtime, TokenUsage
from scv.core.prompt import prompt_text
from scv.core.queue import PromptQueue, Waiting, waiting_from_item
from scv.core.records import (
    Change,
    HistoryCut,
    HistoryRecord,
    ItemsCut,
    Json,
    OpRecord,
    QueueRecord,
    SessionLock,
    SessionRecord,
    Store,
    TurnRecord,
)
from scv.core.transcript import Transcript
from scv.core.turn import Turn, TurnContext, TurnEnd, duration_ms, run_steps
from scv.core.views import attention_of, session_view, turn_view
from scv.core.visible import one_line
from scv.errors import ProviderError, RequestRefused, ScvError, StoreError
from scv.values import frozen
from scv.wire.errors import refuse
from scv.wire.limits import EVENT_NUMBER_BLOCK

logger = logging.getLogger(__name__)

Work = Callable[[Turn, Runtime], Coroutine[Any, Any, TurnEnd]]
"""What a turn does."""
Spawn = Callable[[Callable[[], Coroutine[Any, Any, None]]], Any]
RETRYABLE = ("failed", "interrupted", "cancelled", "limited")
RETRY_NOTE = "The last attempt ended early. Go on from what is above."
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

    def author(self) -> Json:
        """Name it in an item."""
        return {"clientId": self.client_id, "name": self.name}


@frozen
class _Opening:
    """A turn that has begun and is not on disk yet."""

    turn: Turn
    entry: Entry | None
    title: str
    rows: list[Change]
    result: Json


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
        changed: Callable[["Session"], None],
        environment: Mapping[str, str],
        history: Sequence[Entry],
        last_turn: TurnRecord | None = None,
        queue: QueueRecord | None = None,
    ) -> None:
        self.record = record
        self.environment = environment
        self.history = visible(history)
        self.turn: Turn | None = None
        self.last_turn = last_turn
        self.closed = False
        self.queue = PromptQueue(record.id, queue)
        self._steers: dict[str, Json] = {}
        self._drains = 0
        self._told: set[Notice] = set()
        self._updating = Lock()
        self._queueing = Lock()
        self._positions = len(history)
        self._store = store
        self._lock = lock
        self._equip = equip
        self._spawn = spawn
        self._changed = changed
        self._runtime: Runtime | None = None
        self._scale = Scale()
        self._asker = asker
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        record = self.record
        self.log = EventLog(
            record.id,
            record.epoch,
            last=record.last_seq,
            ceiling=record.ceiling,
            store=self._store,
            raise_ceiling=lambda number: replace(self._row(), ceiling=number),
            spawn=self._spawn,
        )
        self.transcript = Transcript(self.log, self._store, base=record.base)
        self.desk = ApprovalDesk(self.log, self._store, self._asker, self._mark)

    # --- views ---

    @property
    def id(self) -> str:
        """The session's id."""
        return self.record.id

    def state(self) -> str:
        """What a person wants to know at a glance."""
        if self.turn is not None:
            return "needs_approval" if self.desk.pending() else "running"
        if self.queue.held and len(self.queue):
            return "held"
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
        opening = self._open_turn(parts, submitter.author(), op_id)
        result = {"outcome": "started", **opening.result, "seq": self.log.last}
        await self._keep(opening, make_op(result))
        return result

    async def queue_prompt(
        self, parts: list[Json], submitter: Submitter, op_id: str, make_op: MakeOp
    ) -> Json:
        """Append a prompt to the queue; it starts at once when nothing else does.

        Raises:
            RequestRefused: 4262, the queue is full.
            StoreError: It could not be kept; nothing is accepted.
        """

        def add(queue: PromptQueue) -> Json:
            entry = queue.add(parts, op_id=op_id, submitter=submitter.author())
            return {"outcome": "queued", "queueId": entry.id, "seq": self.log.last}

        return await self.change_queue(add, make_op)

    async def change_queue(
        self, act: Callable[[PromptQueue], Json], make_op: MakeOp
    ) -> Json:
        """Change the queue, keep and tell it, and start what may run now.

        `act` makes the change and builds the result; what it raises goes up.

        Raises:
            StoreError: The change could not be kept; the queue is as it was.
        """
        async with self._queueing:
            self._check_open()
            restore, before = self.queue.snapshot(), self.queue.rev
            result = act(self.queue)
            after = self.queue.rev
            if after != before:
                self._tell_queue(held=True)
            try:
                await self.log.commit(self.queue.record(), make_op(result))
            except BaseException:
                if self.queue.rev == after:
                    restore()
                raise
        self._start_next()
        return result

    async def promote(self, queue_id: str, where: str, make_op: MakeOp) -> Json:
        """Move a waiting prompt to the head (`next`) or into the turn (`steer`).

        Raises:
            RequestRefused: 4202, it does not wait any more.
        """
        turn = self.turn
        if where == "next" or turn is None:

            def to_head(queue: PromptQueue) -> Json:
                entry = queue.remove(queue_id)
                queue.put_first([entry])
                if where == "steer":
                    queue.hold(False)
                return {"outcome": "next" if where == "next" else "started"}

            return await self.change_queue(to_head, make_op)
        steered: list[Json] = []

        def into_turn(queue: PromptQueue) -> Json:
            entry = queue.remove(queue_id)
            item = self.transcript.start(
                "user_message",
                turn.id,
                status="pending",
                parts=entry.parts,
                opId=entry.op_id,
                author=entry.submitter,
            )
            self._steers[item["id"]] = item
            steered.append(item)
            self.log.append("steer.pending", {}, turn_id=turn.id, item_id=item["id"])
            return {"outcome": "steered", "turnId": turn.id, "itemId": item["id"]}

        try:
            return await self.change_queue(into_turn, make_op)
        except StoreError:
            for item in steered:
                if self._steers.pop(item["id"], None) is not None:
                    self.transcript.complete(item, "cancelled")
            raise

    async def steer(
        self,
        turn_id: str | None,
        parts: list[Json],
        submitter: Submitter,
        op_id: str,
        make_op: MakeOp,
    ) -> Json:
        """Say something to the running turn; returns when it is on disk.

        Raises:
            RequestRefused: 4243 when that turn is not running.
            StoreError: It could not be kept; nothing is accepted.
        """
        self._check_open()
        turn = self.turn
        if turn is None or turn_id not in (None, turn.id) or turn.is_ending:
            raise self._not_current()
        prompt_text(parts)
        item = self.transcript.start(
            "user_message",
            turn.id,
            status="pending",
            parts=parts,
            opId=op_id,
            author=submitter.author(),
        )
        self._steers[item["id"]] = item
        self.log.append("steer.pending", {}, turn_id=turn.id, item_id=item["id"])
        result = {"outcome": "pending", "itemId": item["id"], "turnId": turn.id}
        try:
            await self.log.commit(make_op(result))
        except BaseException:
            if self._steers.pop(item["id"], None) is not None:
                self.transcript.complete(item, "cancelled")
            raise
        return result

    async def retract_steer(self, item_id: str, make_op: MakeOp) -> Json:
        """Take a steer back; false when the model has it already."""
        self._check_open()
        item = self._steers.pop(item_id, None)
        if item is not None:
            self.log.append(
                "steer.retracted", {}, turn_id=item["turnId"], item_id=item_id
            )
            self.transcript.complete(item, "cancelled")
        result = {"retracted": item is not None}
        await self.log.commit(make_op(result))
        return result

    async def retry_turn(
        self, turn_id: str, submitter: Submitter, make_op: MakeOp
    ) -> Json:
        """Go on after the newest turn failed or was interrupted.

        Raises:
            RequestRefused: 4241 while a turn runs, 4243 when the newest turn is
                another one or ended in another way.
        """
        self._check_open()
        last = self.last_turn
        if self.turn is not None:
            raise refuse("session.busy", "a turn is running", turnId=self.turn.id)
        if last is None or last.id != turn_id or last.status not in RETRYABLE:
            raise refuse(
                "turn.not_current",
                "only the newest turn can be tried again, when it failed or was"
                " interrupted",
                idle=True,
            )
        opening = self._open_turn(None, submitter.author(), "")
        result = {"turnId": opening.turn.id}
        await self._keep(opening, make_op(result))
        return result

    async def compact(
        self, instructions: str, submitter: Submitter, make_op: MakeOp
    ) -> Json:
        """Let the model summarise the conversation, as a turn.

        Raises:
            RequestRefused: 4241 while a turn runs.
        """
        self._check_open()
        if self.turn is not None:
            raise refuse("session.busy", "a turn is running", turnId=self.turn.id)
        opening = self._open_turn(
            None,
            submitter.author(),
            "",
            work=lambda turn, runtime: self._compact(turn, runtime, instructions),
        )
        result = {"turnId": opening.turn.id}
        await self._keep(opening, make_op(result))
        return result

    async def rewind(
        self, cut: Cut, *, epoch: str, previous: str, op: OpRecord
    ) -> None:
        """Go back to a cut: a new epoch whose first event says so.

        `previous` is the session that keeps the old branch. No turn may be
        running; whoever follows must follow the new log.

        Raises:
            StoreError: It could not be kept; nothing changed.
        """
        old = self.log
        row = replace(
            self._row(),
            epoch=epoch,
            base=cut.seq,
            last_seq=0,
            ceiling=EVENT_NUMBER_BLOCK,
            updated_at=now_ms(),
            ended=0,
            seen=0,
        )
        entries = [entry for _, entry in await self._store.history(self.id)]
        await self._store.commit(
            (ItemsCut(self.id, cut.seq), HistoryCut(self.id, cut.position), row, op)
        )
        old.close()
        self.record = row
        self.history = visible(entries[: cut.position])
        self._positions = cut.position
        self._begin_epoch()
        self.last_turn = await self._store.newest_turn(self.id)
        self.log.append(
            "session.reset",
            {
                "previousEpoch": old.epoch,
                "reason": "rewind",
                "keptThrough": cut.items[-1].id if cut.items else None,
                "forkId": previous,
            },
        )
        self._mark()

    async def mark_seen(self, up_to: int) -> None:
        """Note that somebody has seen the session up to an event."""
        if up_to > self.record.seen:
            self._set(seen=min(up_to, self.log.last))
            await self._store.commit((self._row(),))
            self._mark()

    def attention(self) -> tuple[str, int] | None:
        """Why the session wants somebody, and since when; None when it does not."""
        pending = self.desk.pending()
        if pending:
            attended = any(
                map(self._asker.is_attended, (p["approvalId"] for p in pending))
            )
            return "approval" if attended else "unattended", pending[0]["createdAt"]
        return attention_of(self.record, self.last_turn) if self.turn is None else None

    async def cancel_tool(self, item_id: str, make_op: MakeOp) -> Json:
        """Stop one call; the turn goes on with a cancelled result.

        Raises:
            RequestRefused: 4202, that call is not running.
        """
        scope = self.turn.calls.get(item_id) if self.turn is not None else None
        if scope is None:
            raise refuse("object.not_found", "no such call is running")
        scope.cancel()
        await self.log.commit(make_op({}))
        return {}

    async def cancel_turn(
        self, turn_id: str, reason: str, make_op: MakeOp, *, queue: str = "hold"
    ) -> Json:
        """Stop exactly this turn; answers at once with what is being stopped.

        Args:
            queue: `hold`, `keep` or `clear`: what becomes of waiting prompts.

        Raises:
            RequestRefused: 4243 when another turn runs, or none.
        """
        turn = self.turn
        if turn is None or turn.id != turn_id:
            raise self._not_current()
        receipt: Json = {
            "processes": sorted(turn.processes),
            "approvals": [],
            "steers": list(self._steers),
            "queueHeld": queue == "hold",
            "queued": [] if queue == "clear" else self.queue.ids,
        }
        state = "ended" if turn.state == "ended" else "cancelling"
        result: Json = {"state": state, "receipt": receipt}
        if turn.cancel_reason is None:
            turn.cancel_reason = reason or "cancelled"
            turn.queue_after = queue
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
        self._mark()
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

    # --- inside ---

    def _open_turn(
        self,
        parts: list[Json] | None,
        author: Json,
        op_id: str,
        *,
        work: Work | None = None,
    ) -> "_Opening":
        """Begin a turn at once; without `parts` it goes on from the history.

        `work` is what it does instead of asking the model about a prompt.
        Nothing of it is told before `_keep` has put it on disk.
        """
        text = prompt_text(parts) if parts is not None else ""
        runtime = self.runtime()
        turn = Turn(new_id("t"), now_ms(), author["clientId"])
        self.turn = turn
        self.log.append(
            "turn.accepted", {"owner": turn.owner}, turn_id=turn.id, held=True
        )
        rows: list[Change] = []
        result: Json = {"turnId": turn.id}
        entry: Entry | None = NoteEntry(RETRY_NOTE) if work is None else None
        title = self.record.title
        if parts is not None:
            item, row = self.transcript.add(
                "user_message",
                turn.id,
                held=True,
                parts=parts,
                opId=op_id,
                author=author,
            )
            rows.append(row)
            result["itemId"] = item["id"]
            entry = UserEntry(text)
            title = title or one_line(text, 80)
        if entry is not None:
            self.history.append(entry)
            rows.append(HistoryRecord(self.id, self._positions, turn.id, entry))
            self._positions += 1
        self._spawn(lambda: self._run(turn, runtime, work or self._converse))
        self._set(updated_at=turn.started_at)
        self._mark()
        return _Opening(turn, entry, title, rows, result)

    async def _keep(self, opening: "_Opening", *changes: Change) -> None:
        """Put a turn's beginning on disk and let it be told; else it never was.

        Raises:
            StoreError: It could not be kept.
        """
        turn = opening.turn
        title_changed = opening.title != self.record.title
        row = self._row()
        if title_changed:
            row = replace(row, title=opening.title, rev=row.rev + 1)
        try:
            await self.log.commit(row, self._turn_row(turn), *opening.rows, *changes)
        except BaseException:
            turn.refused = True
            turn.scope.cancel()
            turn.accepted.set()
            await self._forget(turn, opening.entry)
            raise
        turn.accepted.set()
        for state in turn.unsaid:
            self.log.append("turn.state", {"state": state}, turn_id=turn.id)
        if title_changed:
            self._set(title=opening.title, rev=row.rev)
            self._announce({"title": opening.title})

    def _start_next(self) -> None:
        """Start the first waiting prompt when nothing runs; never waits."""
        if self.turn is not None or self.closed:
            return
        entry = self.queue.take()
        if entry is None:
            return
        try:
            opening = self._open_turn(entry.parts, entry.submitter, entry.op_id)
        except ScvError as error:
            self._put_back(entry, error.message)
            return
        self._tell_queue()
        self._spawn(lambda: self._keep_waiting(entry, opening))

    async def _keep_waiting(self, entry: Waiting, opening: "_Opening") -> None:
        try:
            await self._keep(opening, self.queue.record())
        except StoreError as error:
            self._put_back(entry, error.message)

    def _put_back(self, entry: Waiting, problem: str) -> None:
        """A waiting prompt could not start: it stays first, and the queue is held."""
        self.queue.put_first([entry])
        self.queue.hold(True)
        self._tell_queue()
        self._store.enqueue((self.queue.record(),))
        self.log.append("notice", {"code": "queue.held", "message": problem})

    def _tell_queue(self, *, held: bool = False) -> None:
        self._mark()
        self.log.append("queue.changed", self.queue.view(), held=held)

    def _not_current(self) -> RequestRefused:
        data = {"turnId": self.turn.id} if self.turn is not None else {"idle": True}
        return refuse("turn.not_current", "that turn is not running", **data)

    def _deliver(self, turn: Turn) -> bool:
        """Give the model the steers that wait; False when there are none."""
        steers = list(self._steers.values())
        self._steers.clear()
        for item in steers:
            self.transcript.complete(item, "completed")
            self.log.append("steer.delivered", {}, turn_id=turn.id, item_id=item["id"])
            self._remember(UserEntry(prompt_text(item["parts"])), turn.id)
        return bool(steers)

    def _settle_queue(self, turn: Turn, end: TurnEnd) -> None:
        """After a turn: steers the model never got wait first; stop means stop."""
        requeued = []
        for item in self._steers.values():
            waiting = waiting_from_item(item)
            requeued.append(waiting)
            self.log.append(
                "steer.requeued",
                {"queueId": waiting.id},
                turn_id=turn.id,
                item_id=item["id"],
            )
            self.transcript.complete(item, "cancelled")
        self._steers.clear()
        before = self.queue.rev
        if requeued:
            self.queue.put_first(requeued)
        if turn.queue_after == "clear" and len(self.queue):
            self.queue.clear()
        stopped = end.status in ("cancelled", "failed") and turn.queue_after == "hold"
        if stopped and len(self.queue):
            self.queue.hold(True)
        if self.queue.rev != before:
            self._tell_queue()
            self._store.enqueue((self.queue.record(),))

    def _mark(self) -> None:
        """Something changed that session lists show."""
        self._changed(self)

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

    async def _run(self, turn: Turn, runtime: Runtime, work: "Work") -> None:
        """The turn's own task: ends the turn exactly once."""
        end = TurnEnd("cancelled", "cancelled")
        try:
            with turn.scope:
                self._set_state(turn, "preparing")
                await self._tell(turn, runtime.notices)
                end = await work(turn, runtime)
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

    async def _converse(self, turn: Turn, runtime: Runtime) -> TurnEnd:
        await self._trim(turn, runtime)
        return await run_steps(turn, self._context())

    async def _compact(
        self, turn: Turn, runtime: Runtime, instructions: str
    ) -> TurnEnd:
        """Put the model's summary in the place of what it saw so far."""
        await turn.until_kept()
        divisor = runtime.settings.context.bytes_per_token
        before = sum(tokens_of(self._scale.sizes(self.history), divisor))
        self._set_state(turn, "model")
        try:
            summary, done = await summarize(
                runtime, self.history, instructions, self.id
            )
        except ProviderError as error:
            return TurnEnd(
                "failed",
                error.code,
                {"code": error.code, "message": error.message, "retryable": True},
            )
        self._used(turn, done.usage, before)
        removed = len(self.history)
        note = NoteEntry(summary.text)
        self._remember(summary, turn.id)
        self.history[:] = [note]
        self.transcript.add(
            "compaction",
            turn.id,
            beforeTokens=before,
            afterTokens=sum(tokens_of(self._scale.sizes([note]), divisor)),
            removed=removed,
        )
        return TurnEnd("completed", "end")

    async def _forget(self, turn: Turn, entry: Entry | None) -> None:
        """Undo a turn whose prompt could not be kept."""
        with CancelScope(shield=True):
            await turn.ended.wait()
        if entry is not None and self.history and self.history[-1] is entry:
            del self.history[-1]
            self._positions -= 1
        self.turn = None

    async def _end(self, turn: Turn, end: TurnEnd) -> None:
        await turn.accepted.wait()
        if turn.refused:
            turn.ended.set()
            return
        turn.is_ending = True
        self._settle_queue(turn, end)
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
        number = self.log.append("turn.ended", data, turn_id=turn.id, held=True)
        self._set(updated_at=now_ms(), ended=number)
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
            self._start_next()
            self._mark()

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
            deliver=self._deliver,
        )


def _failed(code: str, message: str) -> TurnEnd:
    return TurnEnd(
        "failed", code, {"code": code, "message": message, "retryable": False}
    )
