"""Branches of a conversation: cut, read whole, copied; and the audit beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

from scv.core.history import UserEntry
from scv.core.records import (
    DeltasDone,
    HistoryCut,
    HistoryRecord,
    ItemRecord,
    ItemsCut,
)
from scv.store import open_store
from tests.store import sample

pytestmark = pytest.mark.anyio


def item(number: int, turn_id: str | None) -> ItemRecord:
    """Make item `i_N` at place N."""
    return replace(sample.item(f"i_{number}", "s_1", number), turn_id=turn_id)


async def test_a_cut_removes_items_their_approvals_and_turns_that_began_after_it(
    tmp_path: Path,
) -> None:
    turns = ["t_1", "t_1", "t_2", None, "t_2", "t_3", None, "t_4"]
    async with open_store(str(tmp_path)) as store:
        for number, turn_id in enumerate(turns, 1):
            store.enqueue((item(number, turn_id),))
            question = sample.approval(f"a_{number}", "s_1", item_id=f"i_{number}")
            store.enqueue((replace(question, turn_id=turn_id or ""),))
        for number in range(1, 5):
            started = sample.NOW + number
            store.enqueue((sample.turn(f"t_{number}", "s_1", started_at=started),))
        store.enqueue((sample.session("s_1"), sample.approval("a_x", "s_2")))
        store.enqueue((sample.item("i_9", "s_2", 9), sample.turn("t_9", "s_2")))
        await store.commit((ItemsCut("s_1", 3),))
        items, _, _ = await store.items("s_1")
        turns_left = [turn.id for turn in await store.turns("s_1")]
        approvals = [each.id for each in await store.pending_approvals()]
        others, _, _ = await store.items("s_2")
        other_turns = await store.turns("s_2")

        assert [each.seq for each in items] == [1, 2, 3]
        assert turns_left == ["t_1", "t_2"], "the turn that was cut in two stays"
        assert sorted(approvals) == ["a_1", "a_2", "a_3", "a_x"]
        assert (len(others), len(other_turns)) == (1, 1)

        # Cutting all of it, and cutting nothing.
        await store.commit((ItemsCut("s_1", 0), ItemsCut("s_1", 0)))
        assert await store.items("s_1") == ([], None, None)
        assert await store.turns("s_1") == []


async def test_a_cut_and_what_comes_after_it_are_one_transaction_in_order(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        for changes in sample.conversation("s_1", 10):
            store.enqueue(changes)
        await store.commit(
            (
                ItemsCut("s_1", 4),
                HistoryCut("s_1", 4),
                sample.session("s_1", epoch="e_2", base=4, rev=9),
                item(5, "t_2"),
                HistoryRecord("s_1", 4, "t_2", UserEntry("another way")),
            )
        )
    async with open_store(str(tmp_path)) as store:
        loaded = await store.load("s_1")
        items, _, _ = await store.items("s_1")
        history = await store.history("s_1")

    assert loaded is not None
    assert (loaded.session.base, loaded.session.epoch) == (4, "e_2")
    assert [(each.seq, each.turn_id) for each in items[3:]] == [(4, "t_1"), (5, "t_2")]
    assert history[-2:] == [
        ("t_1", UserEntry("step 4")),
        ("t_2", UserEntry("another way")),
    ]
    assert loaded.history == tuple(entry for _, entry in history)


async def test_deltas_of_a_later_epoch_go_when_their_item_completes(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        started = sample.event("s_1", 3, epoch="e_2", type="item.started")
        store.enqueue((replace(started, item_id="i_1"),))
        # Numbers begin anew in an epoch, places go on.
        store.enqueue((sample.item("i_1", "s_1", 1003, "in_progress"),))
        for number in range(4, 9):
            store.enqueue((replace(sample.delta("s_1", number, "i_1"), epoch="e_2"),))
        await store.commit(())
        store.enqueue((sample.item("i_1", "s_1", 1003),))
        await store.commit((DeltasDone("s_1", "e_2", "i_1"),))
        events, _ = await store.events("s_1", "e_2", after=0, limit_bytes=10**6)

    assert [event.first for event in events] == [3]


async def test_turns_and_history_are_read_whole_and_in_order(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in (3, 1, 2):
            at = sample.NOW + number
            store.enqueue((sample.turn(f"t_{number}", "s_1", started_at=at),))
        for position in (1, 0, 2):
            entry = sample.ENTRIES[position]
            store.enqueue((HistoryRecord("s_1", position, f"t_{position}", entry),))
        store.enqueue((HistoryRecord("s_1", 3, None, sample.ENTRIES[4]),))

        assert [turn.id for turn in await store.turns("s_1")] == ["t_1", "t_2", "t_3"]
        assert await store.history("s_1") == [
            ("t_0", sample.ENTRIES[0]),
            ("t_1", sample.ENTRIES[1]),
            ("t_2", sample.ENTRIES[2]),
            (None, sample.ENTRIES[4]),
        ]
        assert await store.history("s_2") == []
        assert await store.turns("s_2") == []


async def test_a_queue_comes_back_and_is_replaced_whole(tmp_path: Path) -> None:
    queue = sample.queue("s_1")
    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_1"), queue))
    async with open_store(str(tmp_path)) as store:
        loaded = await store.load("s_1")
        assert loaded is not None
        assert loaded.queue == queue
        await store.commit((replace(queue, entries=(), held=False, rev=4),))
        again = await store.load("s_1")

    assert again is not None
    assert again.queue == replace(queue, entries=(), held=False, rev=4)


async def test_the_audit_is_read_newest_first_and_by_session(tmp_path: Path) -> None:
    rows = [
        sample.audit(sample.NOW + 5, "s_1", "session.configured"),
        sample.audit(sample.NOW + 7, None, "process.killed"),
        # At one instant, in the order in which they were written.
        sample.audit(sample.NOW + 6, "s_2", "approval.allowed"),
        sample.audit(sample.NOW + 6, "s_2", "approval.denied"),
        sample.audit(sample.NOW + 6, "s_1", "approval.allowed"),
    ]
    async with open_store(str(tmp_path)) as store:
        await store.commit(tuple(rows))
    async with open_store(str(tmp_path)) as store:
        assert await store.audit() == [rows[1], rows[4], rows[3], rows[2], rows[0]]
        assert await store.audit(limit=2) == [rows[1], rows[4]]
        assert await store.audit(session_id="s_2") == [rows[3], rows[2]]
        assert await store.audit(session_id="s_\ud800") == []


async def test_a_session_uses_the_blobs_of_another(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        names = [
            await store.put_blob(data, "text/plain", "s_1") for data in (b"a", b"b")
        ]
        await store.share_blobs("s_1", "s_2")
        await store.share_blobs("s_none", "s_2")

        assert await store.blobs("s_1") == sorted(names)
        assert await store.blobs("s_2") == sorted(names)
        assert await store.blobs("s_3") == []
