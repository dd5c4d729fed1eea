"""`scv approvals`: questions of the running server, answered from a shell."""

import json

import pytest
from anyio import to_thread

from tests.daemon.kit import Daemon, Done, scv
from tests.server.kit import HOLD, Place

pytestmark = pytest.mark.anyio

LONG = "echo " + "long " * 12_000 + "; touch written"


async def command(place: Place, *arguments: str) -> Done:
    """Run a command while this process goes on as a front end."""
    return await to_thread.run_sync(lambda: scv(place, *arguments))


async def test_list_shows_the_whole_of_what_would_run(daemon: Daemon) -> None:
    place = daemon.place
    content = "".join(f"line {number}\n" for number in range(500))
    place.model.calls(
        ("bash", {"command": LONG}),
        ("write", {"path": "new.txt", "content": content, "mode": "create"}),
    )
    place.model.say("done")
    nothing = await command(place, "approvals", "list")
    async with daemon.front_end(HOLD) as front:
        session = await front.create()
        turn = await session.start()
        first = await front.question()
        assert first.approval["shortened"]

        shown = await command(place, "approvals", "list")
        as_json = await command(place, "approvals", "list", "--json")
        allowed = await command(
            place, "approvals", "answer", first.approval["approvalId"], "allow"
        )
        second = await front.question(1)
        patch = await command(place, "approvals", "list")
        await command(
            place, "approvals", "answer", second.approval["approvalId"], "deny"
        )
        await session.end(turn)

    assert "No question waits" in nothing.out
    for done in (shown, allowed):
        assert (done.status, done.err) == (0, "")
        for part in (LONG, "[process]", "Run a shell command"):
            assert part in done.out
        assert first.approval["approvalId"] in done.out
    assert allowed.out.endswith("Allowed once.\n")
    assert json.loads(as_json.out) == {"approvals": [first.approval]}
    assert (place.workspace / "written").exists()
    for part in ("[filesystem]", "create new.txt", "+line 0\n", "+line 499\n"):
        assert part in patch.out
    assert not (place.workspace / "new.txt").exists()


async def test_denial_tells_the_model_why(daemon: Daemon) -> None:
    place = daemon.place
    place.model.call("bash", {"command": "printf '\x1b[2J'; touch written"})
    place.model.say("then not")
    async with daemon.front_end(HOLD) as front:
        session = await front.create()
        turn = await session.start()
        approval_id = (await front.question()).approval["approvalId"]

        done = await command(
            place,
            *("approvals", "answer", approval_id, "deny"),
            *("--feedback", "use the test database"),
        )

        await session.end(turn)
    assert (done.status, done.err) == (0, "")
    assert done.out.endswith("Denied.\n")
    assert "\x1b" not in done.out
    assert "use the test database" in json.dumps(place.model.requests[-1].json)
    assert not (place.workspace / "written").exists()


async def test_late_answer_says_who_decided_and_when(daemon: Daemon) -> None:
    place = daemon.place
    place.model.call("bash", {"command": "touch written"})
    place.model.say("done")
    async with daemon.front_end(HOLD) as front:
        session = await front.create()
        turn = await session.start()
        question = await front.question()
        question.reply(question.decision("deny"))
        await session.end(turn)
        [resolved] = session.follower.of_type("approval.resolved")

        approval_id = question.approval["approvalId"]
        done = await command(place, "approvals", "answer", approval_id, "allow")

    assert (done.status, done.out) == (1, "")
    assert f"too late: already denied by {resolved['by']['name']} at 2" in done.err
    assert not (place.workspace / "written").exists()


async def test_wrong_answers_decide_nothing(daemon: Daemon) -> None:
    place = daemon.place
    place.model.calls(
        ("bash", {"command": "touch one"}), ("bash", {"command": "touch two"})
    )
    place.model.say("done")

    async def check(status: int, part: str, *arguments: str) -> None:
        done = await command(place, "approvals", "answer", *arguments)
        assert (done.status, done.out) == (status, ""), done
        assert part in done.err
        assert done.err.startswith("scv: ")

    async with daemon.front_end(HOLD) as front:
        session = await front.create()
        turn = await session.start()
        question = await front.question()
        approval_id = question.approval["approvalId"]

        await check(2, "allow or deny", approval_id, "perhaps")
        await check(1, "no question", approval_id[:-1], "allow")
        await check(1, "no question", "a_none", "allow")
        await check(2, "4096", approval_id, "allow", "--feedback", "x" * 4097)

        waiting = await front.call("approval/list", sessionId=session.id)
        assert question.approval in waiting["approvals"]
        await session.cancel(turn)
        await session.end(turn)
        await check(1, "already cancelled by the server", approval_id, "allow")
    assert not (place.workspace / "one").exists()


def test_without_a_running_server_there_is_no_question(place: Place) -> None:
    for arguments in (["list"], ["answer", "a_1", "allow"]):
        done = scv(place, "approvals", *arguments)

        assert (done.status, done.out) == (1, "")
        assert "scv run" in done.err


async def test_delete_of_a_busy_session_needs_force(daemon: Daemon) -> None:
    place = daemon.place
    place.model.call("bash", {"command": "touch written"})
    async with daemon.front_end(HOLD) as front:
        session = await front.create()
        await session.start()
        await front.question()

        busy = await command(place, "sessions", "delete", session.id, "--yes")
        gone = await command(
            place, "sessions", "delete", session.id, "--yes", "--force"
        )
        front.followers.pop(session.id)

        assert (busy.status, gone.status) == (1, 0), busy.err + gone.err
        assert "turn is running" in busy.err
        refused = await front.refused("session/get", sessionId=session.id)
        assert refused.code == 4201
    assert not (place.workspace / "written").exists()
