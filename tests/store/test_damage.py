"""A store that a crash or a bad disk damaged: TURN.6."""

import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from scv.core.history import NoteEntry, UserEntry
from scv.core.records import HistoryRecord
from scv.errors import StoreError
from scv.store import SqliteStore, open_store
from tests.store import sample

pytestmark = pytest.mark.anyio

MAIN, LOG = "sessions.db", "sessions.db-wal"


async def steps_of(store: SqliteStore, session_id: str) -> int:
    """Count the steps of a conversation that are there, all their parts checked."""
    loaded = await store.load(session_id)
    if loaded is None:
        return 0
    number = loaded.session.last_seq
    entries = tuple(UserEntry(f"step {each}") for each in range(1, number + 1))
    assert loaded.history == entries
    items, _, _ = await store.items(session_id, limit=10**6)
    assert [item.seq for item in items] == list(range(1, number + 1))
    events, _ = await store.events(session_id, "e_1", after=0, limit_bytes=10**9)
    assert [event.first for event in events] == list(range(1, number + 1))
    return number


async def make_log(folder: Path) -> list[tuple[int, int]]:
    """Commit step after step; return the log's size after each acknowledged one.

    The log has at most 128 KiB, and half the session is in the main file already.
    """
    live = folder / "live"
    async with open_store(str(live)) as store:
        await store.commit(sample.step("s_2", 1))
        for changes in sample.conversation("s_1", 3):
            await store.commit(changes)
    acknowledged = [(0, 3)]
    async with open_store(str(live)) as store:
        number = 3
        while (live / LOG).stat().st_size < 100 * 1024 if number > 3 else True:
            number += 1
            await store.commit(sample.step("s_1", number))
            acknowledged.append(((live / LOG).stat().st_size, number))
        shutil.copytree(live, folder / "torn")  # as a crash would leave it
    assert (folder / "torn" / LOG).stat().st_size <= 128 * 1024
    return acknowledged


async def test_turn_6_log_cut_at_every_512_bytes_keeps_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    acknowledged = await make_log(tmp_path)
    log = (tmp_path / "torn" / LOG).read_bytes()
    main = (tmp_path / "torn" / MAIN).read_bytes()
    told = 0

    for cut in range(0, len(log) + 1, 512):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / MAIN).write_bytes(main)
        (folder / LOG).write_bytes(log[:cut])
        async with open_store(str(folder)) as store:
            found = await steps_of(store, "s_1")

            kept = max(number for size, number in acknowledged if size <= cut)
            assert found == kept, f"cut at {cut}"
            assert await steps_of(store, "s_2") == 1
            is_whole = cut in {size for size, _ in acknowledged}
            if not is_whole:
                assert [LOG in notice for notice in store.notices] == [True], cut
                told += 1
            # The store goes on from here.
            await store.commit(sample.step("s_1", found + 1))
            assert await steps_of(store, "s_1") == found + 1
        shutil.rmtree(folder)
    assert told > 0


async def make_many(folder: Path, sessions: int, length: int) -> bytes:
    """Make conversations, all in the main file; return that file."""
    async with open_store(str(folder)) as store:
        for number in range(sessions):
            for changes in sample.conversation(f"s_{number:02}", length):
                store.enqueue(changes)
        store.enqueue((sample.approval("a_1", "s_00"), sample.turn("t_1", "s_00")))
    assert not (folder / LOG).exists()
    return (folder / MAIN).read_bytes()


def set_aside(folder: Path) -> list[Path]:
    """List the damaged files that were kept, their logs not counted."""
    return list(folder.glob(f"{MAIN}.damaged-*Z"))


async def survey(store: SqliteStore, sessions: int) -> tuple[set[str], set[str]]:
    """Read everything; return the sessions that are there, and those that are whole.

    Whatever is shown is what was written, except that parts may be missing.
    """
    there, whole = set(), set()
    for number in range(sessions):
        name = f"s_{number:02}"
        loaded = await store.load(name)
        items, _, _ = await store.items(name, limit=10**6)
        assert all(item == sample.item(item.id, name, item.seq) for item in items)
        events, _ = await store.events(name, "e_1", after=0, limit_bytes=10**9)
        assert all(event == sample.event(name, event.first) for event in events)
        if loaded is None:
            continue
        there.add(name)
        entries = [e for e in loaded.history if not isinstance(e, NoteEntry)]
        numbers = [int(entry.text.split()[1]) for entry in entries]  # type: ignore[union-attr]
        assert numbers == sorted(set(numbers))
        length = loaded.session.last_seq
        if (len(numbers), len(items), len(events)) == (length,) * 3:
            whole.add(name)
    return there, whole


