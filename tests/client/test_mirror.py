"""The rule for applying events, as a pure function of batches."""

import random
from typing import Any

from scv.client import Applied, Mirror

Json = dict[str, Any]
EPOCH = "e_1"


def new_mirror(last: int = 0) -> Mirror:
    return Mirror({"id": "s_1", "usage": {}}, epoch=EPOCH, last=last)


def batch(first: int, last: int, *events: Json, epoch: str = EPOCH) -> Json:
    return {
        "sessionId": "s_1",
        "epoch": epoch,
        "from": first,
        "to": last,
        "events": list(events),
    }


def event(kind: str, data: Json, **ids: str) -> Json:
    return {"type": kind, "at": 1, **ids, "data": data}


def started(item_id: str = "i_1", **fields: Any) -> Json:
    item = {"id": item_id, "kind": "assistant_message", "status": "in_progress"}
    return event("item.started", {"item": {**item, "text": "", **fields}})


def delta(offset: int, text: str, item_id: str = "i_1") -> Json:
    data = {"field": "text", "append": text, "offset": offset}
    return event("item.delta", data, itemId=item_id)


def completed(text: str, item_id: str = "i_1") -> Json:
    item = {"id": item_id, "kind": "assistant_message", "status": "completed"}
    return event("item.completed", {"item": {**item, "text": text}})


def text_of(mirror: Mirror, item_id: str = "i_1") -> str:
    item = mirror.item(item_id)
    assert item is not None
    return str(item["text"])


def test_batches_in_order_are_applied() -> None:
    mirror = new_mirror()

    first = mirror.apply(batch(1, 1, started()))
    second = mirror.apply(batch(2, 3, delta(0, "hel"), delta(3, "lo")))

    assert (first.standing, second.standing) == ("applied", "applied")
    assert [each["data"]["append"] for each in second.events] == ["hel", "lo"]
    assert (mirror.last, text_of(mirror)) == (3, "hello")


def test_old_batch_is_dropped() -> None:
    mirror = new_mirror(5)

    assert mirror.apply(batch(4, 5, started())) == Applied("dropped")
    assert mirror.items == []


def test_gap_changes_nothing() -> None:
    mirror = new_mirror(5)

    assert mirror.apply(batch(7, 7, started())) == Applied("gap")
    assert (mirror.last, mirror.items) == (5, [])


def test_other_epoch_changes_nothing() -> None:
    mirror = new_mirror()

    assert mirror.apply(batch(1, 1, started(), epoch="e_2")) == Applied("reset")
    assert mirror.items == []


def test_empty_range_moves_on() -> None:
    mirror = new_mirror()

    assert mirror.apply(batch(1, 40)).standing == "applied"
    assert mirror.last == 40


def test_overlapping_delta_never_doubles_text() -> None:
    """Offsets count code points, so characters beyond the BMP count as one."""
    mirror = new_mirror()
    mirror.apply(batch(1, 2, started(), delta(0, "a😀e\u0301")))

    applied = mirror.apply(batch(2, 3, delta(0, "a😀e\u0301!𝄞")))

    assert text_of(mirror) == "a😀e\u0301!𝄞"
    assert [each["data"]["append"] for each in applied.events] == ["!𝄞"]


def test_delta_that_is_known_already_is_no_event() -> None:
    mirror = new_mirror()
    mirror.apply(batch(1, 2, started(), delta(0, "abc")))

    assert mirror.apply(batch(2, 3, delta(0, "abc"))).events == ()
    assert mirror.last == 3


def test_delta_behind_missing_text_asks_for_a_new_start() -> None:
    mirror = new_mirror()
    mirror.apply(batch(1, 1, started()))

    assert mirror.apply(batch(2, 2, delta(3, "lo"))) == Applied("reset")


def test_delta_of_an_item_that_began_earlier_waits_for_its_end() -> None:
    mirror = new_mirror(10)

    assert mirror.apply(batch(11, 11, delta(7, "rest"))).events == ()
    mirror.apply(batch(12, 12, completed("all of the rest")))

    assert text_of(mirror) == "all of the rest"


def test_attached_running_item_grows_from_what_it_has() -> None:
    mirror = Mirror.of_attached(
        {
            "session": {"id": "s_1"},
            "epoch": EPOCH,
            "lastSeq": 9,
            "items": [started(text="he")["data"]["item"]],
            "pending": {"approvals": [{"approvalId": "a_1"}]},
        }
    )

    mirror.apply(batch(10, 10, delta(0, "hello")))

    assert text_of(mirror) == "hello"
    assert list(mirror.approvals) == ["a_1"]


