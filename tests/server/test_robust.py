"""What must not take the server down, or more than it concerns."""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event

import psutil
import pytest
from anyio import create_task_group, to_thread

from scv.core.records import EventRecord, ItemRecord, SessionRecord, TurnRecord
from scv.rpc import RemoteError
from scv.store import open_store
from scv.store._schema import MIGRATIONS
from tests.server.kit import ALLOW, Json, Place, Scv, talk

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000_000


def handshake(**scv: object) -> Json:
    block = {"protocol": {"major": 1, "minor": 0}, "clientId": "front-end", **scv}
    return {"capabilities": {"experimental": {"scv": block}}}


# --- the handshake ---


@pytest.mark.parametrize("number", [2**40, 2**80, 0, -1, -(2**40)])
async def test_a_parent_number_of_no_process_is_not_watched(
    place: Place, number: int
) -> None:
    async with place.server(shake_hands=False) as scv:
        await scv.peer.request("initialize", {**handshake(), "processId": number})
        scv.peer.notify("initialized")
        session = await scv.create()
        await session.works(place.model)


@pytest.mark.parametrize("role", ["Observer", "", "admin", None, 3, [], {}])
async def test_an_unknown_role_is_refused(place: Place, role: object) -> None:
    async with place.server(shake_hands=False) as scv:
        with pytest.raises(RemoteError) as caught:
            await scv.peer.request("initialize", handshake(role=role))
        assert caught.value.code == -32602
        assert caught.value.data["path"].endswith("scv.role")

        await scv.initialize(role="observer")
        error = await scv.refused("session/create", workspace={"root": "/"})
        assert error.code == 4233


async def test_rpc_a_second_initialize_right_behind_the_first_is_refused(
    place: Place,
) -> None:
    answers: list[int] = []

    async def ask(scv: Scv, role: str) -> None:
        point = {"sessionId": "s_absent", "epoch": "e", "after": 1}
        params = handshake(role=role, resume=[point])
        try:
            await scv.peer.request("initialize", params)
            answers.append(0)
        except RemoteError as error:
            answers.append(error.code)

    async with place.server(shake_hands=False) as scv:
        async with create_task_group() as tasks:
            for role in ("controller", "observer", "observer"):
                tasks.start_soon(ask, scv, role)
        assert sorted(answers) == [-32600, -32600, 0]
        scv.peer.notify("initialized")
        session = await scv.create()  # so the first one counted
        await session.works(place.model)


# --- the store ---


async def damaged_session(place: Place, session_id: str) -> None:
    """Leave a session whose last owner died, and that cannot be brought to rest."""
    record = SessionRecord(
        *(session_id, "broken", str(place.workspace), (), {}),
        *(NOW, NOW, 1, "e_1", 3, 10_000),
    )
    body = {"id": "i_1", "kind": "assistant_message", "status": "in_progress"}
    async with open_store(str(place.home / "state")) as store:
        await store.commit(
            (
                record,
                TurnRecord("t_1", session_id, "model", NOW, "c"),
                ItemRecord("i_1", session_id, "t_1", 1, "assistant_message", body),
                EventRecord(session_id, "e_1", 1, 3, "turn.state", None, b"{}"),
            )
        )


async def test_a_session_that_cannot_be_recovered_leaves_the_others_alone(
    place: Place,
) -> None:
    await damaged_session(place, "s_broken")
    point = {"sessionId": "s_broken", "epoch": "e_1", "after": 1}
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            scv.root = place.workspace
            greeting = await scv.initialize(resume=[point])
            scv.followers.clear()
            assert greeting["resumed"] == [
                {"sessionId": "s_broken", "status": "unknown"}
            ]
            session = await scv.create()
            await session.works(place.model)
            for method in ("attach", "get", "history"):
                error = await scv.refused(f"session/{method}", sessionId="s_broken")
                assert error.code == 4290
                assert "s_broken" in error.message
            listed = await scv.call("session/list")
            assert {row["id"] for row in listed["sessions"]} == {
                "s_broken",
                session.id,
            }
    finally:
        running.kill()
    assert "s_broken" in running.stderr()


def set_version(place: Place, version: int) -> None:
    """Let the store be one of another SCV."""
    database = place.home / "state" / "sessions.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA user_version={version}")
        connection.execute("UPDATE meta SET value=? WHERE key='version'", (version,))