async def test_turn_6_flipped_bytes_are_named_and_the_rest_is_salvaged(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    sessions, length = 12, 12
    main = await make_many(tmp_path / "good", sessions, length)

    for attempt in range(25):
        folder = tmp_path / f"bad-{attempt}"
        folder.mkdir()
        bad = bytearray(main)
        for place in chance.sample(range(len(bad)), 1 + attempt % 3):
            bad[place] ^= chance.randrange(1, 256)
        (folder / MAIN).write_bytes(bad)
        async with open_store(str(folder)) as store:
            there, whole = await survey(store, sessions)
            if store.notices:
                (kept,) = set_aside(folder)
                assert str(kept) in store.notices[0]
                assert kept.read_bytes()[100:] == bytes(bad)[100:]
            else:
                assert len(whole) == sessions, "damage must be named"
            # One flipped byte costs one row; no other session is touched by it.
            assert len(whole) >= sessions - 3, attempt
            assert len(there) >= sessions - 3, attempt
            await store.commit(sample.step("s_99", 1))
        async with open_store(str(folder)) as store:
            assert await steps_of(store, "s_99") == 1
            assert (await survey(store, sessions))[1] >= whole - {"s_99"}
            assert store.notices == []
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "damage", ["header", "first page", "schema", "zeros", "junk", "name"]
)
async def test_turn_6_a_file_without_its_head_is_salvaged(
    tmp_path: Path, damage: str
) -> None:
    main = bytearray(await make_many(tmp_path, 5, 20))
    start, length = {
        "header": (0, 100),
        "first page": (0, 4096),
        "schema": (3000, 1096),
        "zeros": (100, 4096 * 2 - 100),
        "junk": (52, 1),
        "name": (main.index(b"tablehistory") + 5, 1),
    }[damage]
    fill = {"zeros": b"\0", "name": b"\x81"}.get(damage, b"\x5a")
    main[start : start + length] = fill * length
    (tmp_path / MAIN).write_bytes(main)

    async with open_store(str(tmp_path)) as store:
        there, _ = await survey(store, 5)

        assert len(store.notices) == 1
        assert len(there) >= 4
        assert len(set_aside(tmp_path)) == 1


async def test_turn_6_a_hole_in_the_history_is_closed_with_a_note(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        for position in range(200):
            entry = UserEntry(f"{position} " + "x" * 200)
            store.enqueue((HistoryRecord("s_1", position, "t_1", entry),))
        await store.commit((sample.session("s_1"),))
    main = bytearray((tmp_path / MAIN).read_bytes())
    main[main.index(b"100 xxxx")] ^= 1
    (tmp_path / MAIN).write_bytes(main)

    async with open_store(str(tmp_path)) as store:
        loaded = await store.load("s_1")

    assert loaded is not None
    assert len(store.notices) == 1
    assert [type(entry) for entry in loaded.history].count(NoteEntry) == 1
    assert isinstance(loaded.history[100], NoteEntry)
    assert len(loaded.history) == 200


async def test_turn_6_damage_met_while_working_is_mended_on_the_spot(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(3):
            for changes in sample.conversation(f"s_0{number}", 30):
                store.enqueue(changes)
    main = (tmp_path / MAIN).read_bytes()
    (tmp_path / MAIN).write_bytes(main.replace(b'"step 17"', b'"STEP 17"', 1))
    async with open_store(str(tmp_path)) as store:
        await store.commit(sample.step("s_09", 1))
        there, whole = await survey(store, 3)

        assert (len(there), len(whole), len(store.notices)) == (3, 2, 1)
        assert await steps_of(store, "s_09") == 1, "what was in the log is there too"


async def test_turn_6_a_crash_while_salvaging_is_made_up_for(tmp_path: Path) -> None:
    main = await make_many(tmp_path, 3, 5)
    salvaged = tmp_path / f"{MAIN}.salvaged-20260101T000000Z"
    (tmp_path / MAIN).rename(salvaged)
    (tmp_path / MAIN).write_bytes(b"old and damaged")
    (tmp_path / LOG).write_bytes(b"its log")

    async with open_store(str(tmp_path)) as store:
        assert len((await survey(store, 3))[1]) == 3

    damaged = tmp_path / f"{MAIN}.damaged-20260101T000000Z"
    assert damaged.read_bytes() == b"old and damaged"
    assert damaged.with_name(f"{damaged.name}-wal").read_bytes() == b"its log"
    assert not salvaged.exists()
    assert len(main) == (tmp_path / MAIN).stat().st_size


async def test_turn_6_a_damaged_store_that_others_use_is_left_alone(
    tmp_path: Path,
) -> None:
    await make_many(tmp_path, 2, 5)
    async with open_store(str(tmp_path)) as first:
        main = (tmp_path / MAIN).read_bytes()
        (tmp_path / MAIN).write_bytes(main.replace(b'"step 3"', b'"STEP 3"'))
        async with open_store(str(tmp_path)) as second:
            with pytest.raises(StoreError) as told:
                await survey(second, 2)
            assert str(tmp_path / MAIN) in told.value.message
            assert "end them" in told.value.message
            assert set_aside(tmp_path) == []
        assert (await survey(first, 2))[0] == {"s_00", "s_01"}


def test_sqlite_reads_what_is_salvaged_as_sound(tmp_path: Path) -> None:
    import anyio

    async def damage_and_open() -> None:
        main = bytearray(await make_many(tmp_path, 3, 40))
        main[4096 * 5] ^= 0xFF
        (tmp_path / MAIN).write_bytes(main)
        async with open_store(str(tmp_path)) as store:
            await survey(store, 3)

    anyio.run(damage_and_open)

    with sqlite3.connect(tmp_path / MAIN) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
