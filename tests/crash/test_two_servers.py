"""Two servers on one home: side by side, and never both in one session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.crash.story import Teller, call, say
from tests.server.kit import HOLD, Answer, Place, Running, Scv, Session, talk

pytestmark = pytest.mark.anyio

LOCKED = 4240


@asynccontextmanager
async def server(
    place: Place, client_id: str, answer: Answer = HOLD
) -> AsyncIterator[tuple[Scv, Running]]:
    """Run a server whose process is known; it is killed unless it has left."""
    running = place.start()
    try:
        async with talk(running, answer) as (scv, _):
            scv.root = place.workspace
            await scv.initialize(client_id=client_id)
            yield scv, running
            assert not scv.problems, scv.problems
    finally:
        running.kill()


async def leave(scv: Scv, running: Running) -> None:
    """End a server as its front end does."""
    with anyio.fail_after(30):
        await scv.peer.request("shutdown")
        scv.peer.notify("exit")
        await scv.closed.wait()
    assert await running.wait() == 0


@pytest.fixture
def teller(place: Place) -> Teller:
    """Let the model answer by stories: the order of requests is not known here."""
    teller = Teller(place.workspace.parent)
    place.model.on_request = teller.answer
    return teller


async def test_two_servers_serve_different_sessions_of_one_home(
    place: Place, teller: Teller
) -> None:
    for tag in ("one", "two"):
        teller.stories[tag] = [call(tag, 1, teller.append(tag, 1)), say("done")]

    async with server(place, "a") as (a, a_running):
        async with server(place, "b") as (b, b_running):
            first = await a.create()
            turn = await first.start("one")
            question = await a.question()
            second = await b.create()  # b came while the turn of a was waiting
            other_turn = await second.start("two")
            other_question = await b.question()
            other_question.reply(other_question.decision("once"))
            assert (await second.end(other_turn))["status"] == "completed"
            question.reply(question.decision("once"))
            assert (await first.end(turn))["status"] == "completed"
            for scv in (a, b):
                listed = await scv.call("session/list")
                found = {row["id"]: row["state"] for row in listed["sessions"]}
                assert found == {first.id: "idle", second.id: "idle"}
            await first.check()
            await leave(b, b_running)
            await leave(a, a_running)
    lines = (place.workspace / "lines").read_text().split()
    assert sorted(lines) == ["one.1", "two.1"]


@pytest.mark.parametrize("end", ["exit", "kill"])
async def test_a_session_is_taken_over_when_its_server_is_gone(
    place: Place, teller: Teller, end: str
) -> None:
    teller.stories["ask"] = [call("ask", 1, teller.append("ask", 1))]

    async with server(place, "a") as (a, a_running), server(place, "b") as (b, _):
        first = await a.create()
        turn = await first.start("ask")
        question = await a.question()
        await a.call("session/update", sessionId=first.id, title="of a")
        b.expect(first.id, after=0)
        error = await b.refused("session/attach", sessionId=first.id)
        assert error.code == LOCKED
        assert isinstance(error.data, dict)
        assert error.data["pid"] == a_running.process.pid
        seen = await b.call("session/get", sessionId=first.id)  # reading needs no lock
        assert [each["approvalId"] for each in seen["approvals"]] == [
            question.approval["approvalId"]
        ]
        error = await b.refused(
            "approval/answer",
            approvalId=question.approval["approvalId"],
            **question.decision("once"),
        )
        assert error.code == LOCKED
        listed = await b.call("session/list")
        assert [row["state"] for row in listed["sessions"]] == ["running"]
        if end == "exit":
            await leave(a, a_running)
        else:
            a_running.process.kill()
            a_running.process.wait()

        taken, attached = await b.attach(first.id, history="full")

        assert attached["pending"]["approvals"] == []
        got = await b.call("turn/get", sessionId=first.id, turnId=turn)
        status = "cancelled" if end == "exit" else "interrupted"
        assert got["turn"]["status"] == status
        teller.stories["next"] = [say("mine now")]
        assert (await taken.prompt("next"))["status"] == "completed"
        assert (await answers(taken))[-1:] == taken.texts() == ["mine now"]
        assert not (place.workspace / "lines").exists()


async def answers(session: Session) -> list[str]:
    """Return every answer that is stored."""
    items = await session.history()
    return [item["text"] for item in items if item["kind"] == "assistant_message"]
