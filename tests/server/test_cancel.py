"""Cancelling: the named turn and no other, in every state, with nothing left."""

import json
from threading import Event

import psutil
import pytest
from anyio import fail_after, to_thread

from scv.rpc import RemoteError
from tests.fakes.model_server import HANG, Answer, delta
from tests.server.kit import ALLOW, HOLD, Json, Place, Scv, Session

pytestmark = pytest.mark.anyio

CANCEL_SECONDS = 10.0
"""Five times the 2 s within which a turn ends that is cancelled."""


async def cancelled(session: Session, turn: str) -> Json:
    """Cancel a turn and wait for its end; returns the receipt."""
    with fail_after(CANCEL_SECONDS):
        answer = await session.cancel(turn, reason="enough")
        ended = await session.end(turn)
    assert answer["state"] == "cancelling"
    assert ended["status"] == "cancelled"
    assert ended["stopReason"] == "enough"
    receipt = answer["receipt"]
    assert isinstance(receipt, dict)
    return receipt


async def test_cancel_before_the_model_answers(place: Place) -> None:
    place.model.raw(HANG)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await to_thread.run_sync(place.model.wait_for_requests, 1)
        await cancelled(session, turn)

        assert session.texts() == []
        await session.works(place.model)


async def test_cancel_while_the_model_streams_keeps_the_text(place: Place) -> None:
    place.model.raw(delta("half an "), delta("answ"), HANG)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["half an answ"])
        await cancelled(session, turn)

        (item,) = session.items("assistant_message")
        assert (item["status"], item["partial"]) == ("cancelled", True)
        assert item["text"] == "half an answ"
        await session.works(place.model)
    assert "half an answ" in json.dumps(place.model.requests[-1].input)


async def test_cancel_while_a_retry_waits(place: Place) -> None:
    place.model.fail(503, headers={"retry-after": "25"})

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await session.state(turn, "retry_wait")
        await cancelled(session, turn)

        assert len(place.model.requests) == 1
        await session.works(place.model)


async def running_call(scv: Scv, session: Session) -> Json:
    def find() -> Json | None:
        calls = session.items("tool_call")
        return next((i for i in calls if i["status"] == "in_progress"), None)

    found: Json = await scv.until(find)
    return found


async def test_cancel_while_a_command_runs(place: Place) -> None:
    command = "echo started; setsid sleep 601 & sleep 602 & sleep 603"
    place.model.call("bash", {"command": command})

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        call = await running_call(scv, session)
        await scv.until(lambda: "started" in call.get("progress", ""))
        receipt = await cancelled(session, turn)

        assert receipt["processes"]
        for pid in receipt["processes"]:
            assert not psutil.pid_exists(pid) or (
                psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
            )
        (item,) = session.items("tool_call")
        assert item["status"] == "cancelled"
        assert item["result"]["success"] is False
        left = [p for p in psutil.Process().children(recursive=True) if _sleeps(p)]
        assert left == []
        await session.works(place.model)


def _sleeps(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.name() == "sleep"
    except psutil.NoSuchProcess:
        return False


async def test_cancel_while_a_command_ignores_it(place: Place) -> None:
    command = "trap '' TERM INT HUP; echo started; while :; do sleep 0.1; done"
    place.model.call("bash", {"command": command})

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        call = await running_call(scv, session)
        await scv.until(lambda: "started" in call.get("progress", ""))
        with fail_after(CANCEL_SECONDS):
            answer = await session.cancel(turn)
        with fail_after(5 * 3):  # X2: 2 s of grace and one more
            ended = await session.end(turn)

        assert answer["state"] == "cancelling"
        assert ended["status"] == "cancelled"
        await session.works(place.model)


async def test_cancel_right_at_the_end(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        for number in range(20):
            gate = Event()
            place.model.say(f"answer {number} ", "end", gate=gate)
            turn = await session.start()
            await scv.until(lambda n=number: f"answer {n} " in session.texts())
            gate.set()
            try:
                receipt = await session.cancel(turn)
                assert receipt["state"] in ("cancelling", "ended")
            except RemoteError as error:
                assert error.code == 4243  # noqa: PT017
            ended = await session.end(turn)
            assert ended["status"] in ("completed", "cancelled")
        await session.works(place.model)


async def test_cancel_at_once(place: Place) -> None:
    place.model.on_request = lambda _: Answer([delta("never "), HANG])

    async with place.server() as scv:
        session = await scv.create()
        for _ in range(10):
            turn = await session.start()
            receipt = await session.cancel(turn)
            ended = await session.end(turn)
            assert receipt["state"] == "cancelling"
            assert ended["status"] == "cancelled"
        place.model.on_request = None
        await session.works(place.model)


async def test_a_late_cancel_never_hits_the_next_turn(place: Place) -> None:
    gate = Event()
    place.model.say("first")
    place.model.say("second ", "turn", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        first = await session.start()
        await session.end(first)
        idle = await scv.refused("turn/cancel", sessionId=session.id, turnId=first)
        assert (idle.code, idle.data["idle"]) == (4243, True)
        second = await session.start()
        await session.state(second, "model")
        late = await scv.refused("turn/cancel", sessionId=session.id, turnId=first)
        assert (late.code, late.data["turnId"]) == (4243, second)
        gate.set()
        ended = await session.end(second)

        assert ended["status"] == "completed"
        assert session.texts() == ["first", "second turn"]


async def test_cancel_twice_with_one_operation_id(place: Place) -> None:
    place.model.raw(delta("x"), HANG)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["x"])
        op_id = scv.op_id()
        first = await session.cancel(turn, opId=op_id)
        await session.end(turn)
        again = await session.cancel(turn, opId=op_id)

        assert first == again
        other = await scv.refused("turn/cancel", sessionId=session.id, turnId=turn)
        assert other.code == 4243


async def test_a_denied_and_a_cancelled_question_race(place: Place) -> None:
    place.model.calls(*[("bash", {"command": "touch ran"})] * 3)

    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await session.start()
        question = await scv.question()
        question.reply(question.decision("deny"))
        await session.cancel(turn)
        ended = await session.end(turn)

        assert ended["status"] == "cancelled"
        decisions = session.follower.of_type("approval.resolved")
        assert {data["decision"] for data in decisions} <= {"denied", "cancelled"}
        await session.works(place.model)
    assert not (place.workspace / "ran").exists()


async def test_an_allow_and_a_cancel_race(place: Place) -> None:
    async with place.server(HOLD) as scv:
        session = await scv.create()
        for number in range(5):
            place.model.call("bash", {"command": f"touch ran{number}; sleep 600"})
            turn = await session.start()
            question = await scv.question(number)
            question.reply(question.decision("once"))
            await session.cancel(turn)
            ended = await session.end(turn)
            assert ended["status"] == "cancelled"
            decision = session.follower.of_type("approval.resolved")[-1]["decision"]
            if (place.workspace / f"ran{number}").exists():
                assert decision == "allowed"
        await session.works(place.model)


async def test_cancelling_a_request_never_cancels_a_turn(place: Place) -> None:
    gate = Event()
    place.model.say("first ", "done", gate=gate)

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        for request_id in range(6):
            scv.peer.notify("$/cancelRequest", {"id": request_id})
        gate.set()
        ended = await session.end(turn)

        assert ended["status"] == "completed"
