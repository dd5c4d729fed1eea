"""What is stored comes back, in order and complete."""

from dataclasses import replace
from pathlib import Path

import pytest

from scv.core.ids import now_ms
from scv.core.records import Change, DeltasDone, HistoryRecord, Store
from scv.errors import NotFound, StoreError
from scv.store import SqliteStore, open_store
from tests.store import sample

pytestmark = pytest.mark.anyio


def test_the_store_is_what_the_core_asks_for(tmp_path: Path) -> None:
    store: Store = open_store(str(tmp_path / "state"))

    assert not (tmp_path / "state").exists(), "making it touches nothing"
    assert isinstance(store, SqliteStore)


async def test_everything_stored_comes_back_equal_after_a_restart(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path / "state")
    session = sample.session(
        "s_1",
        title=sample.ODD,
        root="/srv/\udcff",
        archived=True,
        usage={"inputTokens": 3},
        parent="s_0",
        channel="chat",
    )
    ended = sample.turn(
        "t_1",
        "s_1",
        state="ended",
        status="failed",
        stop_reason="provider",
        ended_at=sample.NOW + 5,
        error={"code": "x", "message": sample.ODD},
        usage={"outputTokens": 2**40},
    )
    running = sample.turn("t_2", "s_1", started_at=sample.NOW + 9, owner=None)
    item = sample.item("i_1", "s_1", 4, "waiting_approval")
    pending = sample.approval("a_1", "s_1")
    resolved = sample.approval(
        "a_2", "s_1", state="resolved", decision={"optionId": "deny"}, resolved_at=7
    )
    operation = sample.operation("client", "op é\ud800", now_ms())
    event = sample.event("s_1", 1, last=3, item_id="i_1", data=b"")
    history = tuple(
        HistoryRecord("s_1", position, "t_1", entry)
        for position, entry in enumerate(sample.ENTRIES)
    )

    async with open_store(folder) as store:
        store.enqueue((session, ended, running, item))
        await store.commit((pending, resolved, operation, event, *history))
    async with open_store(folder) as store:
        loaded = await store.load("s_1")

        assert loaded is not None
        assert loaded.session == session
        assert loaded.turns == (ended, running)
        assert loaded.open_items == (item,)
        assert loaded.history == sample.ENTRIES
        assert loaded.approvals == (pending,)
        assert await store.events("s_1", "e_1", after=0, limit_bytes=0) == (
            [event],
            True,
        )
        assert await store.turn("s_1", "t_1") == ended
        assert await store.turn("s_1", "t_9") is None
        assert await store.newest_turn("s_1") == running
        assert await store.approval("a_2") == resolved
        assert await store.approval("a_9") is None
        assert await store.operation("client", "op é\ud800") == operation
        assert await store.items("s_1") == ([item], None, None)
        assert store.notices == []


