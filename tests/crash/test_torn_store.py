"""TURN.6 through a server: what is left of a cut or damaged store, and what is told."""

import random
import shutil
from pathlib import Path

import anyio
import pytest

from tests.crash.story import say
from tests.fakes.model_server import Answer, Request
from tests.server.kit import Place, Session, talk

pytestmark = pytest.mark.anyio

CUTS = 20
AT_ONCE = 2
CUT_BYTES = 512
LONGEST_LOG_BYTES = 128 * 1024
_HEADER_BYTES, _FRAME_BYTES = 32, 24 + 4096


def always_ok(request: Request) -> Answer:
    """Answer whatever is asked."""
    return say("ok")


async def make_log(place: Place) -> tuple[str, list[tuple[str, int]]]:
    """Make a session whose newest turns are in the log only.

    Returns its id, and for each prompt its operation id and how long the log was
    when it was accepted.
    """
    place.model.on_request = always_ok
    async with place.server() as scv:
        session_id = (await scv.create()).id
        for number in range(3):
            session = Session(scv, session_id)
            await session.prompt(f"old {number}", opId=f"old-{number}")
    log = place.home / "state" / "sessions.db-wal"
    accepted = [(f"old-{number}", 0) for number in range(3)]
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            await scv.initialize()
            session, _ = await scv.attach(session_id)
            for number in range(100):
                turn = await session.start(f"new {number}", opId=f"new-{number}")
                size = log.stat().st_size
                if size > LONGEST_LOG_BYTES:
                    break
                accepted.append((f"new-{number}", size))
                await session.end(turn)
            running.process.kill()
            await scv.closed.wait()
    finally:
        running.kill()
    return session_id, accepted


async def look_at_cut(
    place: Place,
    home: Path,
    size: int,
    session_id: str,
    accepted: list[tuple[str, int]],
) -> None:
    """Start a server on a copy whose log is cut, and hold it against what was told."""
    shutil.copytree(place.home, home)
    log = home / "state" / "sessions.db-wal"
    with log.open("r+b") as file:
        file.truncate(size)
    is_torn = size > _HEADER_BYTES and (size - _HEADER_BYTES) % _FRAME_BYTES
    other = Place(home, place.workspace, place.model, {"SCV_HOME": str(home)})
    other.workspace = home.parent / f"{home.name}-workspace"
    other.workspace.mkdir()
    async with other.server() as scv:
        session, _ = await scv.attach(session_id, history="full")
        stored = await session.history()
        kept = [item["opId"] for item in stored if item["kind"] == "user_message"]
        wanted = [op_id for op_id, needed in accepted if needed <= size]
        assert kept[: len(wanted)] == wanted
        assert (await session.prompt("go on"))["status"] == "completed"
        notices = [text for text in session.notices() if "sessions.db-wal" in text]
        assert len(notices) == 1 or not is_torn, size


@pytest.mark.timeout(300)
async def test_turn_6_a_cut_log_costs_what_was_never_accepted_and_is_told(
    place: Place, tmp_path: Path, seed: int
) -> None:
    session_id, accepted = await make_log(place)
    log = place.home / "state" / "sessions.db-wal"
    longest = min(log.stat().st_size, LONGEST_LOG_BYTES)
    assert longest > CUTS * CUT_BYTES
    places = random.Random(seed).sample(range(0, longest, CUT_BYTES), CUTS)
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def look(size: int) -> None:
        async with limit:
            home = tmp_path / f"cut-{size}"
            await look_at_cut(place, home, size, session_id, accepted)

    async with anyio.create_task_group() as tasks:
        for size in places:
            tasks.start_soon(look, size)


@pytest.mark.parametrize("damage", ["head", "content"])
async def test_turn_6_a_damaged_main_file_is_set_aside_and_named(
    place: Place, damage: str
) -> None:
    place.model.on_request = always_ok
    async with place.server() as scv:
        first, second = await scv.create(), await scv.create()
        await first.prompt("the damaged prompt")
        await second.prompt("the other prompt")
    state = place.home / "state"
    main = state / "sessions.db"
    content = bytearray(main.read_bytes())
    if damage == "head":
        content[:100] = b"\x5a" * 100
    else:
        content[content.index(b"the damaged prompt")] ^= 1
    main.write_bytes(content)

    async with place.server() as scv:
        listed = await scv.call("session/list")
        assert second.id in [row["id"] for row in listed["sessions"]]
        again, _ = await scv.attach(second.id, history="full")
        texts = [
            item["parts"][0]["text"]
            for item in await again.history()
            if item["kind"] == "user_message"
        ]
        assert texts == ["the other prompt"]
        if first.id in [row["id"] for row in listed["sessions"]]:
            damaged, _ = await scv.attach(first.id, history="full")
            assert (await damaged.prompt("go on"))["status"] == "completed"
        assert (await again.prompt("go on"))["status"] == "completed"

        (kept,) = state.glob("sessions.db.damaged-*Z")
        notices = [text for text in again.notices() if str(kept) in text]
        assert len(notices) == 1
    assert kept.read_bytes()[100:] == bytes(content)[100:]
