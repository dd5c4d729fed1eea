"""Sessions: lists, updates, closing, following, paging, coming back after a restart."""

from threading import Event

import pytest
from anyio import create_task_group

from tests.fakes.model_server import (
    HANG,
    USAGE,
    Answer,
    Request,
    completed,
    delta,
    done,
    message,
)
from tests.server.kit import ALLOW, HOLD, Json, Place, Scv

pytestmark = pytest.mark.anyio


async def pages(scv: Scv, limit: int, **params: object) -> list[list[str]]:
    """Read a whole list in pages of titles."""
    found: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await scv.call("session/list", limit=limit, **cursor, **params)
        found.append([row["title"] for row in page["sessions"]])
        if page["nextCursor"] is None:
            return found
        cursor = {"cursor": page["nextCursor"]}


async def test_the_list_of_sessions(place: Place) -> None:
    other = place.workspace / "other"
    other.mkdir()

    async with place.server() as scv:
        for number in range(5):
            await scv.create(title=f"no {number}", attach=False)
        elsewhere = await scv.create(other, title="Elsewhere 100%", attach=False)

        whole = [title for page in await pages(scv, 200) for title in page]
        assert whole == ["Elsewhere 100%", *(f"no {n}" for n in range(4, -1, -1))]
        for limit in (1, 2, 3, 6):
            found = await pages(scv, limit)
            assert [title for page in found for title in page] == whole
            assert all(len(page) == limit for page in found[:-1])
        await scv.call("session/update", sessionId=elsewhere.id, archived=True)

        async def titles(**params: object) -> list[str]:
            return [title for page in await pages(scv, 2, **params) for title in page]

        assert await titles(workspace=str(other)) == ["Elsewhere 100%"]
        assert await titles(workspace=other.as_uri()) == ["Elsewhere 100%"]
        assert await titles(archived=True) == ["Elsewhere 100%"]
        assert len(await titles(archived=False)) == 5
        assert await titles(query="NO 3") == ["no 3"]
        assert await titles(query="0%") == ["Elsewhere 100%"]
        assert await titles(query="_") == []
        assert await titles(state=["running"]) == []
        assert len(await titles(state=["idle", "failed"])) == 6
        for cursor in ("", "nonsense", "MTIz", "🍸"):
            error = await scv.refused("session/list", cursor=cursor)
            assert error.code == 4203


async def test_states_in_the_list(place: Place) -> None:
    place.model.fail(400, {"error": {"message": "no"}})
    place.model.call("bash", {"command": "true"})

    async with place.server(HOLD) as scv:
        failed = await scv.create(title="failed")
        await failed.prompt()
        asking = await scv.create(title="asking")
        turn = await asking.start()
        question = await scv.question()
        running = await scv.create(title="running")
        place.model.raw(HANG)
        other = await running.start()
        await running.state(other, "model")
        await scv.create(title="idle")

        listed = await scv.call("session/list")
        states = {row["title"]: row["state"] for row in listed["sessions"]}
        assert states == {
            "failed": "failed",
            "asking": "needs_approval",
            "running": "running",
            "idle": "idle",
        }
        await running.cancel(other)
        question.reply(question.decision("stop"))
        await asking.end(turn)
        await running.end(other)
    async with place.server() as scv:
        listed = await scv.call("session/list")
        states = {row["title"]: row["state"] for row in listed["sessions"]}
        assert states == {
            "failed": "failed",
            "asking": "idle",
            "running": "idle",
            "idle": "idle",
        }


