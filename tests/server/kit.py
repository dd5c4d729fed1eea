"""A real `scv server --stdio`, spoken to as a front end would.

    async with place.server(answer=ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt("go")
        assert turn["status"] == "completed"

Everything the server sends is checked on arrival: answers and events against the
wire types, event ranges by the client rule. Leaving the block ends the server
properly and looks at what it leaves: status 0, whole frames, no traceback, and a
history that is what the events told.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from scv.rpc import ByteStream, FdStream, Limits, Peer, RemoteError
from scv.wire.methods import METHODS
from scv.wire.validate import check
from tests.fakes.model_server import ModelServer
from tests.server.follower import FINAL, Follower

Json = dict[str, Any]
Answer = Callable[["Question"], Awaitable[Any]]
ROOT = Path(__file__).parent.parent.parent
WAIT_SECONDS = 30.0
"""Longest wait for anything; a test that waits longer has failed."""


def server_command() -> list[str]:
    """Name the command line of a stdio server of this checkout."""
    if find_spec("scv.__main__") is not None:
        return [sys.executable, "-m", "scv", "server", "--stdio"]
    code = (
        "import logging, os, sys, anyio;"
        "from scv.app import default_options, serve_stdio;"
        "logging.basicConfig(level=os.environ.get('SCV_LOG', 'warning').upper());"
        "sys.exit(anyio.run(serve_stdio, default_options()))"
    )
    return [sys.executable, "-c", code]


# --- questions ---


@dataclass
class Question:
    """One `scv/approval/request` as this client got it; `reply` is a person's click."""

    approval: Json
    tell: Callable[[], None]
    withdrawn: bool = False
    _reply: Any = None
    _clicked: anyio.Event = field(default_factory=anyio.Event)

    def decision(self, option: str, **more: Any) -> Json:
        """Build a valid decision on this question."""
        return {"optionId": option, "digest": self.approval["digest"], **more}

    def reply(self, value: Any) -> None:
        """Answer with this value, or with an error when it is an exception."""
        self._reply = value
        self._clicked.set()

    async def wait(self) -> Any:
        """Wait for the click."""
        try:
            await self._clicked.wait()
        except BaseException:
            self.withdrawn = True
            self.tell()
            raise
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


async def ALLOW(question: Question) -> Json:
    """Allow everything."""
    return question.decision("once")


async def DENY(question: Question) -> Json:
    """Deny everything."""
    return question.decision("deny")


async def HOLD(question: Question) -> Any:
    """Leave every question to the test."""
    return await question.wait()


# --- the client ---

BOARD = ("scv/sessions/changed", "scv/attention/changed")
"""Notifications that every front end gets, whatever it follows."""


