"""Mutating calls run once: also at the same time, and after a restart."""

from typing import Any

import pytest
from anyio import create_task_group

from tests.server.kit import ALLOW, Json, Place

pytestmark = pytest.mark.anyio


def prompt(session_id: str, text: str = "go") -> Json:
    return {"sessionId": session_id, "input": [{"type": "text", "text": text}]}


async def test_the_same_call_again_gives_the_same_result(place: Place) -> None:
    place.model.say("once")

    async with place.server() as scv:
        workspace = {"root": str(place.workspace)}
        first = await scv.call("session/create", opId="c", workspace=workspace)
        again = await scv.call("session/create", opId="c", workspace=workspace)
        assert first == again
        session_id = first["session"]["id"]
        started = await scv.call("turn/start", opId="t", **prompt(session_id))
        await scv.until(lambda: scv.followers[session_id].ended)
        repeated = await scv.call("turn/start", opId="t", **prompt(session_id))
        titled = await scv.call(
            "session/update", opId="u", sessionId=session_id, title="one"
        )
        await scv.call("session/update", sessionId=session_id, title="two")
        assert titled == await scv.call(
            "session/update", opId="u", sessionId=session_id, title="one"
        )

        assert started == repeated
        assert len(place.model.requests) == 1
        listed = await scv.call("session/list")
        assert [row["title"] for row in listed["sessions"]] == ["two"]


async def test_other_params_under_the_same_id_are_a_conflict(place: Place) -> None:
    place.model.say("once")

    async with place.server() as scv:
        session = await scv.create()
        await scv.call("turn/start", opId="t", **prompt(session.id))
        await scv.until(lambda: session.follower.ended)
        other_text = await scv.refused(
            "turn/start", opId="t", **prompt(session.id, "x")
        )
        other_method = await scv.refused(
            "session/update", opId="t", sessionId=session.id, title="x"
        )

        for error in (other_text, other_method):
            assert (error.code, error.data["code"]) == (4204, "op.conflict")
        assert len(place.model.requests) == 1
        await session.works(place.model)


async def test_errors_are_not_remembered(place: Place) -> None:
    async with place.server() as scv:
        missing = place.workspace / "later"
        params: Json = {"opId": "c", "workspace": {"root": str(missing)}}
        error = await scv.refused("session/create", **params)
        missing.mkdir()
        created = await scv.call("session/create", **params)

        assert error.code == 4230
        assert created["session"]["workspace"]["root"] == str(missing)


async def test_concurrent_copies_of_a_call_run_once(place: Place) -> None:
    place.model.say("once")
    results: list[Json] = []

    async with place.server() as scv:
        session = await scv.create()

        async def start() -> None:
            results.append(await scv.call("turn/start", opId="t", **prompt(session.id)))

        async with create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(start)
        await session.end(results[0]["turnId"])

        assert results == [results[0]] * 8
        assert len(session.items("user_message")) == 1
        assert len(place.model.requests) == 1


async def test_a_repeated_call_after_a_restart(place: Place) -> None:
    place.model.call("bash", {"command": "echo x >> log"})
    place.model.say("once")
    workspace = {"root": str(place.workspace)}

    async with place.server(ALLOW) as scv:
        created = await scv.call("session/create", opId="c", workspace=workspace)
        session_id = created["session"]["id"]
        started = await scv.call("turn/start", opId="t", **prompt(session_id))
        await scv.until(lambda: scv.followers[session_id].ended)
        last = scv.followers[session_id].last
    async with place.server(ALLOW) as scv:
        follower = scv.expect(session_id, after=None)
        again = await scv.call("session/create", opId="c", workspace=workspace)
        assert again == created
        # it is attached, as it asked to be, and hears the whole history
        await scv.until(lambda: (follower.last or 0) >= (last or 0))
        assert follower.begins_after == 0
        assert again["seq"] == 0
        assert started == await scv.call("turn/start", opId="t", **prompt(session_id))
        conflict = await scv.refused("turn/start", opId="t", **prompt(session_id, "y"))

        assert conflict.code == 4204
        assert len(place.model.requests) == 2
    assert (place.workspace / "log").read_text() == "x\n"


async def test_operations_of_two_clients_are_their_own(place: Place) -> None:
    workspace = {"root": str(place.workspace)}
    made: list[Any] = []
    for client_id in ("one", "two"):
        async with place.server(client_id=client_id) as scv:
            created = await scv.call("session/create", opId="c", workspace=workspace)
            made.append(created["session"]["id"])

    assert made[0] != made[1]


async def test_a_blob_upload_is_idempotent(place: Place) -> None:
    async with place.server() as scv:
        session = await scv.create()
        first = await scv.call(
            "blob/put", opId="b", sessionId=session.id, data="aGk=", last=False
        )
        again = await scv.call(
            "blob/put", opId="b", sessionId=session.id, data="aGk=", last=False
        )
        done = await scv.call("blob/put", sessionId=session.id, data="IQ==", **first)
        read = await scv.call("blob/read", blobId=done["blobId"])

        assert first == again
        assert read["totalBytes"] == 3