async def test_update_with_a_revision(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create(title="one")
        by = {"sessionId": session.id}
        updated = await scv.call("session/update", title="two", ifRev=1, **by)
        assert updated["session"]["rev"] == 2
        stale = await scv.refused("session/update", title="three", ifRev=1, **by)
        assert stale.code == 4242
        assert stale.data["rev"] == 2
        assert stale.data["session"]["title"] == "two"
        again = await scv.call("session/update", archived=True, ifRev=2, **by)
        assert again["session"]["archived"] is True
        wrong = await scv.refused("session/update", config={"provider": "none"}, **by)
        assert wrong.code == 4291
        kept = await scv.call("session/get", **by)

        assert kept["session"]["rev"] == 3
        assert kept["session"]["config"] == {}
        changes = session.follower.of_type("session.updated")
        assert [data["rev"] for data in changes] == [2, 3]
        assert changes[0]["title"] == "two"
        await session.works(place.model)


async def test_titles_are_inert(place: Place) -> None:
    async with place.server() as scv:
        place.model.say("ok")
        session = await scv.create()
        await session.prompt("\x1b]0;owned\x07 hi\n2024 ERROR fake\u202e")
        view = await scv.call("session/get", sessionId=session.id)

        assert view["session"]["title"] == (
            r"\x1b]0;owned\x07 hi 2024 ERROR fake\u202e"
        )


async def test_close_and_cancel(place: Place) -> None:
    place.model.raw(delta("half"), HANG)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["half"])
        op_id = scv.op_id()
        closing = {"sessionId": session.id, "mode": "cancel", "opId": op_id}
        await scv.call("session/close", **closing)

        # what it caused was told before the answer
        assert session.follower.ended[turn]["status"] == "cancelled"
        assert await scv.call("session/close", **closing) == {}
        session, _ = await scv.attach(session.id)
        view = await scv.call("turn/get", sessionId=session.id, turnId=turn)
        assert view["turn"]["stopReason"] == "closed"
        await session.works(place.model)


async def test_close_and_drain(place: Place) -> None:
    gate = Event()
    place.model.say("all ", "of it", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["all "])
        async with create_task_group() as tasks:
            tasks.start_soon(close_draining, scv, session.id)
            view = await scv.call("session/get", sessionId=session.id)
            assert view["session"]["state"] == "running"
            gate.set()

        assert session.follower.ended[turn]["status"] == "completed"
        session, _ = await scv.attach(session.id)
        await session.works(place.model)


async def close_draining(scv: Scv, session_id: str) -> None:
    await scv.call("session/close", sessionId=session_id, mode="drain")


async def test_detach_never_stops_work(place: Place) -> None:
    gate = Event()
    place.model.say("one ", "two", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["one "])
        await scv.call("session/detach", sessionId=session.id)
        await scv.call("session/detach", sessionId=session.id)
        known = session.follower
        gate.set()
        session, attached = await scv.attach(session.id, known=known, history="full")
        ended = await session.end(turn)

        assert ended["status"] == "completed"
        assert session.texts() == ["one two"]
        kinds = [item["kind"] for item in attached["items"]]
        assert kinds == ["user_message", "assistant_message"]


