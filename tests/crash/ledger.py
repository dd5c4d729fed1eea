"""All that a client was ever told of a session, held against the session's log.

A page of `scv/session/replay` that may hold one byte holds exactly one event, and
the number of that event is the end of the page. A long page without any event is a
hole: numbers that died with a server. (A short one held events that are not kept.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scv.wire.event import NOT_DURABLE
from tests.server.follower import Follower
from tests.server.kit import Scv

Json = dict[str, Any]
HOLE_NUMBERS = 1000
"""Numbers are reserved ten thousand at a time, and these tests use few hundred."""


@dataclass
class Ledger(Follower):
    """A follower that keeps every batch; it lives on when the server does not."""

    batches: list[Json] = field(default_factory=list)
    is_void: bool = False
    """The server said that numbers of this history are lost."""

    def take(self, batch: Json) -> None:
        """Apply one batch, and keep it."""
        super().take(batch)
        self.batches.append(batch)


@dataclass(frozen=True)
class Log:
    """A session's whole log: events by number, and ranges that hold none."""

    events: dict[int, Json]
    holes: list[tuple[int, int]]
    last: int

    def in_hole(self, number: int) -> bool:
        """Tell whether this number was lost, so that nobody can go on from it."""
        return any(first <= number < last for first, last in self.holes)


async def read_log(scv: Scv, session_id: str, epoch: str) -> Log:
    """Read a log to its end, one event at a time; the pages must tile."""
    events: dict[int, Json] = {}
    holes: list[tuple[int, int]] = []
    after, complete = 0, False
    while not complete:
        page = await scv.call(
            "session/replay",
            sessionId=session_id,
            epoch=epoch,
            after=after,
            limitBytes=1,
        )
        assert page["from"] == after + 1
        assert len(page["events"]) <= 1
        for event in page["events"]:
            events[page["to"]] = event
        if not page["events"] and page["to"] - after > HOLE_NUMBERS:
            holes.append((page["from"], page["to"]))
        assert page["to"] > after or page["complete"], "replay stands still"
        after, complete = page["to"], page["complete"]
    return Log(events, holes, after)


def check_against_log(ledger: Ledger, log: Log) -> None:
    """Show that nothing was dropped, doubled or given another content."""
    told: dict[int, Json] = {}
    began, ended = ledger.begins_after or 0, ledger.last or 0
    covered = began
    for batch in ledger.batches:
        first, last = batch["from"], batch["to"]
        assert first == covered + 1
        covered = last
        if first == last and batch["events"]:
            told[last] = batch["events"][0]
            continue
        stored = [log.events.get(number) for number in range(first, last + 1)]
        for event in batch["events"]:  # which number is which is for the log to say
            assert event in stored or _may_be_gone(event), event
        for event in stored:
            assert event is None or event in batch["events"] or is_delta(event), event
        told.update({n: e for n, e in enumerate(stored, first) if e is not None})
    for number, event in told.items():
        stored_event = log.events.get(number)
        if stored_event is None:
            is_lost = ledger.is_void and log.in_hole(number)
            assert is_lost or _may_be_gone(event), f"event {number} is gone: {event}"
        elif not is_delta(event):
            assert stored_event == event, f"number {number} means two things"
    for number, event in log.events.items():
        if began < number <= ended and not is_delta(event):
            assert told.get(number) == event, f"event {number} was never told"
    assert ledger.is_void == log.in_hole(ended), "a reset exactly where needed"


def check_numbers(ledgers: Sequence[Ledger]) -> None:
    """Show that no number of an epoch ever meant two things, to any client."""
    meaning: dict[tuple[str | None, int], Json] = {}
    for ledger in ledgers:
        for batch in ledger.batches:
            if len(batch["events"]) == 1 and batch["from"] == batch["to"]:
                event = batch["events"][0]
                known = meaning.setdefault((ledger.epoch, batch["to"]), event)
                assert known == event, f"{known} and {event}"


def is_delta(event: Json) -> bool:
    """Tell whether this is text on its way, which goes when the item is complete."""
    return bool(event["type"] == "item.delta")


def _may_be_gone(event: Json) -> bool:
    return is_delta(event) or event["type"] in NOT_DURABLE
