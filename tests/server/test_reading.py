"""Sessions that are only looked at: nobody is kept from running them."""

import pytest

from scv.core.records import TurnRecord
from scv.store import open_store
from tests.server.kit import ALLOW, HOLD, Json, Place, Session

pytestmark = pytest.mark.anyio


def lock_files(place: Place) -> list[str]:
    folder = place.home / "state" / "locks"
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


async def look(session: Session, epoch: str | None) -> list[Json]:
    """Read a session in every way that reading has; returns its items."""
    scv, by = session.scv, {"sessionId": session.id}
    seen = await scv.call("session/get", **by)
    assert seen["clients"] == []
    assert seen["turn"]["status"] == "completed"
    turn = await scv.call("turn/get", turnId=seen["turn"]["id"], **by)
    assert turn["turn"] == seen["turn"]
    assert (await scv.call("approval/list", **by))["approvals"] == []
    events, last = [], 0
    while True:
        page = await scv.call(
            "session/replay", epoch=epoch, after=last, limitBytes=500, **by
        )
        events += page["events"]
        last = page["to"]
        if page["complete"]:
            break
    assert last == seen["session"]["lastSeq"]
    assert [e["type"] for e in events].count("turn.ended") == 1
    return await session.history()


async def test_a_session_that_is_looked_at_can_be_run_elsewhere(place: Place) -> None:
    place.model.call("bash", {"command": "echo hello"})
    place.model.say("done")

    async with place.server(ALLOW) as scv:
        session = await scv.create(title="seen")
        await session.prompt()
        epoch, items = session.follower.epoch, await session.history()
    async with place.server() as first, place.server(client_id="second") as second:
        for scv in (first, second):
            assert await look(Session(scv, session.id), epoch) == items
        assert lock_files(place) == []
        for method, more in (
            ("replay", {"epoch": "e_other", "after": 0}),
            ("replay", {"epoch": epoch, "after": 10_000}),
        ):
            error = await first.refused(
                f"session/{method}", sessionId=session.id, **more
            )
            assert error.code == 4244
        running, _ = await second.attach(session.id)
        await running.works(place.model)
        assert await Session(first, session.id).history() == await running.history()


async def test_a_session_that_another_process_runs_can_be_read(place: Place) -> None:
    place.model.call("bash", {"command": "echo hello"})
    place.model.say("done")

    async with place.server(HOLD) as owner, place.server(client_id="other") as reader:
        session = await owner.create()
        turn = await session.start()
        question = await owner.question()
        by = {"sessionId": session.id}
        await owner.call("session/update", title="kept", **by)

        seen = await reader.call("session/get", **by)
        assert seen["session"]["title"] == "kept"
        assert seen["turn"]["id"] == turn
        assert "status" not in seen["turn"]
        assert [a["approvalId"] for a in seen["approvals"]] == [
            question.approval["approvalId"]
        ]
        listed = await reader.call("approval/list", **by)
        assert listed["approvals"] == seen["approvals"]
        page = await reader.call(
            "session/replay", epoch=session.follower.epoch, after=0, **by
        )
        assert "approval.requested" in [event["type"] for event in page["events"]]
        items = await Session(reader, session.id).history()
        assert [item["kind"] for item in items] == ["user_message", "tool_call"]
        error = await reader.refused("session/attach", **by)
        assert error.code == 4240
        question.reply(question.decision("once"))
        assert (await session.end(turn))["status"] == "completed"


async def test_what_a_dead_process_left_is_at_rest_for_who_reads_it(
    place: Place,
) -> None:
    place.model.say("done")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        by = {"sessionId": session.id}
        await scv.call("session/close", mode="cancel", **by)
        # another process begins a turn and dies
        async with open_store(str(place.home / "state")) as store:
            left = TurnRecord("t_left", session.id, "model", 1_900_000_000_000, "c")
            await store.commit((left,))

        seen = await scv.call("session/get", **by)
        assert seen["turn"]["id"] == "t_left"
        assert seen["turn"]["status"] == "interrupted"
        assert seen["session"]["state"] == "idle"
        assert lock_files(place) == []
        for method in ("session/get", "session/history", "approval/list"):
            error = await scv.refused(method, sessionId="s_absent")
            assert error.code == 4201
        scv.followers.pop(session.id)
        session, _ = await scv.attach(session.id)
        await session.works(place.model)