async def test_a_store_that_cannot_be_used_is_not_opened_again_and_again(
    place: Place,
) -> None:
    async with place.server() as scv:
        session = await scv.create()
    set_version(place, 99)
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            scv.root = place.workspace
            point = {"sessionId": session.id, "epoch": "e", "after": 1}
            greeting = await scv.initialize(resume=[point])
            scv.followers.clear()
            assert greeting["resumed"][0]["status"] == "unknown"
            process = psutil.Process(running.process.pid)
            used: list[tuple[int, int]] = []
            for _ in range(12):
                error = await scv.refused("session/list")
                assert error.code == 4290
                used.append((process.num_threads(), process.num_fds()))
            threads, files = zip(*used, strict=True)
            assert threads[-1] - threads[0] < 6, used
            assert files[-1] - files[0] < 6, used
            set_version(place, len(MIGRATIONS))
            listed = await scv.call("session/list")
            assert [row["id"] for row in listed["sessions"]] == [session.id]
    finally:
        running.kill()


async def test_events_kept_beyond_the_ceiling_are_never_numbered_again(
    place: Place,
) -> None:
    record = SessionRecord(
        *("s_far", "far", str(place.workspace), (), {}),
        *(NOW, NOW, 1, "e_1", 8, 10),
    )
    async with open_store(str(place.home / "state")) as store:
        events = [
            EventRecord(
                *("s_far", "e_1", number, number, "session.updated", None),
                json.dumps(
                    {"type": "session.updated", "at": NOW, "data": {"rev": number}}
                ).encode(),
            )
            for number in range(1, 15)
        ]
        await store.commit((record, *events))

    async with place.server() as scv:
        session, attached = await scv.attach("s_far")
        assert attached["lastSeq"] >= 14
        await session.works(place.model)
        page = await scv.call("session/replay", sessionId="s_far", epoch="e_1", after=0)
        told = [e["data"]["rev"] for e in page["events"] if e["at"] == NOW]
        assert told == list(range(1, 15))


# --- a disk that refuses ---


def spoil_blobs(place: Place) -> Path:
    """Let no further blob be kept."""
    blobs = place.home / "state" / "blobs"
    shutil.rmtree(blobs, ignore_errors=True)
    blobs.write_text("")
    return blobs


async def test_a_command_that_ran_is_told_even_if_its_output_cannot_be_kept(
    place: Place,
) -> None:
    command = "echo ran >> ledger; head -c 300000 /dev/zero | tr '\\0' x"
    place.model.call("bash", {"command": command})
    place.model.say("fine")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        spoil_blobs(place)
        turn = await session.prompt()

        assert turn["status"] == "completed"
        (item,) = session.items("tool_call")
        assert item["status"] == "completed"
        result = item["result"]
        assert result["success"] is True
        assert result["truncated"] is True
        assert "blobId" not in result
        assert "handle" not in result["output"]
        assert "xxxx" in result["output"]
    assert (place.workspace / "ledger").read_text() == "ran\n"
    told = place.model.requests[1].input[-1]["output"]
    assert "xxxx" in told
    assert "inside SCV" not in told


async def test_a_long_answer_ends_even_if_it_cannot_be_kept_whole(
    place: Place,
) -> None:
    text = "".join(f"{number:07} " for number in range(30_000))
    place.model.say(text)

    async with place.server() as scv:
        session = await scv.create()
        spoil_blobs(place)
        turn = await session.prompt()

        assert turn["status"] == "completed"
        (item,) = session.items("assistant_message")
        assert item["status"] == "completed"
        assert item["text"].startswith("0000000 ")
        assert item["text"].endswith("0029999 ")
        assert "blobId" not in item
        await session.works(place.model)


# --- texts of clients ---


async def test_texts_of_a_client_are_inert(place: Place) -> None:
    odd = "a\x1b[31m\nb\u202ec "
    place.model.say("one ", "two", gate=Event())

    async with place.server() as scv:
        session = await scv.create(title=odd, channel=odd)
        view = (await scv.call("session/get", sessionId=session.id))["session"]
        assert view["title"] == r"a\x1b[31m b\u202ec"
        assert view["channel"] == r"a\x1b[31m b\u202ec"
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["one "])
        await session.cancel(turn, reason=odd)
        ended = await session.end(turn)
        assert ended["stopReason"] == r"a\x1b[31m b\u202ec"


# --- closing ---


