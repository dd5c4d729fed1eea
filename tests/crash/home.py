"""One home whose servers die, and the client that remembers all it was told.

A life is one server: it starts, the client connects and looks at what the last
death left, a scene is played, and the server is killed in it. What was answered,
asked, allowed and seen is kept here, outside, and held against the next server.
"""

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from scv.errors import ConnectionLost
from scv.rpc import RemoteError
from tests.conftest import processes_of
from tests.crash.ledger import Ledger, check_against_log, check_numbers, read_log
from tests.crash.servers import kill_at_sync
from tests.crash.story import Answer, Teller, say, text_input
from tests.server.follower import FINAL
from tests.server.kit import HOLD, Place, Question, Scv, Session, talk

Json = dict[str, Any]
Find = Callable[[Json], Any]
WAIT_SECONDS = 30.0
EXPIRED, UNKNOWN, LOST_NUMBERS = 4247, 4202, 4244
_LINE = re.compile(r"echo (\S+) >> lines")


class Death(Exception):
    """The server died; what was under way is for the next life to find."""


@dataclass
class Prompt:
    """A prompt, what was answered, and how its turn was seen to end."""

    tag: str
    params: Json
    reply: Json | None = None
    ended: Json | None = None
    is_held: bool = False
    """Its turn cannot have ended before the death."""
    earlier: frozenset[str] = frozenset()
    """Turns of its session that were known before it."""

    @property
    def session_id(self) -> str:
        return str(self.params["sessionId"])


@dataclass
class Answering:
    """An answer to a question that was given by its own request."""

    params: Json
    reply: Json | None = None


