"""kill -9 at any moment: nothing accepted is lost, nothing runs twice."""

import random
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

import anyio
import pytest

from tests.crash.home import Home
from tests.crash.scenes import SCENES, Scene, any_event, until_death
from tests.crash.servers import HAS_STRACE
from tests.crash.story import Teller
from tests.server.kit import Place, Scv, Session, talk

pytestmark = pytest.mark.anyio

HOMES = 3
EVENT_KILLS, SYNC_KILLS = 1, 3
"""In each home, beside one kill in each scene."""


async def crash_often(home: Home) -> None:
    """Live through every scene once, in any order, then look at all of it."""
    plan: list[tuple[Scene, bool]] = [(scene, False) for scene in SCENES]
    plan += [(any_event, False)] * EVENT_KILLS
    plan += [(until_death if HAS_STRACE else any_event, HAS_STRACE)] * SYNC_KILLS
    home.dice.shuffle(plan)
    for scene, is_at_sync in plan:
        latest = 2 * len(home.ledgers) + 12  # coming back to a session may sync twice
        sync = home.dice.randint(1, latest) if is_at_sync else None
        await home.live(scene, sync=sync)
    await home.end_well()


@pytest.mark.timeout(480)
async def test_kill_9_loses_no_accepted_input_and_runs_nothing_twice(
    make_place: Callable[[str], Place],
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    began = monotonic()
    homes = []
    for number in range(HOMES):
        place = make_place(f"home-{number}")
        teller = Teller(place.workspace.parent)
        place.model.on_request = teller.answer
        homes.append(Home(place, teller, random.Random(f"{seed} {number}")))

    async with anyio.create_task_group() as tasks:
        for home in homes:
            tasks.start_soon(crash_often, home)

    deaths = sum((home.deaths for home in homes), Counter[str]())
    if not HAS_STRACE:
        print("no kills at syncs: needs strace (Debian package strace)")
    states = ", ".join(f"{number} {state}" for state, number in sorted(deaths.items()))
    resets = sum(home.resets for home in homes)
    took = monotonic() - began
    for line in (
        f"{deaths.total()} kills in {took:.0f} s (seed {seed}): {states}",
        f"{resets} sessions had lost numbers and were attached anew",
    ):
        print(line)
        record_property("figures", line)
    assert deaths.total() >= 50


async def test_a_client_that_missed_nothing_goes_on_where_it_was(place: Place) -> None:
    place.model.say("said before")
    running = place.start()
    try:
        async with talk(running) as (scv, _):
            scv.root = place.workspace
            await scv.initialize()
            first = await scv.create()
            await first.prompt("before")
            await scv.call("session/detach", sessionId=first.id)
            known = first.follower
            left_at = known.last or 0
            snapshot = await scv.call("session/get", sessionId=first.id)
            epoch = snapshot["session"]["epoch"]
            await scv.call(  # the newest event is now one that is not kept
                "session/attach", sessionId=first.id, epoch=epoch, after=left_at
            )
            await scv.until(lambda: (known.last or 0) > left_at)
            await scv.create()  # a commit, for all that was written so far
            running.process.kill()
            await scv.closed.wait()
    finally:
        running.kill()
    point = {"sessionId": first.id, "epoch": epoch, "after": known.last}
    for way in ("handshake", "attach"):
        async with place.server(shake_hands=False) as scv:
            await _come_back(scv, point, way)
            place.model.say(f"after {way}")
            session = Session(scv, first.id)
            assert (await session.prompt(way))["status"] == "completed"
            assert session.texts()[-1] == f"after {way}"
            assert session.follower.begins_after == point["after"]


async def _come_back(scv: Scv, point: dict[str, Any], way: str) -> None:
    if way == "handshake":
        handshake = await scv.initialize(resume=[point])
        assert [x["status"] for x in handshake["resumed"]] != ["reset"]
    else:
        await scv.initialize()
        session_id = point["sessionId"]
        scv.expect(session_id, after=point["after"])
        await scv.call("session/attach", **point)
