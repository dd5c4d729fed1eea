"""The typed client against a real `scv server --stdio`."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from scv.client import (
    DEFER,
    Client,
    connect,
    decide,
    start_server,
)
from scv.client.inert import inert, inert_line
from scv.errors import ConnectionLost, ProtocolError
from scv.rpc import (
    ByteStream,
    FrameDecoder,
    RemoteError,
    encode_frame,
    encode_json,
    parse_message,
)
from tests.fakes.model_server import HANG, ModelServer, delta

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Setup:
    """A workspace, a model, and servers on demand."""

    workspace: Path
    model: ModelServer

    @asynccontextmanager
    async def client(
        self, wrap: Callable[[ByteStream], ByteStream] | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        """Start a server and connect to it."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        async with start_server(environment=environment) as stream:
            wrapped = wrap(stream) if wrap else stream
            async with connect(wrapped, name="test", **options) as client:
                yield client


@pytest.fixture
async def setup(
    scv_home: Path, tmp_path: Path, no_leftovers: None
) -> AsyncIterator[Setup]:
    """Return a workspace whose instance is configured for a scripted model."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with ModelServer() as model:
        scv_home.mkdir(mode=0o700)
        config = scv_home / "config.toml"
        config.touch(mode=0o600)
        config.write_text(
            'provider.active = "fake"\n[providers.fake]\nmodel = "m"\n'
            f'base_url = "{model.url}"\napi_key = "{model.key}"\n'
        )
        yield Setup(workspace, model)


async def allow(approval: Json) -> Json:
    return decide(approval, "allow_once")


async def test_prompt_runs_and_the_mirror_has_it_all(setup: Setup) -> None:
    setup.model.call("bash", {"command": "echo hello"})
    setup.model.say("all ", "done")

    async with setup.client(on_approval=allow) as client:
        session = await client.create_session(str(setup.workspace), title="a test")
        started = await session.prompt("go")
        turn = await session.ended(started["turnId"])

        kinds = [item["kind"] for item in session.mirror.items]
        assert turn["status"] == "completed"
        assert kinds == ["user_message", "tool_call", "assistant_message"]
        assert session.mirror.items[-1]["text"] == "all done"
        assert session.mirror.session["title"] == "a test"
        assert session.mirror.state == "idle"
        assert session.mirror.usage["inputTokens"] > 0
        assert session.mirror.approvals == {}


async def test_every_helper_speaks_to_the_server(setup: Setup) -> None:
    setup.model.say("one")

    async with setup.client() as client:
        session = await client.create_session(str(setup.workspace))
        started = await session.prompt("first words")
        await session.ended(started["turnId"])

        listed = await client.list_sessions(workspace=str(setup.workspace), limit=5)
        assert [each["id"] for each in listed["sessions"]] == [session.id]
        page = await client.history(session.id, limit=1)
        assert page["items"][0]["text"] == "one"
        assert page["prev"] is not None
        earlier = await client.history(session.id, before=page["prev"])
        assert [item["kind"] for item in earlier["items"]] == ["user_message"]
        updated = await session.update(title="renamed")
        assert updated["title"] == "renamed"
        turn = await client.get_turn(session.id, started["turnId"])
        assert turn["status"] == "completed"
        snapshot = await client.get_session(session.id)
        assert [each["name"] for each in snapshot["clients"]] == ["test"]
        assert (await client.list_approvals(session.id))["approvals"] == []
        data = os.urandom(1_500_000)
        assert await client.read_blob(await client.put_blob(session.id, data)) == data
        assert client.server["protocol"]["major"] == 1
        with pytest.raises(RemoteError) as refused:
            await client.call("scv/session/get", {"sessionId": "s_none"})
        assert refused.value.data["code"] == "session.not_found"
        await client.detach(session.id)
        await client.close_session(session.id)


async def test_question_is_withdrawn_when_the_turn_is_cancelled(setup: Setup) -> None:
    setup.model.call("bash", {"command": "touch made"})
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def wait(approval: Json) -> Json:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        return DEFER

    async with setup.client(on_approval=wait) as client:
        session = await client.create_session(str(setup.workspace))
        started = await session.prompt("go")
        await asked.wait()
        assert session.mirror.state == "needs_approval"
        receipt = await session.cancel(started["turnId"])
        await withdrawn.wait()
        turn = await session.ended(started["turnId"])

        assert len(receipt["receipt"]["approvals"]) == 1
        assert turn["status"] == "cancelled"
    assert not (setup.workspace / "made").exists()


async def test_client_that_defers_can_answer_later_by_itself(setup: Setup) -> None:
    setup.model.call("bash", {"command": "touch made"})
    setup.model.say("done")
    asked: list[Json] = []
    came = anyio.Event()

    async def defer(approval: Json) -> Json:
        asked.append(approval)
        came.set()
        return DEFER

    async with setup.client(on_approval=defer) as client:
        session = await client.create_session(str(setup.workspace))
        started = await session.prompt("go")
        await came.wait()
        await client.answer(asked[0], decide(asked[0], "allow_once"))
        assert (await session.ended(started["turnId"]))["status"] == "completed"
    assert (setup.workspace / "made").exists()


async def test_denial_with_words_reaches_the_model(setup: Setup) -> None:
    setup.model.call("bash", {"command": "touch made"})
    setup.model.say("done")

    async def deny(approval: Json) -> Json:
        return decide(approval, "deny", "not on a Friday")

    async with setup.client(on_approval=deny) as client:
        session = await client.create_session(str(setup.workspace))
        started = await session.prompt("go")
        await session.ended(started["turnId"])
    assert "not on a Friday" in setup.model.requests[1].input[-1]["output"]


async def test_attach_in_another_server_goes_on(setup: Setup) -> None:
    setup.model.say("one")
    setup.model.say("two")
    async with setup.client() as client:
        session = await client.create_session(str(setup.workspace))
        await session.ended((await session.prompt("first"))["turnId"])
        session_id = session.id

    async with setup.client() as client:
        session = await client.attach(session_id, tail_items=10)
        assert [item["kind"] for item in session.mirror.items] == [
            "user_message",
            "assistant_message",
        ]
        turn = session.mirror.turn
        assert turn is not None
        assert turn["status"] == "completed"
        await session.ended((await session.prompt("second"))["turnId"])
        assert session.mirror.items[-1]["text"] == "two"


class Lossy:
    """A stream that loses or changes some of the server's event batches."""

    def __init__(
        self, stream: ByteStream, change: Callable[[Json], Json | None]
    ) -> None:
        self._stream = stream
        self._change = change
        self._decoder = FrameDecoder(1 << 24)

    @property
    def backlog_bytes(self) -> int:
        return self._stream.backlog_bytes

    async def receive(self) -> bytes:
        while data := await self._stream.receive():
            passed = b""
            for body in self._decoder.feed(data):
                assert isinstance(body, bytes)
                message: Json | None = parse_message(body)
                assert message is not None
                if message.get("method") == "scv/session/events":
                    message = self._change(message)
                if message is not None:
                    passed += encode_frame(encode_json(message))
            if passed:
                return passed
        return b""

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    async def drained(self) -> None:
        await self._stream.drained()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_lost_events_are_fetched_and_nothing_is_doubled(setup: Setup) -> None:
    """Every third batch is lost; the text that was told is the text that was sent."""
    gates = [threading.Event() for _ in range(8)]
    steps: list[Any] = []
    for number, gate in enumerate(gates):
        steps += [delta(f"piece {number}, "), gate]
    setup.model.raw(*steps, *_end("".join(f"piece {n}, " for n in range(8))))
    count = 0

    def lose(message: Json) -> Json | None:
        nonlocal count
        count += 1
        events = message.get("params", {}).get("events", [])
        is_last = any(each["type"] == "turn.ended" for each in events)
        return None if count % 3 == 0 and not is_last else message  # a gap needs more

    told: list[str] = []
    grown = anyio.Event()

    def listen(batch: Json, events: tuple[Json, ...]) -> None:
        nonlocal grown
        told.extend(
            each["data"]["append"] for each in events if each["type"] == "item.delta"
        )
        grown.set()
        grown = anyio.Event()

    async with setup.client(lambda stream: Lossy(stream, lose)) as client:
        session = await client.create_session(str(setup.workspace), on_events=listen)
        started = await session.prompt("go")
        for gate in gates:
            gate.set()
        await session.ended(started["turnId"])

        text = "".join(f"piece {number}, " for number in range(8))
        assert session.mirror.items[-1]["text"] == text
        assert text.startswith("".join(told)) or "".join(told) in text


