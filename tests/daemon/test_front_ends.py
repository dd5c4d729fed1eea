"""Several front ends on the sessions of one server."""

import os
from contextlib import AsyncExitStack

import anyio
import pytest

from tests.daemon.kit import Daemon, served
from tests.server.kit import ALLOW, DENY, HOLD, WAIT_SECONDS, Place

pytestmark = pytest.mark.anyio


async def test_turn_4_client_gone_while_approval_waits(daemon: Daemon) -> None:
    place, written = daemon.place, daemon.place.workspace / "written"
    place.model.call("bash", {"command": f"touch {written}"})
    place.model.say("done")
    async with daemon.front_end(HOLD, client_id="asked") as asked:
        session = await asked.create()
        turn = await session.start()
        question = await asked.question()

    async with daemon.front_end(HOLD, client_id="returns") as returns:
        listed = await returns.call("approval/list", sessionId=session.id)
        state = await returns.call("session/get", sessionId=session.id)
        again, attached = await returns.attach(session.id, after=0, epoch=_epoch(state))
        asked_again = await returns.question()

        approval_id = question.approval["approvalId"]
        pending = attached["pending"]["approvals"]
        assert [each["approvalId"] for each in listed["approvals"]] == [approval_id]
        assert [each["approvalId"] for each in pending] == [approval_id]
        assert state["session"]["state"] == "needs_approval"
        assert asked_again.approval == question.approval
        unattended = again.follower.of_type("approval.unattended")
        assert unattended == [{"approvalId": approval_id}]
        assert not written.exists()

        asked_again.reply(asked_again.decision("once"))
        assert (await again.end(turn))["status"] == "completed"
        assert written.exists()
        [resolved] = again.follower.of_type("approval.resolved")
        assert resolved["by"]["clientId"] == "returns"


def _epoch(snapshot: dict[str, dict[str, str]]) -> str:
    return snapshot["session"]["epoch"]


async def test_turn_4_nobody_returns_in_time(place: Place) -> None:
    written = place.workspace / "written"
    place.configure("[approvals]\ntimeout_seconds = 1")
    place.model.call("bash", {"command": f"touch {written}"})
    place.model.say("done")
    with served(place) as daemon:
        async with daemon.front_end(HOLD) as asked:
            session = await asked.create()
            turn = await session.start()
            await asked.question()
        async with daemon.front_end(approvals=False) as reader:
            follower, _ = await reader.attach(
                session.id, after=0, epoch=_epoch_of(asked)
            )
            ended = await follower.end(turn)
            await follower.works(place.model)

    assert ended["status"] == "completed"  # the model was told of the denial
    [resolved] = follower.follower.of_type("approval.resolved")
    assert resolved["decision"] == "denied"
    assert not written.exists()


def _epoch_of(scv: object) -> str:
    [follower] = scv.followers.values()  # type: ignore[attr-defined]
    return str(follower.epoch)


async def test_first_answer_wins_and_the_other_front_end_sees_who_decided(
    daemon: Daemon,
) -> None:
    place = daemon.place
    place.model.call("bash", {"command": "echo hi"})
    place.model.say("done")
    async with (
        daemon.front_end(HOLD, client_id="quick") as quick,
        daemon.front_end(HOLD, client_id="late") as late,
    ):
        session = await quick.create()
        follower, _ = await late.attach(session.id)
        turn = await session.start()
        quick_question, late_question = await quick.question(), await late.question()
        assert quick_question.approval == late_question.approval

        quick_question.reply(quick_question.decision("once"))
        await late.until(lambda: late_question.withdrawn)
        await follower.end(turn)
        [seen] = follower.follower.of_type("approval.resolved")
        refusal = await late.refused(
            "approval/answer",
            approvalId=late_question.approval["approvalId"],
            **late_question.decision("deny"),
        )

        assert seen["decision"] == "allowed"
        assert seen["by"] == {"clientId": "quick", "name": "kit"}
        assert refusal.code == 4245
        assert refusal.data["decision"] == "allowed"
        assert refusal.data["by"]["clientId"] == "quick"
        assert (await session.end(turn))["status"] == "completed"


async def test_many_front_ends_see_the_same_events(daemon: Daemon) -> None:
    daemon.place.model.call("bash", {"command": "echo hi"})
    daemon.place.model.say("done")
    async with AsyncExitStack() as stack:
        front_ends = [
            await stack.enter_async_context(
                daemon.front_end(DENY if number else ALLOW, client_id=f"n{number}")
            )
            for number in range(6)
        ]
        session = await front_ends[0].create()
        for each in front_ends[1:]:
            await each.attach(session.id)
        turn = await session.start()
        told = []
        for each in front_ends:
            await each.until(lambda each=each: each.followers[session.id].ended)
            events = each.followers[session.id].events
            start = next(
                i for i, e in enumerate(events) if e["type"] == "turn.accepted"
            )
            told.append(
                [e for e in events[start:] if not e["type"].startswith("client")]
            )

        assert turn in front_ends[3].followers[session.id].ended
        assert all(each == told[0] for each in told)


@pytest.mark.parametrize(
    ("policy", "config", "asked", "status"),
    [
        ("on-risk", {}, True, "completed"),
        ("on-risk", {"approval": "never"}, False, "denied"),
        ("never", {"approval": "on-risk"}, False, "denied"),
        ("always", {"approval": "on-risk"}, True, "completed"),
    ],
)
async def test_each_session_has_its_policy_and_never_a_looser_one(
    place: Place, policy: str, config: dict[str, str], asked: bool, status: str
) -> None:
    place.configure(f'[tools]\napproval_policy = "{policy}"')
    place.model.call("bash", {"command": "echo hi"})
    place.model.say("done")
    with served(place) as daemon:
        async with daemon.front_end(ALLOW) as front_end:
            session = await front_end.create(config=config)
            await session.prompt()

            assert bool(front_end.questions) is asked
            assert [item["status"] for item in session.items("tool_call")] == [status]


async def test_commands_get_the_environment_of_the_front_end(daemon: Daemon) -> None:
    model = daemon.place.model
    path = os.environ["PATH"]
    async with daemon.front_end(ALLOW) as front_end:
        session = await front_end.create(environment={"PATH": path, "MARK": "mine"})
        model.call("bash", {"command": "echo $MARK"})
        model.say("done")
        with anyio.fail_after(WAIT_SECONDS):
            await session.prompt()

        assert "mine" in session.results()[0]