@dataclass
class Home:
    """Everything that outlives a server."""

    place: Place
    teller: Teller
    dice: random.Random
    deaths: Counter[str] = field(default_factory=Counter)
    """Kills by the state of the turn, as the client had last heard."""
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    closed_ledgers: list[Ledger] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    creations: dict[str, Json | None] = field(default_factory=dict)
    unresolved: list[Prompt] = field(default_factory=list)
    answers: list[Answering] = field(default_factory=list)
    questions: list[Json] = field(default_factory=list)
    """Asked and never answered when the server died."""
    allowed: set[str] = field(default_factory=set)
    """Lines that a yes was given for."""
    denied: set[str] = field(default_factory=set)
    """Questions that a no was given to."""
    titles: dict[str, str] = field(default_factory=dict)
    """Newest titles whose change was answered."""
    resets: int = 0
    _tasks: TaskGroup = field(init=False)
    _numbers: Any = field(default_factory=lambda: count(1))

    # --- lives ---

    async def live(
        self,
        scene: Callable[["Home", Scv], Awaitable[str | None]],
        *,
        sync: int | None = None,
    ) -> None:
        """Start a server, look at what the last one left, play, and kill it.

        `scene` returns what to call the state, None for that of the newest turn.
        With `sync` the server is killed at its sync of that number, wherever it is.
        """
        if sync is None:
            running = self.place.start()
        else:
            running = kill_at_sync(self.place, sync)
        name: str | None = None
        is_at_sync = False
        newest = len(self.prompts)
        try:
            async with talk(running, HOLD) as (scv, _):
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    try:
                        await self.connect(scv)
                        await self.look(scv)
                        name = await scene(self, scv)
                    except (Death, ConnectionLost):
                        assert sync is not None, running.stderr()
                        is_at_sync = True
                    except AssertionError:
                        if sync is None or not scv.closed.is_set():
                            raise
                        is_at_sync = True
                    running.process.kill()
                    with anyio.fail_after(WAIT_SECONDS):
                        await scv.closed.wait()  # all that it had sent is read
                    tasks.cancel_scope.cancel()
                self._remember(scv, newest)
                assert not scv.problems, scv.problems
            assert running.process.wait() == -9, running.stderr()
            assert "Traceback" not in running.stderr(), running.stderr()
        finally:
            running.kill()
        state = name or self._state(newest)
        self.deaths[f"{state}, at a sync" if is_at_sync else state] += 1
        self.teller.release()

    async def end_well(self) -> None:
        """Look a last time, show that every session works, compare with all logs."""
        self.place.model.on_request = self.teller.answer
        async with self.place.server(HOLD, shake_hands=False) as scv:
            await self.connect(scv)
            await self.look(scv)
            for session_id, ledger in self.ledgers.items():
                prompt = await self.begin(scv, session_id, [say("all is well")])
                assert (await self.end(scv, prompt))["status"] == "completed"
                log = await read_log(scv, session_id, str(ledger.epoch))
                every = [x for x in self.closed_ledgers if x.session_id == session_id]
                for each in (*every, ledger):
                    check_against_log(each, log)
                check_numbers([*every, ledger])
                self._check_ends(session_id, list(log.events.values()))
        assert not self.teller.problems, self.teller.problems
        self.teller.release()
        self.teller.close()
        await _are_gone(self.place)
        self.check_lines()

    # --- what a scene does ---

    async def begin(
        self,
        scv: Scv,
        session_id: str,
        story: Sequence[Answer],
        *,
        tag: str = "",
        held: bool = False,
        wait: bool = True,
    ) -> Prompt:
        """Send a prompt; returns when it is accepted, or at once without `wait`."""
        tag = tag or self.next_tag()
        self.teller.stories[tag] = list(story)
        params = {
            "opId": f"op-{tag}",
            "sessionId": session_id,
            "input": text_input(tag),
        }
        prompt = Prompt(tag, params, is_held=held, earlier=self._turns(session_id))
        self.prompts.append(prompt)
        self.unresolved.append(prompt)

        async def send() -> None:
            prompt.reply = await scv.call("turn/start", **params)

        if wait:
            await send()
        else:
            self._tasks.start_soon(_till_death, send)
        return prompt

    def next_tag(self) -> str:
        """Make the text of a new prompt."""
        return f"P{next(self._numbers)}"

    async def create(self, scv: Scv) -> str:
        """Start a session, and follow it from its first event."""
        op_id = f"op-S{next(self._numbers)}"
        self.creations[op_id] = None
        await self._create(scv, op_id)
        result = self.creations[op_id]
        assert result is not None
        return str(result["session"]["id"])

    async def pick(self, scv: Scv) -> str:
        """Choose a session, old or new."""
        if self.ledgers and self.dice.random() < 0.7:
            return self.dice.choice(list(self.ledgers))
        return await self.create(scv)

    async def event(self, scv: Scv, prompt: Prompt, find: Find) -> Json:
        """Wait for an event of a prompt's turn."""

        def look() -> Any:
            events = self.ledgers[prompt.session_id].events
            return next((e for e in events if self._is_of(prompt, e) and find(e)), None)

        event: Json = await until(scv, look)
        return event

    async def state(self, scv: Scv, prompt: Prompt, state: str) -> None:
        """Wait until a turn has been in a state."""
        await self.event(scv, prompt, lambda e: e["data"].get("state") == state)

    async def end(self, scv: Scv, prompt: Prompt) -> Json:
        """Wait for the end of a prompt's turn; returns its data."""
        event = await self.event(scv, prompt, lambda e: e["type"] == "turn.ended")
        data: Json = event["data"]
        return data

    def is_over(self, prompt: Prompt) -> bool:
        """Tell whether the end of a prompt's turn was seen."""
        return any(
            event["type"] == "turn.ended" and self._is_of(prompt, event)
            for event in self.ledgers[prompt.session_id].events
        )

    async def question(self, scv: Scv, number: int = 0) -> Question:
        """Wait for the question of this number in this life."""
        await until(scv, lambda: len(scv.questions) > number)
        return scv.questions[number]

    def allow(self, approval: Json) -> Json:
        """Note that a command may run from now on, and build the decision."""
        found = _LINE.search(approval["subject"]["command"])
        assert found is not None
        self.allowed.add(found[1])
        return {"optionId": "once", "digest": approval["digest"]}

    async def allow_all(self, question: Question) -> Json:
        """Answer a question with yes, as a front end's `answer`."""
        return self.allow(question.approval)

    async def deny(self, question: Question) -> Json:
        """Answer a question with no, as a front end's `answer`."""
        self.denied.add(question.approval["approvalId"])
        return question.decision("deny")

    def send(self, scv: Scv, answering: Answering) -> None:
        """Give an answer without waiting for what comes of it."""

        async def send() -> None:
            answering.reply = await scv.call("approval/answer", **answering.params)

        self._tasks.start_soon(_till_death, send)

    def click(self, question: Question) -> Answering:
        """Build the request that allows a question."""
        number = next(self._numbers)
        approval_id = question.approval["approvalId"]
        answering = Answering(
            {
                "opId": f"op-A{number}",
                "approvalId": approval_id,
                **self.allow(question.approval),
            }
        )
        self.answers.append(answering)
        return answering

    # --- what the next server must show ---

    async def connect(self, scv: Scv) -> None:
        """Come back to every session: some by the handshake, the others by attach."""
        by_handshake = [x for x in self.ledgers if self.dice.random() < 0.5]
        points = [
            {"sessionId": x, "epoch": self.ledgers[x].epoch, "after": ledger.last}
            for x, ledger in self.ledgers.items()
            if x in by_handshake
        ]
        try:
            handshake = await scv.initialize(resume=points)
        except ConnectionLost:
            raise Death from None
        scv.root = self.place.workspace
        scv.followers.update({x: self.ledgers[x] for x in by_handshake})
        for told in handshake["resumed"]:
            session_id = told["sessionId"]
            ledger = self.ledgers[session_id]
            assert told["status"] in ("current", "replaying", "reset"), told
            if told["status"] == "reset":
                await self._start_over(scv, session_id, told["epoch"], told["lastSeq"])
            else:
                assert told["epoch"] == ledger.epoch
        for session_id, ledger in list(self.ledgers.items()):
            if session_id in by_handshake:
                continue
            scv.followers[session_id] = ledger
            point = {"epoch": ledger.epoch, "after": ledger.last}
            refusal = await _refusal(
                scv, "session/attach", sessionId=session_id, **point
            )
            if refusal is not None:
                assert refusal.code == LOST_NUMBERS, refusal
                data = refusal.data
                assert isinstance(data, dict)
                await self._start_over(scv, session_id, data["epoch"], data["lastSeq"])

    async def look(self, scv: Scv) -> None:
        """Hold the server against everything that was answered before the death."""
        for op_id, created in list(self.creations.items()):
            if created is None or self.dice.random() < 0.2:
                await self._create(scv, op_id)
        for session_id, ledger in self.ledgers.items():
            snapshot = await scv.call("session/get", sessionId=session_id)
            upto = snapshot["session"]["lastSeq"]
            await until(scv, partial(_has_come, ledger, upto))
            assert snapshot["approvals"] == []
            title = snapshot["session"]["title"]
            assert self.titles.get(session_id, title) == title
            assert snapshot["session"]["state"] in ("idle", "failed")
            await self._check_items(scv, session_id)
        for approval in list(self.questions):
            await self._check_expired(scv, approval)
            self.questions.remove(approval)
        for answering in list(self.answers):
            await self._check_answer(scv, answering)
            self.answers.remove(answering)
        for prompt in list(self.unresolved):
            await self._check_prompt(scv, prompt)
            self.unresolved.remove(prompt)
        self.check_lines()

    def check_lines(self) -> None:
        """Look at what ran: every command at most once, and only allowed ones."""
        path = self.place.workspace / "lines"
        lines = path.read_text().splitlines() if path.exists() else []
        assert sorted(set(lines)) == sorted(lines), "a command ran twice"
        assert set(lines) <= self.allowed, "a command ran without a yes"

    async def _start_over(
        self, scv: Scv, session_id: str, epoch: str, last: int
    ) -> None:
        """Give up what is known of a session whose newest numbers were lost."""
        old = self.ledgers[session_id]
        assert epoch == old.epoch
        assert last > (old.last or 0)
        ledger = Ledger(session_id, last=last, epoch=epoch, is_late=True)
        scv.followers[session_id] = ledger
        attached = await scv.call(
            "session/attach",
            sessionId=session_id,
            epoch=epoch,
            after=last,
            history="full",
        )
        ledger.items.update({item["id"]: item for item in attached["items"]})
        old.is_void = True
        self.resets += 1
        self.closed_ledgers.append(old)
        self.ledgers[session_id] = ledger

    async def _create(self, scv: Scv, op_id: str) -> None:
        before = self.creations[op_id]
        root = {"root": str(self.place.workspace)}
        result = await scv.call(
            "session/create", opId=op_id, workspace=root, attach=False
        )
        assert before is None or result == before
        if before is not None:
            return
        self.creations[op_id] = result
        session_id, epoch = result["session"]["id"], result["epoch"]
        self.ledgers[session_id] = Ledger(session_id, epoch=epoch)
        scv.followers[session_id] = self.ledgers[session_id]
        await scv.call("session/attach", sessionId=session_id, epoch=epoch, after=0)

    async def _check_items(self, scv: Scv, session_id: str) -> None:
        told = self.ledgers[session_id].items
        stored = {item["id"]: item for item in await Session(scv, session_id).history()}
        assert told == stored, differences(told, stored)
        assert all(item["status"] in FINAL for item in stored.values())
        prompts = [x["opId"] for x in stored.values() if x["kind"] == "user_message"]
        assert len(prompts) == len(set(prompts)), "a prompt was accepted twice"
        for prompt in self.prompts:
            if prompt.session_id == session_id and prompt.reply is not None:
                assert prompt.params["opId"] in prompts, "an accepted prompt is lost"
                assert prompt.reply["itemId"] in stored

    async def _check_expired(self, scv: Scv, approval: Json) -> None:
        error = await scv.refused(
            "approval/answer",
            approvalId=approval["approvalId"],
            digest=approval["digest"],
            optionId="once",
        )
        asked = self.ledgers[approval["sessionId"]].asked
        is_kept = approval["approvalId"] in asked
        assert error.code == EXPIRED or (error.code == UNKNOWN and not is_kept), error

    async def _check_answer(self, scv: Scv, answering: Answering) -> None:
        """Give an answer again: only one that was kept is taken for given."""
        refusal = await _refusal(scv, "approval/answer", **answering.params)
        if refusal is not None:
            assert answering.reply is None, refusal
            assert refusal.code in (EXPIRED, UNKNOWN)

    async def _check_prompt(self, scv: Scv, prompt: Prompt) -> None:
        """Send a prompt again: one that was accepted is found, not run."""
        stored = await Session(scv, prompt.session_id).history()
        found = [x for x in stored if x.get("opId") == prompt.params["opId"]]
        if not found:
            self.teller.stories[prompt.tag] = [say("late")]
        again = await scv.call("turn/start", **prompt.params)
        assert prompt.reply in (None, again)
        prompt.reply = again
        if not found:
            prompt.is_held = False
            prompt.ended = await self.end(scv, prompt)
            assert prompt.ended["status"] == "completed"
        else:
            assert again["itemId"] == found[0]["id"]
            assert again["turnId"] == found[0]["turnId"]
        turn_id = again["turnId"]
        got = await scv.call("turn/get", sessionId=prompt.session_id, turnId=turn_id)
        turn = got["turn"]
        assert turn["state"] == "ended"
        if prompt.is_held:
            assert turn["status"] == "interrupted", turn
            assert turn["stopReason"] == "server_stopped"
        if prompt.ended is None:
            prompt.ended = {"status": turn["status"]}
        assert turn["status"] == prompt.ended["status"]

    def _check_ends(self, session_id: str, events: list[Json]) -> None:
        """Show in the log: one acceptance and one end of every accepted prompt."""
        kinds = Counter(
            (event["turnId"], event["type"])
            for event in events
            if event["type"] in ("turn.accepted", "turn.ended")
        )
        assert set(kinds.values()) == {1}
        accepted = [p.reply["turnId"] for p in self._of(session_id) if p.reply]
        assert {turn_id for turn_id, _ in kinds} == set(accepted)
        assert len(kinds) == 2 * len(accepted)

    def _of(self, session_id: str) -> list[Prompt]:
        return [prompt for prompt in self.prompts if prompt.session_id == session_id]

    # --- what the client knew at the death ---

    def _remember(self, scv: Scv, newest: int) -> None:
        answered = {answering.params["approvalId"] for answering in self.answers}
        for question in scv.questions:
            approval_id = question.approval["approvalId"]
            ledger = self.ledgers[question.approval["sessionId"]]
            if approval_id not in answered | self.denied | ledger.resolved:
                command = _LINE.search(question.approval["subject"]["command"])
                if command is not None and command[1] not in self.allowed:
                    self.questions.append(question.approval)
        for prompt in self.prompts[newest:]:
            for event in self.ledgers[prompt.session_id].events:
                if event["type"] == "turn.ended" and self._is_of(prompt, event):
                    prompt.ended = event["data"]

    def _state(self, newest: int) -> str:
        if newest == len(self.prompts):
            return "coming back"
        prompt = self.prompts[-1]
        state = "sent"
        for event in self.ledgers[prompt.session_id].events:
            if not self._is_of(prompt, event):
                continue
            if event["type"] == "turn.accepted":
                state = "accepted"
            elif event["type"] == "turn.state":
                state = event["data"]["state"]
            elif event["type"] == "turn.ended":
                state = "ended"
        return state

    def _turns(self, session_id: str) -> frozenset[str]:
        events = self.ledgers[session_id].events
        return frozenset(x["turnId"] for x in events if x["type"] == "turn.accepted")

    def _is_of(self, prompt: Prompt, event: Json) -> bool:
        """Tell whether an event is of a prompt's turn; the reply may come later."""
        if prompt.reply is not None:
            return bool(event.get("turnId") == prompt.reply["turnId"])
        new = self._turns(prompt.session_id) - prompt.earlier
        return event.get("turnId") in new


def differences(told: dict[str, Json], stored: dict[str, Json]) -> str:
    """Show what only one of two sides has."""
    return "\n".join(
        f"told {told.get(item_id)}\nkept {stored.get(item_id)}"
        for item_id in sorted({*told, *stored})
        if told.get(item_id) != stored.get(item_id)
    )


async def until(scv: Scv, find: Callable[[], Any]) -> Any:
    """Wait as the client does, but take the server's death for what it is."""
    try:
        return await scv.until(find)
    except AssertionError:
        if scv.closed.is_set() and not scv.problems:
            raise Death from None
        raise


def _has_come(ledger: Ledger, upto: int) -> bool:
    return (ledger.last or 0) >= upto


async def _refusal(scv: Scv, method: str, **params: Any) -> RemoteError | None:
    """Make a request that may be refused."""
    try:
        await scv.call(method, **params)
    except RemoteError as error:
        return error
    return None


async def _till_death(send: Callable[[], Awaitable[None]]) -> None:
    with suppress(ConnectionLost):
        await send()


async def _are_gone(place: Place) -> None:
    """Wait until no process of this home is left."""
    with anyio.fail_after(WAIT_SECONDS):
        while processes_of(place.home):
            await anyio.lowlevel.checkpoint()