async def test_history_in_pages(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        for number in range(4):
            place.model.say(f"answer {number}")
            await session.prompt(f"prompt {number}")
        whole = await session.history()
        ids = [item["id"] for item in whole]
        assert len(ids) == 8
        for limit in (1, 3, 8, 200):
            found: list[str] = []
            place_: Json = {}
            while True:
                page = await scv.call(
                    "session/history", sessionId=session.id, limit=limit, **place_
                )
                found = [item["id"] for item in page["items"]] + found
                if page["prev"] is None:
                    break
                place_ = {"before": page["prev"]}
            assert found == ids
            assert page["next"] is None or page["next"] in ids
        following = await scv.call(
            "session/history", sessionId=session.id, after=ids[2], limit=3
        )
        assert [item["id"] for item in following["items"]] == ids[3:6]
        _, tail = await scv.attach(
            session.id, known=session.follower, history="tail", tailItems=2
        )
        assert [item["id"] for item in tail["items"]] == ids[-2:]


async def test_resume_after_a_restart(place: Place) -> None:
    place.model.say("first")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        known = session.follower
    point = {"sessionId": session.id, "epoch": known.epoch}
    points = [
        {**point, "after": known.last},
        {"sessionId": "s_absent", "epoch": "e_1", "after": 3},
    ]
    async with place.server(resume=points) as scv:
        first, absent = scv.handshake["resumed"]
        assert first["status"] in ("current", "replaying")
        assert absent == {"sessionId": "s_absent", "status": "unknown"}
        follower = scv.followers[session.id]
        follower.items.update(known.items)
        scv.followers.pop("s_absent")
        session.scv.followers.clear()
        again = type(session)(scv, session.id)
        await again.works(place.model)
        last = follower.last
    for point_, status in (
        ({**point, "after": 1}, "replaying"),
        ({**point, "after": (last or 0) + 100_000}, "reset"),
        ({**point, "epoch": "e_other", "after": 1}, "reset"),
        ({"sessionId": session.id, "epoch": known.epoch, "after": -1}, "unknown"),
        ({"sessionId": 7, "after": 1}, "unknown"),
        ("no point", "unknown"),
    ):
        running = place.server(shake_hands=False)
        async with running as scv:
            block = {
                "protocol": {"major": 1, "minor": 0},
                "clientId": "front-end",
                "features": {"approvals": True},
                "resume": [point_],
            }
            follower = scv.expect(session.id, after=1)
            result = await scv.peer.request(
                "initialize", {"capabilities": {"experimental": {"scv": block}}}
            )
            (resumed,) = result["capabilities"]["experimental"]["scv"]["resumed"]
            assert resumed["status"] == status, point_
            scv.peer.notify("initialized")
            if status == "replaying":
                await scv.until(lambda f=follower: len(f.ended) == 2)
            else:
                scv.followers.clear()


async def test_replay_tiles_the_log(place: Place) -> None:
    for number in range(3):
        place.model.call("bash", {"command": f"echo {number}"})
        place.model.say("word " * 50)

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        for _ in range(3):
            await session.prompt()
        follower = session.follower
        for limit in (1, 700, 5000, 1_000_000):
            last, events = 0, []
            while True:
                page = await scv.call(
                    "session/replay",
                    sessionId=session.id,
                    epoch=follower.epoch,
                    after=last,
                    limitBytes=limit,
                )
                assert page["from"] == last + 1
                assert page["to"] >= last
                last = page["to"]
                events += page["events"]
                if page["complete"]:
                    break
            assert last == follower.last
            ends = [e for e in events if e["type"] == "turn.ended"]
            assert len(ends) == 3
            full = {
                e["itemId"]: e["data"]["item"]
                for e in events
                if e["type"] == "item.completed"
            }
            assert full == follower.items
        wrong = await scv.refused(
            "session/replay", sessionId=session.id, epoch="e_other", after=0
        )
        assert wrong.code == 4244
        beyond = await scv.refused(
            "session/replay",
            sessionId=session.id,
            epoch=follower.epoch,
            after=(follower.last or 0) + 1,
        )
        assert beyond.code == 4244
        other = await scv.refused(
            "session/attach", sessionId=session.id, epoch="e_other", after=0
        )
        assert other.code == 4244


async def test_a_session_lives_on_in_the_next_server(place: Place) -> None:
    place.model.say("I am the first")
    place.model.say("and I remember")

    async with place.server() as scv:
        session = await scv.create(config={"approval": "never"})
        await session.prompt("remember 4711")
        before = await session.history()
    async with place.server() as scv:
        session, attached = await scv.attach(session.id, history="full")
        assert attached["items"] == before
        assert attached["session"]["config"] == {"approval": "never"}
        assert attached["session"]["title"] == "remember 4711"
        await session.prompt("what was it?")
        assert session.texts() == ["and I remember"]
    assert "4711" in place.model.requests[1].input[0]["content"]


async def test_many_sessions_at_once_do_not_mix(place: Place) -> None:
    def answer(request: Request) -> Answer:
        text = f"echo {request.input[-1]['content']}"
        return Answer([delta(text), done(message(text)), completed(USAGE)])

    place.model.on_request = answer

    async with place.server() as scv:
        sessions = [await scv.create() for _ in range(8)]
        turns = [await s.start(f"number {n}") for n, s in enumerate(sessions)]
        for number, (session, turn) in enumerate(zip(sessions, turns, strict=True)):
            await session.end(turn)
            assert session.texts() == [f"echo number {number}"]


async def test_attaching_twice_tells_everything_once(place: Place) -> None:
    place.model.say("ok")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        session, _ = await scv.attach(session.id)
        session, _ = await scv.attach(session.id)
        place.model.say("still ok")
        await session.prompt("again")  # a second stream would repeat numbers
        snapshot = await scv.call("session/get", sessionId=session.id)

        assert len(snapshot["clients"]) == 1