def _end(text: str) -> list[bytes]:
    from tests.fakes.model_server import completed, done, message

    return [done(message(text)), completed()]


async def test_other_epoch_makes_the_client_attach_anew(setup: Setup) -> None:
    setup.model.say("one")
    was_changed = False

    def change(message: Json) -> Json:
        nonlocal was_changed
        params = message["params"]
        types = [event["type"] for event in params["events"]]
        if "item.completed" in types and not was_changed:
            was_changed = True
            return {**message, "params": {**params, "epoch": "e_other"}}
        return message

    resets: list[int] = []
    async with setup.client(lambda stream: Lossy(stream, change)) as client:
        session = await client.create_session(str(setup.workspace))
        session.on_reset = lambda: resets.append(session.mirror.last)
        started = await session.prompt("go")
        turn = await session.ended(started["turnId"])

        assert turn["status"] == "completed"
        assert len(resets) == 1
        assert session.mirror.items[-1]["text"] == "one"
        assert [item["kind"] for item in session.mirror.items] == [
            "user_message",
            "assistant_message",
        ]


async def test_end_of_an_earlier_turn_is_remembered(setup: Setup) -> None:
    setup.model.fail(401)
    setup.model.say("two")

    async with setup.client() as client:
        session = await client.create_session(str(setup.workspace))
        first = await session.prompt("go")
        await session.ended(first["turnId"])
        second = await session.prompt("again")
        await session.ended(second["turnId"])

        assert (await session.ended(first["turnId"]))["status"] == "failed"


