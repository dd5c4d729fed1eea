"""A disk that is full or read-only: a clear refusal, nothing half done, then on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scv.rpc import RemoteError
from tests.crash.story import text_input
from tests.server.kit import HOLD, Place, Session

pytestmark = pytest.mark.anyio

STORE_FAILED = 4290


@pytest.fixture
def small_disk(place: Place) -> Iterator[Path]:
    """Put the home on a disk of 3 MiB of its own, where this user may."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs"]
    done = subprocess.run([*mount, place.home], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")
    place.configure()

    yield place.home

    subprocess.run(["umount", "-l", place.home], check=True)


def check_refusal(error: RemoteError, home: Path, remedy: str) -> None:
    """Hold a refusal against what a person needs: where, why, what to do."""
    assert error.code == STORE_FAILED
    assert isinstance(error.data, dict)
    assert error.data["code"] == "store.failed"
    assert str(home / "state" / "sessions.db") in error.message
    assert remedy in error.message


async def fill_up(session: Session, place: Place) -> None:
    """Write and prompt until not even the shortest prompt can be kept."""
    filler = (place.home / "filler").open("wb", buffering=0)
    with filler:
        try:
            while filler.write(bytes(4096)) == 4096:
                pass
        except OSError:
            pass
    for size in (200_000, 20_000, 1):
        for _ in range(100):
            place.model.say("kept")
            try:
                await session.prompt("x" * size)
            except RemoteError as error:
                check_refusal(error, place.home, "free some space")
                break
        else:
            raise AssertionError("the disk does not fill")


async def test_a_full_disk_refuses_whole_prompts_and_answers_and_then_goes_on(
    place: Place, small_disk: Path
) -> None:
    place.model.call("bash", {"command": "echo ran >> lines"})
    async with place.server(HOLD) as scv:
        asking = await scv.create()
        asked = await asking.start("please run it")
        question = await scv.question()
        session, new_one = await scv.create(), await scv.create()
        place.model.say("kept")
        await session.prompt("again")
        await fill_up(session, place)
        told = len(session.follower.events)
        kept = await session.history()

        refused = {"input": text_input("again"), "opId": "op-refused"}
        for _ in range(2):  # an error is no stored result
            error = await scv.refused("turn/start", sessionId=session.id, **refused)
            check_refusal(error, place.home, "free some space")
        error = await scv.refused(
            "approval/answer",
            approvalId=question.approval["approvalId"],
            opId="op-yes",
            **question.decision("once"),
        )
        check_refusal(error, place.home, "free some space")
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert snapshot["session"]["state"] == "idle"
        assert await session.history() == kept
        await scv.refused("turn/start", sessionId=new_one.id, input=text_input("a"))
        untouched = await scv.call("session/get", sessionId=new_one.id)
        assert untouched["session"]["title"] == ""
        assert untouched["turn"] is None
        assert new_one.follower.of_type("turn.accepted") == []
        assert new_one.follower.of_type("turn.state") == []
        new = [event["type"] for event in session.follower.events[told:]]
        assert [kind for kind in new if kind.startswith(("turn.", "item."))] == []
        assert not (place.workspace / "lines").exists()
        still_open = await scv.call("session/get", sessionId=asking.id)
        assert [x["approvalId"] for x in still_open["approvals"]] == [
            question.approval["approvalId"]
        ]

        (small_disk / "filler").unlink()
        place.model.say("it ran")
        await scv.call(
            "approval/answer",
            approvalId=question.approval["approvalId"],
            opId="op-yes",
            **question.decision("once"),
        )
        assert (await asking.end(asked))["status"] == "completed"
        assert (place.workspace / "lines").read_text() == "ran\n"
        place.model.say("kept now")
        result = await scv.call("turn/start", sessionId=session.id, **refused)
        assert (await session.end(result["turnId"]))["status"] == "completed"
        prompts = [x for x in place.model.requests[-1].input if x.get("role") == "user"]
        assert len(prompts) == len(session.items("user_message")), "history was kept"
    async with place.server() as scv:
        for each in (asking.id, session.id):
            again, attached = await scv.attach(each, history="full")
            stored = await again.history()
            assert attached["items"] == stored
        assert [item.get("opId") for item in stored].count("op-refused") == 1
        place.model.say("still here")
        assert (await again.prompt("after all"))["status"] == "completed"


async def test_a_read_only_home_is_named_with_the_remedy(
    place: Place, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,ro", place.home], check=True)

    async with place.server() as scv:
        for _ in range(2):
            error = await scv.refused(
                "session/create", workspace={"root": str(place.workspace)}
            )
            assert error.code == STORE_FAILED
            assert str(place.home / "state") in error.message
            assert "writable" in error.message
            assert "SCV_HOME" in error.message
        subprocess.run(["mount", "-o", "remount,rw", place.home], check=True)

        session = await scv.create()
        place.model.say("works now")
        assert (await session.prompt())["status"] == "completed"
