"""What happens at the edges of following, answering and ending."""

import signal

import pytest

from tests.server.kit import HOLD, Place, talk

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("no_leftovers")]


async def test_a_front_end_that_turns_observer_decides_nothing_any_more(
    place: Place,
) -> None:
    place.model.call("bash", {"command": "touch ran"})
    place.model.say("ok")

    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await session.start()
        question = await scv.question()

        await scv.attach(session.id, known=session.follower, role="observer")
        await scv.until(lambda: question.withdrawn)
        refused = await scv.refused(
            "approval/answer",
            approvalId=question.approval["approvalId"],
            **question.decision("once"),
        )
        assert refused.code == 4233

        again, _ = await scv.attach(session.id, known=session.follower)
        (await scv.question(1)).reply(question.decision("deny"))
        await again.end(turn)
    assert not (place.workspace / "ran").exists()


async def test_a_deferred_question_comes_again_after_a_new_attach(place: Place) -> None:
    place.model.call("bash", {"command": "touch ran"})
    place.model.say("ok")

    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await session.start()
        (await scv.question()).reply({"defer": True})

        again, _ = await scv.attach(session.id, known=session.follower)
        question = await scv.question(1)
        question.reply(question.decision("once"))

        assert (await again.end(turn))["status"] == "completed"
    assert (place.workspace / "ran").exists()


async def test_closing_a_session_is_told_to_those_who_follow_it(place: Place) -> None:
    place.model.say("hello")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        await scv.call("session/close", sessionId=session.id, mode="cancel")

        assert session.follower.of_type("session.closed")


async def test_a_selection_is_bounded(place: Place) -> None:
    part = {
        "type": "selection",
        "uri": "file:///a",
        "text": "x",
        "range": {"numbers": [1e15] * 10},
    }

    async with place.server() as scv:
        session = await scv.create()
        refused = await scv.refused("turn/start", sessionId=session.id, input=[part])

    assert refused.code == -32602
    assert refused.data["path"] == "input.0.range.start"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
async def test_a_signal_ends_the_server_and_what_it_runs(
    place: Place, name: str
) -> None:
    place.model.call("bash", {"command": "echo up > up; sleep 600"})
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            scv.root = place.workspace
            await scv.initialize()
            session = await scv.create()
            await session.state(await session.start(), "tools")

            running.process.send_signal(getattr(signal, name))
            await scv.closed.wait()

        assert await running.wait() == 0
        assert "Traceback" not in running.stderr()
    finally:
        running.kill()