class Scv:
    """One front end connected to a server."""

    def __init__(self, stream: "Recorder", answer: Answer) -> None:
        self.stream = stream
        self.answer = answer
        self.root: Path | None = None
        self.questions: list[Question] = []
        self.notifications: list[tuple[str, Json]] = []
        self.board: list[tuple[str, Json]] = []
        self.followers: dict[str, Follower] = {}
        self.problems: list[BaseException] = []
        self.handshake: Json = {}
        self.peer = Peer(stream, self, limits=Limits())
        self.closed = anyio.Event()
        self._changed = anyio.Event()
        self._numbers = count(1)
        self._prefix = os.urandom(4).hex()

    async def handle_request(self, method: str, params: Any) -> Any:
        """Answer a question of the server."""
        try:
            assert method == "scv/approval/request", method
            check(METHODS[method].params, params)
            follower = self.followers[params["sessionId"]]
            assert params["approvalId"] in follower.asked, "the event comes first"
        except BaseException as problem:
            self.problems.append(problem)
            raise
        question = Question(params, self._tell)
        self.questions.append(question)
        self._tell()
        return await self.answer(question)

    def handle_notification(self, method: str, params: Any) -> None:
        """Take events; keep everything else for the test."""
        try:
            check(METHODS[method].params, params)
            if method == "scv/session/events":
                session_id = params["sessionId"]
                follower = self.followers.get(session_id)
                if follower is None:
                    follower = self.followers[session_id] = Follower(session_id)
                follower.take(params)
            elif method in BOARD:
                self.board.append((method, params))
            else:
                self.notifications.append((method, params))
        except BaseException as problem:
            self.problems.append(problem)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, find: Callable[[], Any]) -> Any:
        """Wait until `find` returns something true, looking after every message."""
        with anyio.fail_after(WAIT_SECONDS):
            while not (found := find()):
                assert not self.problems, self.problems
                assert not self.closed.is_set(), "the server has left"
                await self._changed.wait()
        return found

    def op_id(self) -> str:
        """Make a new operation id."""
        return f"op-{self._prefix}-{next(self._numbers)}"

    async def call(self, method: str, **params: Any) -> Json:
        """Make a request; a mutating one gets an operation id unless it has one."""
        entry = METHODS[f"scv/{method}"]
        if entry.mutating:
            params.setdefault("opId", self.op_id())
        with anyio.fail_after(WAIT_SECONDS):
            result = await self.peer.request(f"scv/{method}", params)
        if entry.result is not None:
            check(entry.result, result)
        assert isinstance(result, dict)
        return result

    async def refused(self, method: str, **params: Any) -> RemoteError:
        """Make a request that must be refused; returns the error."""
        with pytest.raises(RemoteError) as caught:
            await self.call(method, **params)
        assert "Traceback" not in caught.value.message
        return caught.value

    async def initialize(
        self,
        *,
        client_id: str = "front-end",
        approvals: bool = True,
        **scv: Any,
    ) -> Json:
        """Shake hands and start the flow of events."""
        block = {
            "protocol": {"major": 1, "minor": 0},
            "clientId": client_id,
            "features": {"events": True, "approvals": approvals},
            **scv,
        }
        for point in scv.get("resume", []):
            self.expect(point["sessionId"], after=point["after"])
        result = await self.peer.request(
            "initialize",
            {
                "processId": os.getpid(),
                "clientInfo": {"name": "kit"},
                "capabilities": {"experimental": {"scv": block}},
            },
        )
        self.handshake = result["capabilities"]["experimental"]["scv"]
        self.peer.notify("initialized", {})
        return self.handshake

    def expect(self, session_id: str, *, after: int | None) -> Follower:
        """Begin to follow a session in the middle."""
        follower = Follower(session_id, last=after, is_late=True)
        self.followers[session_id] = follower
        return follower

    async def create(self, root: Path | None = None, **params: Any) -> "Session":
        """Start a session, in the place's workspace unless told otherwise."""
        workspace = {"root": str(root or self.root)}
        result = await self.call("session/create", workspace=workspace, **params)
        session = Session(self, result["session"]["id"])
        self.followers.setdefault(session.id, Follower(session.id))
        return session

    async def attach(
        self, session_id: str, *, known: Follower | None = None, **params: Any
    ) -> tuple["Session", Json]:
        """Follow a session from where its log stands, or go on from what is known."""
        if known is not None:
            params.update(after=known.last, epoch=known.epoch)
        follower = self.expect(session_id, after=params.get("after"))
        if known is not None:
            follower.items.update(known.items)
            follower.asked |= known.asked
            follower.resolved |= known.resolved
        result = await self.call("session/attach", sessionId=session_id, **params)
        await self.until(lambda: follower.begins_after is not None)
        assert follower.begins_after == params.get("after", result["lastSeq"])
        return Session(self, session_id), result

    async def question(self, number: int = 0) -> Question:
        """Wait for the question of this number, counted from the first."""
        await self.until(lambda: len(self.questions) > number)
        return self.questions[number]


@dataclass(frozen=True)
class Session:
    """One session as its front end drives it."""

    scv: Scv
    id: str

    @property
    def follower(self) -> Follower:
        """What the events have told so far."""
        return self.scv.followers[self.id]

    async def start(self, text: str = "go", **params: Any) -> str:
        """Give a prompt; returns the turn's id when it is accepted."""
        parts = [{"type": "text", "text": text}]
        result = await self.scv.call(
            "turn/start", sessionId=self.id, **{"input": parts, **params}
        )
        return str(result["turnId"])

    async def end(self, turn_id: str) -> Json:
        """Wait for the end of a turn; returns the data of its `turn.ended`."""
        ended = await self.scv.until(lambda: self.follower.ended.get(turn_id))
        assert isinstance(ended, dict)
        return ended

    async def prompt(self, text: str = "go", **params: Any) -> Json:
        """Give a prompt and wait for the end of its turn."""
        return await self.end(await self.start(text, **params))

    async def cancel(self, turn_id: str, **params: Any) -> Json:
        """Cancel a turn; returns the receipt."""
        return await self.scv.call(
            "turn/cancel", sessionId=self.id, turnId=turn_id, **params
        )

    async def state(self, turn_id: str, state: str) -> None:
        """Wait until a turn has reached a state."""
        await self.scv.until(
            lambda: any(
                event["type"] == "turn.state"
                and event["turnId"] == turn_id
                and event["data"]["state"] == state
                for event in self.follower.events
            )
        )

    def items(self, kind: str) -> list[Json]:
        """Return the items of a kind, as the events told them."""
        return [item for item in self.follower.items.values() if item["kind"] == kind]

    def texts(self) -> list[str]:
        """Return the model's answers."""
        return [item["text"] for item in self.items("assistant_message")]

    def results(self) -> list[str]:
        """Return what the model was told of its calls."""
        return [item["result"]["output"] for item in self.items("tool_call")]

    def notices(self) -> list[str]:
        """Return the notices of the transcript."""
        return [item["message"] for item in self.items("notice")]

    async def history(self) -> list[Json]:
        """Read all stored items, oldest first."""
        items: list[Json] = []
        page: Json = {"prev": None}
        before: Json = {}
        while True:
            page = await self.scv.call("session/history", sessionId=self.id, **before)
            items = page["items"] + items
            if page["prev"] is None:
                return items
            before = {"before": page["prev"]}

    async def works(self, model: ModelServer) -> None:
        """Show that the next plain prompt works."""
        model.say("still here")
        turn = await self.prompt("a plain prompt")
        assert turn["status"] == "completed", turn
        assert self.texts()[-1] == "still here"

    async def check(self) -> None:
        """Hold what the events told against what is stored."""
        told = self.follower.items
        stored = {item["id"]: item for item in await self.history()}
        assert set(told) <= set(stored)
        for item_id, item in told.items():
            if item["status"] in FINAL:
                assert stored[item_id] == item