async def test_what_is_not_there_is_none_or_empty(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        assert await store.load("s_1") is None
        assert await store.sessions() == []
        assert await store.items("s_1") == ([], None, None)
        assert await store.events("s_1", "e_1", after=0, limit_bytes=1) == ([], True)
        assert await store.last_event("s_1", "e_1") == 0
        assert await store.newest_turn("s_1") is None
        assert await store.operation("c", "o") is None
        assert await store.pending_approvals() == []
        assert await store.unfinished_sessions() == []


async def test_reads_see_every_earlier_write_of_the_process(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 30):
            store.enqueue((sample.event("s_1", number),))
            assert await store.last_event("s_1", "e_1") == number


async def test_the_newest_record_of_a_key_replaces_the_others(tmp_path: Path) -> None:
    old, new = sample.session("s_1"), sample.session("s_1", title="new", rev=2)
    open_item = sample.item("i_1", "s_1", 1, "in_progress")
    closed_item = sample.item("i_1", "s_1", 1)
    approval = sample.approval("a_1", "s_1")
    turn = sample.turn("t_1", "s_1")

    async with open_store(str(tmp_path)) as store:
        store.enqueue((old, new, open_item, approval, turn))
        assert await store.unfinished_sessions() == ["s_1"]
        assert await store.pending_approvals() == [approval]
        await store.commit(
            (
                closed_item,
                replace(approval, state="expired"),
                replace(turn, state="ended", status="completed"),
            )
        )
        loaded = await store.load("s_1")

        assert loaded is not None
        assert (loaded.session, loaded.open_items, loaded.approvals) == (new, (), ())
        assert await store.pending_approvals() == []
        assert await store.unfinished_sessions() == []
        assert (await store.items("s_1"))[0] == [closed_item]


async def test_a_body_changed_after_enqueue_is_stored_as_it_was(tmp_path: Path) -> None:
    item = sample.item("i_1", "s_1", 1)

    async with open_store(str(tmp_path)) as store:
        store.enqueue((item,))
        item.body["text"] = "changed later"
        found, _, _ = await store.items("s_1")

    assert found[0].body["text"] == sample.ODD


@pytest.mark.parametrize("in_one_batch", [True, False])
async def test_deltas_go_when_their_item_completes_and_no_others(
    tmp_path: Path, in_one_batch: bool
) -> None:
    async with open_store(str(tmp_path)) as store:
        store.enqueue((sample.event("s_1", 1, type="item.started", item_id="i_1"),))
        store.enqueue((sample.item("i_1", "s_1", 1, "in_progress"),))
        for number in range(2, 20):
            name = "i_1" if number % 2 else "i_2"
            store.enqueue((sample.delta("s_1", number, name),))
        store.enqueue((sample.delta("s_2", 5, "i_1"),))
        if not in_one_batch:
            await store.commit(())
        store.enqueue((sample.event("s_1", 20, type="item.completed", item_id="i_1"),))
        store.enqueue((sample.item("i_1", "s_1", 1),))
        await store.commit((DeltasDone("s_1", "e_1", "i_1"),))
        events, complete = await store.events("s_1", "e_1", after=0, limit_bytes=10**6)
        other, _ = await store.events("s_2", "e_1", after=0, limit_bytes=10**6)

    assert [event.first for event in events] == [1, *range(2, 20, 2), 20]
    assert (complete, len(other)) == (True, 1)


async def test_events_come_in_order_and_in_pages_by_size(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in (3, 1, 2):
            store.enqueue((sample.event("s_1", number, data=b"x" * 100),))
        store.enqueue((sample.event("s_1", 4, last=50, data=b"x" * 1000),))
        store.enqueue((sample.event("s_1", 51), sample.event("s_1", 1, epoch="e_2")))

        async def firsts(after: int, limit: int) -> tuple[list[int], bool]:
            found, complete = await store.events(
                "s_1", "e_1", after=after, limit_bytes=limit
            )
            return [event.first for event in found], complete

        assert await firsts(0, 10**6) == ([1, 2, 3, 4, 51], True)
        assert await firsts(0, 250) == ([1, 2], False)
        assert await firsts(3, 1) == ([4], False)
        assert await firsts(20, 10**6) == ([4, 51], True)
        assert await firsts(50, 10**6) == ([51], True)
        assert await firsts(51, 10**6) == ([], True)
        assert await store.last_event("s_1", "e_1") == 51
        assert await store.last_event("s_1", "e_2") == 1


async def test_items_page_in_both_directions(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 8):
            # Ids count down: the order is that of the numbers.
            store.enqueue((sample.item(f"i_{9 - number}", "s_1", number),))

        async def page(**where: str) -> tuple[list[int], str | None, str | None]:
            found, before, after = await store.items("s_1", limit=3, **where)
            return [item.seq for item in found], before, after

        assert await page() == ([5, 6, 7], "i_4", None)
        assert await page(before="i_4") == ([2, 3, 4], "i_7", "i_5")
        assert await page(before="i_7") == ([1], None, "i_8")
        assert await page(after="i_8") == ([2, 3, 4], "i_7", "i_5")
        assert await page(after="i_2") == ([], None, None)
        with pytest.raises(NotFound):
            await page(before="i_none")


async def test_sessions_are_listed_newest_first_and_filtered(tmp_path: Path) -> None:
    rows: list[Change] = [
        sample.session("s_1", updated_at=5, title="Straße"),
        sample.session("s_2", updated_at=7, archived=True),
        sample.session("s_3", updated_at=7, root="/other"),
        sample.session("s_4", updated_at=6, title="50%_off"),
    ]
    async with open_store(str(tmp_path)) as store:
        await store.commit(tuple(rows))

        async def names(**where: object) -> list[str]:
            found = await store.sessions(**where)  # type: ignore[arg-type]
            return [session.id for session in found]

        assert await names() == ["s_3", "s_2", "s_4", "s_1"]
        assert await names(limit=2) == ["s_3", "s_2"]
        assert await names(before=(7, "s_2")) == ["s_4", "s_1"]
        assert await names(archived=False) == ["s_3", "s_4", "s_1"]
        assert await names(archived=True, root="/srv/app") == ["s_2"]
        assert await names(title_contains="STRASSE") == ["s_1"]
        assert await names(title_contains="%_") == ["s_4"]
        assert await names(root="/nowhere") == []


async def test_an_operation_is_forgotten_after_a_day(tmp_path: Path) -> None:
    fresh = sample.operation("c_1", "op_1", now_ms() - 23 * 3600 * 1000)
    stale = sample.operation("c_1", "op_2", now_ms() - 25 * 3600 * 1000)

    async with open_store(str(tmp_path)) as store:
        await store.commit((fresh, stale))

        assert await store.operation("c_1", "op_1") == fresh
        assert await store.operation("c_2", "op_1") is None
        assert await store.operation("c_1", "op_2") is None


async def test_a_long_session_loads_whole(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        for changes in sample.conversation("s_1", 3000):
            store.enqueue(changes)
        await store.commit((sample.item("i_open", "s_1", 9000, "in_progress"),))
        loaded = await store.load("s_1")

    assert loaded is not None
    assert len(loaded.history) == 3000
    assert [item.id for item in loaded.open_items] == ["i_open"]


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.enqueue((sample.session("s_1"),))
    await store.aclose()
    await store.aclose()

    with pytest.raises(StoreError):
        await store.load("s_1")
    async with open_store(str(tmp_path)) as again:
        assert await again.load("s_1") is not None


async def test_what_is_no_json_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        with pytest.raises(TypeError):
            await store.commit((sample.session("s_1", config={"bad": object()}),))
        await store.commit((sample.session("s_2"),))

        assert [session.id for session in await store.sessions()] == ["s_2"]