async def test_server_that_dies_wakes_everybody(setup: Setup) -> None:
    setup.model.raw(delta("x"), HANG)

    async with start_server(
        environment={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as stream:
        async with connect(stream, name="test") as client:
            session = await client.create_session(str(setup.workspace))
            started = await session.prompt("go")
            await stream.aclose()
            with pytest.raises(ConnectionLost):
                await session.ended(started["turnId"])
            with pytest.raises(ConnectionLost):
                await client.list_sessions()


async def test_program_that_is_no_server_is_named_as_such() -> None:
    async with start_server(["/bin/cat"]) as stream:
        with pytest.raises(ProtocolError):
            async with connect(stream, name="test"):
                pass
    async with start_server(["/bin/true"]) as stream:
        with pytest.raises(ConnectionLost):
            async with connect(stream, name="test"):
                pass


def test_inert_text_shows_what_a_terminal_would_act_on() -> None:
    def check(given: str, expected: str) -> None:
        assert inert(given) == expected

    check("plain text\nwith\ttabs", "plain text\nwith\ttabs")
    check("a\r\nb", "a\nb")
    check("a\rb", "a\\rb")
    check("\x1b[2J\x07\x9b31m", "\\x1b[2J\\x07\\x9b31m")
    check("\u202eevil\u2069", "\\u202eevil\\u2069")
    check("\ud800", "\\ud800")
    check("\U000e0041", "\\U000e0041")
    check("👩\u200d💻 ✔\ufe0f", "👩\u200d💻 ✔\ufe0f")
    assert inert_line("a\n b\t\x1b" + "c" * 50, 10) == "a b \\x1bc…"