# --- the server ---


class Recorder:
    """A stream that keeps a copy of everything that was read.

    While `reading` is unset its reader takes nothing.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.received = bytearray()
        self.reading = anyio.Event()
        self.reading.set()
        self._stream = stream

    @property
    def backlog_bytes(self) -> int:
        return self._stream.backlog_bytes

    async def receive(self) -> bytes:
        await self.reading.wait()
        data = await self._stream.receive()
        self.received += data
        return data

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    async def drained(self) -> None:
        await self._stream.drained()

    async def aclose(self) -> None:
        await self._stream.aclose()


def frames(data: bytes) -> list[Json]:
    """Split server output into messages; every byte must belong to a frame."""
    found = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, f"no frame: {head[:200]!r}"
        name, _, length = head.partition(b": ")
        assert name == b"Content-Length", f"no frame: {head[:200]!r}"
        assert len(data) >= int(length), "half a frame"
        body, data = data[: int(length)], data[int(length) :]
        found.append(json.loads(body.decode()))
    return found


@dataclass
class Running:
    """A server process and its raw ends."""

    process: subprocess.Popen[bytes]
    errors: Path

    def stderr(self) -> str:
        """Return what it has written to standard error."""
        return self.errors.read_text("utf-8", "replace")

    async def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for its end; returns the exit status."""
        with anyio.fail_after(seconds + 1):
            return await to_thread.run_sync(
                self.process.wait, seconds, abandon_on_cancel=True
            )

    def rest(self) -> bytes:
        """Read what is left on standard output, to its end."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def kill(self) -> None:
        """End it, whatever it does, and close our ends."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Place:
    """A home, a workspace and a model of a test's own."""

    home: Path
    workspace: Path
    model: ModelServer
    environment: dict[str, str] = field(default_factory=dict)
    _starts: Any = field(default_factory=count)

    def configure(self, more: str = "", *, profile: str = "") -> None:
        """Write the user's configuration: the scripted model, then `more` tables."""
        text = (
            f'[provider]\nactive = "fake"\n[providers.fake]\nmodel = "m"\n'
            f'base_url = "{self.model.url}"\n'
            + (profile or f'api_key = "{self.model.key}"')
        )
        self.write_config(f"{text}\n{more}\n")

    def write_config(self, text: str) -> None:
        """Write the user's configuration as it stands."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        path = self.home / "config.toml"
        path.write_text(text)
        path.chmod(0o600)

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        stdin: int = subprocess.PIPE,
    ) -> Running:
        """Start a server whose pipes the test holds itself."""
        errors = self.workspace.parent / f"stderr-{next(self._starts)}"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                server_command(),
                cwd=ROOT,
                env={**os.environ, **self.environment, **(environment or {})},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,
            )
        return Running(process, errors)

    @asynccontextmanager
    async def server(
        self,
        answer: Answer = ALLOW,
        *,
        environment: Mapping[str, str] | None = None,
        shake_hands: bool = True,
        **handshake: Any,
    ) -> AsyncIterator[Scv]:
        """Run a server for the block, then end it and look at what it leaves."""
        running = self.start(environment)
        try:
            async with talk(running, answer) as (scv, recorder):
                scv.root = self.workspace
                if shake_hands:
                    await scv.initialize(**handshake)
                yield scv
                if not scv.peer.is_closed:
                    await _leave(scv)
            assert not scv.problems, scv.problems
            assert await running.wait() == 0
            frames(bytes(recorder.received) + running.rest())
            for sign in ("Traceback", "a bug in SCV"):
                assert sign not in running.stderr(), running.stderr()
            self.said = running.stderr()
        finally:
            running.kill()
            print(running.stderr())  # pytest shows it where the test fails

    said: str = ""
    """Standard error of the newest server that has ended."""


@asynccontextmanager
async def talk(
    running: Running, answer: Answer = ALLOW
) -> AsyncIterator[tuple[Scv, Recorder]]:
    """Speak the protocol with a started server for the block."""
    stdin, stdout = running.process.stdin, running.process.stdout
    assert stdin is not None
    assert stdout is not None
    recorder = Recorder(FdStream(os.dup(stdout.fileno()), os.dup(stdin.fileno())))
    stdin.close()
    scv = Scv(recorder, answer)

    async def serve() -> None:
        await scv.peer.run()
        scv.closed.set()
        scv._tell()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            yield scv, recorder
        finally:
            scv.peer.close()


async def _leave(scv: Scv) -> None:
    assert not scv.problems, scv.problems
    for session_id in list(scv.followers):
        await Session(scv, session_id).check()
    with anyio.fail_after(WAIT_SECONDS):
        await scv.peer.request("shutdown")
        scv.peer.notify("exit")
        await scv.closed.wait()