def test_patch_replaces_removes_and_keeps() -> None:
    mirror = new_mirror()
    mirror.apply(batch(1, 1, started(progress="x", risk="process", name="bash")))

    patch = {"progress": None, "risk": "filesystem", "title": "t"}
    mirror.apply(batch(2, 2, event("item.updated", {"patch": patch}, itemId="i_1")))

    item = mirror.item("i_1")
    assert item is not None
    assert "progress" not in item
    assert (item["risk"], item["title"], item["name"]) == ("filesystem", "t", "bash")


def test_turn_approvals_and_usage_follow_their_events() -> None:
    mirror = new_mirror()
    approval = {"approvalId": "a_1"}
    mirror.apply(
        batch(
            1,
            3,
            event("turn.accepted", {"owner": "me"}, turnId="t_1"),
            event("turn.state", {"state": "waiting_approval"}, turnId="t_1"),
            event("approval.requested", {"approval": approval}, turnId="t_1"),
        )
    )
    assert (mirror.state, mirror.turn and mirror.turn["owner"]) == (
        "needs_approval",
        "me",
    )

    mirror.apply(batch(4, 4, event("approval.resolved", {"approvalId": "a_1"})))
    assert mirror.state == "running"

    late = event("turn.state", {"state": "tools"}, turnId="t_0")
    ended = event("turn.ended", {"status": "failed"}, turnId="t_1")
    usage = event("usage.updated", {"usage": {"inputTokens": 7}})
    mirror.apply(batch(5, 8, ended, late, usage, event("brand.new", {"x": 1})))

    assert (mirror.state, mirror.usage) == ("failed", {"inputTokens": 7})
    assert mirror.turn is not None
    assert mirror.turn["state"] == "ended"


def test_items_keep_their_order() -> None:
    mirror = new_mirror()
    mirror.apply(batch(1, 2, started("i_1"), started("i_2")))
    mirror.apply(batch(3, 4, completed("two", "i_2"), completed("one", "i_1")))

    assert [item["id"] for item in mirror.items] == ["i_1", "i_2"]


def test_every_client_converges_whatever_is_lost_merged_or_compacted(seed: int) -> None:
    """A random log, sent with losses and merges, and replayed with compaction."""
    rng = random.Random(seed)
    for _ in range(150):
        log, texts = _random_log(rng)
        mirror = new_mirror()
        position = 0
        while mirror.last < len(log):
            size = rng.randint(1, 4)
            sent = _merged(rng, log, position, min(position + size, len(log)))
            position = min(position + size, len(log))
            if rng.random() < 0.3 and position < len(log):
                continue  # lost on the way
            if mirror.apply(sent).standing == "gap" or position == len(log):
                for part in _replayed(rng, log, mirror.last):
                    assert mirror.apply(part).standing == "applied"
        assert {item["id"]: item["text"] for item in mirror.items} == texts


def _random_log(rng: random.Random) -> tuple[list[Json], dict[str, str]]:
    """Make a log with one event a number, and the texts it leads to."""
    log: list[Json] = []
    texts: dict[str, str] = {}
    for number in range(rng.randint(1, 4)):
        item_id = f"i_{number}"
        log.append(started(item_id))
        text = ""
        for _ in range(rng.randint(0, 6)):
            piece = "".join(rng.choice("ab😀é𝄞") for _ in range(rng.randint(1, 4)))
            log.append(delta(len(text), piece, item_id))
            text += piece
        if rng.random() < 0.8:
            log.append(completed(text, item_id))
        texts[item_id] = text
    return log, texts


def _merged(rng: random.Random, log: list[Json], start: int, end: int) -> Json:
    """Build a batch; it may reach back, and adjacent deltas may be one."""
    start = max(0, start - rng.randint(0, 2))
    events: list[Json] = []
    for each in log[start:end]:
        last = events[-1] if events else None
        if (
            last is not None
            and each["type"] == last["type"] == "item.delta"
            and each["itemId"] == last["itemId"]
            and rng.random() < 0.7
        ):
            data = {**last["data"]}
            data["append"] += each["data"]["append"]
            events[-1] = {**last, "data": data}
        else:
            events.append(each)
    return batch(start + 1, end, *events)


def _replayed(rng: random.Random, log: list[Json], after: int) -> list[Json]:
    """Replay in pages; deltas of completed items are gone, their ends cover them."""
    ended = {
        each["data"]["item"]["id"] for each in log if each["type"] == "item.completed"
    }
    pages = []
    while after < len(log):
        end = min(len(log), after + rng.randint(1, 5))
        kept = [each for each in log[after:end] if each.get("itemId") not in ended]
        pages.append(batch(after + 1, end, *kept))
        after = end
    return pages