async def test_while_a_session_drains_no_new_turn_begins(place: Place) -> None:
    gate = Event()
    place.model.say("all ", "of it", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["all "])
        by = {"sessionId": session.id}

        async def close() -> None:
            await scv.call("session/close", mode="drain", opId="close", **by)

        async with create_task_group() as tasks:
            tasks.start_soon(close)
            await scv.call("session/get", **by)  # the close has come before it
            for method, more in (
                ("turn/start", {"input": [{"type": "text", "text": "more"}]}),
                ("session/update", {"title": "new"}),
            ):
                error = await scv.refused(method, **more, **by)
                assert error.data["code"] == "draining"
                assert error.data["retryable"] is True
            gate.set()

        assert session.follower.ended[turn]["status"] == "completed"
        assert await scv.call("session/close", mode="drain", opId="close", **by) == {}
        session, _ = await scv.attach(session.id)
        await session.works(place.model)
        assert len(place.model.requests) == 2


async def test_a_drain_that_is_taken_back_lets_prompts_in_again(place: Place) -> None:
    gate = Event()
    place.model.say("all ", "of it", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["all "])
        by = {"sessionId": session.id}

        async with create_task_group() as tasks:

            async def close() -> None:
                await scv.call("session/close", mode="drain", **by)

            tasks.start_soon(close)
            await scv.call("session/get", **by)
            tasks.cancel_scope.cancel()
        await scv.call("session/update", title="kept", **by)
        gate.set()
        await session.end(turn)
        await session.works(place.model)


async def test_a_close_that_was_answered_is_known_after_a_crash(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        closing = {"sessionId": session.id, "mode": "cancel", "opId": "close"}
        await scv.call("session/close", **closing)
    async with place.server() as scv:
        assert await scv.call("session/close", **closing) == {}
        other = {**closing, "mode": "drain"}
        assert (await scv.refused("session/close", **other)).code == 4204


# --- what a session asks of its model ---


async def test_the_effort_of_a_session_reaches_the_model(place: Place) -> None:
    for _ in range(3):
        place.model.say("ok")

    async with place.server() as scv:
        session = await scv.create(config={"effort": "high"})
        await session.prompt()
        for effort in ("low", ""):
            await scv.call(
                "session/update", sessionId=session.id, config={"effort": effort}
            )
            await session.prompt()
    efforts = [request.json.get("reasoning") for request in place.model.requests]
    assert efforts == [{"effort": "high"}, {"effort": "low"}, None]


async def test_the_key_of_a_profile_stays_at_its_origin(place: Place) -> None:
    async with place.server() as scv:
        root = {"root": str(place.workspace)}
        for address in ("http://127.0.0.1:1/v1", "https://example.com/v1"):
            config = {"baseUrl": address}
            error = await scv.refused("session/create", workspace=root, config=config)
            assert error.code == 4291
            assert "profile" in error.message
            assert place.model.key not in error.message
        session = await scv.create(config={"baseUrl": place.model.url})
        error = await scv.refused(
            "session/update", sessionId=session.id, config={"baseUrl": "http://a.b/"}
        )
        assert error.code == 4291
        await session.works(place.model)


# --- the log of a long command ---


async def test_the_log_keeps_only_the_newest_progress(place: Place) -> None:
    fifo = place.workspace / "lines"
    os.mkfifo(fifo)
    place.model.call("bash", {"command": "cat lines"})
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        by = {"sessionId": session.id, "after": 0}
        with await to_thread.run_sync(fifo.open, "wb", 0) as lines:
            for number in range(4):
                lines.write(b"line %d\n" % number)
                await scv.until(
                    lambda n=number: f"line {n}" in progress(session.items("tool_call"))
                )
            by["epoch"] = session.follower.epoch
            while_it_runs = await scv.call("session/replay", **by)
        await session.end(turn)
        afterwards = await scv.call("session/replay", **by)

        assert len(told_progress(session.follower.events)) >= 4
        (newest,) = told_progress(while_it_runs["events"])
        assert "line 3" in newest
        assert told_progress(afterwards["events"]) == []
        assert afterwards["to"] == session.follower.last
        follower = scv.expect(session.id, after=0)
        follower.take(afterwards)
        assert set(follower.ended) == {turn}


def progress(items: list[Json]) -> str:
    return str(items[0].get("progress", ""))


def told_progress(events: list[Json]) -> list[str]:
    return [
        event["data"]["patch"]["progress"]
        for event in events
        if event["type"] == "item.updated" and "progress" in event["data"]["patch"]
    ]
