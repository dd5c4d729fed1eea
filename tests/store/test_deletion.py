"""A deleted session is gone: rows, index, files, space; and nothing else is."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from scv.errors import NotFound, StoreError
from scv.store import SqliteStore, open_store
from scv.store._schema import OF_A_SESSION
from tests.store import sample
from tests.store.test_damage import steps_of
from tests.store.test_disk import small_disk
from tests.store.test_processes import ROOT
from tests.store.test_upkeep import QUIET_SECONDS, wait_for

__all__ = ["small_disk"]
pytestmark = pytest.mark.anyio


def blob_files(folder: Path) -> list[Path]:
    """List everything below `blobs`."""
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


def rows_of(folder: Path, session_id: str) -> dict[str, int]:
    """Count a session's rows, by table, as any program could."""
    with closing(sqlite3.connect(folder / "sessions.db")) as connection:
        counts = {
            name: connection.execute(
                f"SELECT count(*) FROM {name} WHERE {key}=?", (session_id,)
            ).fetchone()[0]
            for name, key in [
                ("session", "id"),
                *((table.name, "session_id") for table in OF_A_SESSION),
                ("unindexed", "session_id"),
            ]
        }
    return {name: count for name, count in counts.items() if count}


def indexed(folder: Path) -> str:
    """Return all text that the search index holds."""
    (path,) = folder.glob("search-*.db")
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT text FROM piece").fetchall()
        for table in ("three", "pair"):
            # The index alone tells how often each group of characters occurs.
            connection.execute(
                f"CREATE VIRTUAL TABLE temp.terms_{table}"
                f" USING fts5vocab(main, {table}, row)"
            )
            terms = f"SELECT term FROM terms_{table}"
            rows += connection.execute(terms).fetchall()
    return "\n".join(text for (text,) in rows)


async def fill(store: SqliteStore, name: str, length: int) -> None:
    """Store a session with something in every table."""
    for changes in sample.conversation(name, length):
        store.enqueue(changes)
    store.enqueue((sample.turn("t_1", name), sample.queue(name)))
    store.enqueue((sample.approval(f"a_{name}", name),))
    store.enqueue((sample.prompt("i_p", name, length + 1, f"secretWord{name} 秘密話"),))
    await store.put_blob(f"only of {name}".encode(), "text/plain", name)
    await store.put_blob(b"everybody's", "text/plain", name)
    await store.commit(())


async def test_a_deleted_session_leaves_nothing_but_the_audit(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        await fill(store, "s_1", 20)
        await fill(store, "s_2", 20)
        assert len(rows_of(tmp_path, "s_1")) == 9
        assert len(await store.search("secretWords")) == 2
        assert "secretwords_1" in indexed(tmp_path).lower()
        before = sample.audit(1, "s_1")
        await store.commit((before,))

        gone = sample.audit(2, "s_1", "session.deleted")
        result = sample.operation("c_1", "op_1", int(time.time() * 1000))
        await store.delete_session("s_1", gone, result)

        assert rows_of(tmp_path, "s_1") == {}
        assert await store.load("s_1") is None
        assert await store.audit(session_id="s_1") == [gone, before]
        assert await store.operation("c_1", "op_1") == result
        assert await store.approval("a_s_1") is None
        left = await store.search("secretWords")
        assert [hit.session_id for hit in left] == ["s_2"]
        assert "s_1" not in indexed(tmp_path)
        kept = {path.read_bytes() for path in blob_files(tmp_path)}
        assert kept == {b"only of s_2", b"everybody's"}
        assert await steps_of_other(store) == 20

        await store.delete_session("s_2")
        assert blob_files(tmp_path) == []
        assert indexed(tmp_path) == ""


async def steps_of_other(store: SqliteStore) -> int:
    """Count the history of `s_2`."""
    return len(await store.history("s_2"))


async def test_deleting_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        await fill(store, "s_1", 3)
        await store.delete_session("s_9", sample.audit(1, "s_9"))
        await store.delete_session("s_1")
        await store.delete_session("s_1", sample.audit(1, "s_1"))

        assert await store.audit() == []


async def test_a_session_of_the_same_name_can_follow(tmp_path: Path) -> None:
    async with open_store(str(tmp_path)) as store:
        await fill(store, "s_1", 3)
        await store.delete_session("s_1")
        await fill(store, "s_1", 4)

        assert len(await store.history("s_1")) == 4
        assert len(await store.search("secretWord")) == 1
        assert len(await store.search("about s_1")) == 1, "its title is found again"


def delete_under_strace(folder: Path, name: str, kill_at: int) -> tuple[str, int]:
    """Have a child delete a session; kill it at its n-th change of the disk.

    Returns what it said, and how many such calls its busiest thread made.
    """
    log = folder / "trace"
    calls = "pwrite64,fsync,fdatasync,unlink,ftruncate"
    command = [
        *("strace", "-f", "-qq", "-o", str(log), "-e", f"trace={calls}"),
        *("-e", f"inject={calls}:signal=KILL:when={kill_at}"),
        *(sys.executable, "-m", "tests.store.child", str(folder / "state")),
        *("delete", name),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()[:200]}")
    lines = log.read_text(errors="replace").splitlines()
    by_thread = Counter(line.split()[0] for line in lines if "resumed>" not in line)
    return done.stdout, max(by_thread.values())


@pytest.mark.needs_program("strace")
async def test_a_killed_deletion_leaves_the_session_whole_or_gone(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    state = tmp_path / "state"
    async with open_store(str(state)) as store:
        await fill(store, "s_0", 200)
    said, calls = delete_under_strace(tmp_path, "s_0", 60_000)
    assert said == "deleted\n"

    outcomes = set()
    for attempt in range(1, 11):
        name = f"s_{attempt}"
        async with open_store(str(state)) as store:
            await fill(store, name, 200)
        kill_at = max(1, calls * attempt // 10 - chance.randrange(0, calls // 10 + 1))
        said, _ = delete_under_strace(tmp_path, name, kill_at)
        async with open_store(str(state)) as store:
            audited = await store.audit(session_id=name)
            if await store.load(name) is None:
                outcomes.add("gone")
                assert {*rows_of(state, name)} <= {"unindexed"}
                assert len(audited) == 1
                assert await store.search(f"secretWord{name}") == []
            else:
                outcomes.add("whole")
                assert (said, audited) == ("", [])
                assert len(rows_of(state, name)) >= 8
                assert len(await store.history(name)) == 200
                for blob in await store.blobs(name):
                    await store.read_blob(blob, offset=0, limit=1)
                assert len(await store.search(f"secretWord{name}")) == 1
                await store.delete_session(name)
    assert outcomes == {"whole", "gone"}
    async with open_store(str(state)) as store:
        await store.open()
        # Whatever the kills left over is found in a quiet moment.
        await wait_for(lambda: blob_files(state) == [], 5 * 2 * QUIET_SECONDS)


async def test_files_that_a_crash_left_are_removed_and_those_in_use_are_not(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        used = await store.put_blob(b"used", "text/plain", "s_1")
        fetched = await store.put_blob(b"an export", "text/plain", "")
        fresh = await store.put_blob(b"another export", "text/plain", "")
    for path in blob_files(tmp_path):
        if path.read_bytes() == b"an export":
            os.utime(path, (1, 1))
    shelf = tmp_path / "blobs" / "00"
    shelf.mkdir(exist_ok=True)
    (shelf / ("00" * 32)).write_bytes(b"its row was never written")
    (shelf / ".scv-0123.tmp").write_bytes(b"half")
    old_index = tmp_path / "search-0-0123.db"
    old_index.write_bytes(b"of another layout")
    os.utime(old_index, (1, 1))

    async with open_store(str(tmp_path)) as store:
        await store.open()
        await wait_for(lambda: not old_index.exists(), 5 * 2 * QUIET_SECONDS)

        left = {path.read_bytes() for path in blob_files(tmp_path)}
        assert left == {b"used", b"another export"}
        assert (await store.read_blob(used, offset=0, limit=9))[0] == b"used"
        assert (await store.read_blob(fresh, offset=0, limit=7))[0] == b"another"
        with pytest.raises(NotFound):
            await store.read_blob(fetched, offset=0, limit=9)


async def test_a_blob_put_while_its_last_user_is_deleted_is_there(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as one, open_store(str(tmp_path)) as other:
        for number in range(30):
            name = f"s_{number}"
            await one.commit((sample.session(name),))
            await one.put_blob(b"the same", "text/plain", name)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.delete_session, name)
                tasks.start_soon(other.put_blob, b"the same", "text/plain", "s_new")
            (blob,) = await other.blobs("s_new")
            assert (await other.read_blob(blob, offset=0, limit=9))[0] == b"the same"
            await other.commit((sample.session("s_new"),))
            await other.delete_session("s_new")
    assert blob_files(tmp_path) == []


async def test_space_is_given_back_when_much_of_it_is_free(tmp_path: Path) -> None:
    main = tmp_path / "sessions.db"
    async with open_store(str(tmp_path)) as store:
        for changes in sample.conversation("s_2", 50):
            store.enqueue(changes)
        for number in range(1, 160):
            data = b"x" * (256 << 10)
            store.enqueue((sample.event("s_1", number, data=data),))
        await store.commit((sample.session("s_1"),))
    assert main.stat().st_size > 39 << 20
    async with open_store(str(tmp_path)) as store:
        await store.delete_session("s_1")
        await wait_for(lambda: main.stat().st_size < 12 << 20, 30)

        assert await steps_of(store, "s_2") == 50
    with closing(sqlite3.connect(main)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def fill_up(filler: Path) -> None:
    """Write until the disk is full."""
    with filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_a_deletion_that_the_disk_refuses_deletes_nothing(
    small_disk: Path,
) -> None:
    filler = small_disk / "filler"
    async with open_store(str(small_disk)) as store:
        await fill(store, "s_1", 200)
        with pytest.raises(OSError, match="No space"):
            fill_up(filler)
        with pytest.raises(StoreError) as refused:
            await store.delete_session("s_1", sample.audit(1, "s_1"))
        assert str(small_disk) in refused.value.message
        store.enqueue((sample.prompt("i_q", "s_1", 900, "a late word"),))
        with pytest.raises(StoreError) as refused:
            await store.search("late word")
        assert str(small_disk) in refused.value.message
        filler.unlink()
        assert len(await store.search("late word")) == 1

        assert len(await store.history("s_1")) == 200
        assert len(await store.blobs("s_1")) == 2
        assert await store.audit() == []
        await store.delete_session("s_1")
        assert await store.load("s_1") is None


async def test_sizes_count_records_and_what_only_one_session_uses(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        for number in range(45):
            name = f"s_{number:02}"
            data = b"x" * (1000 + number)
            await store.commit((sample.session(name), sample.event(name, 1, data=data)))
        before = await store.sizes()
        await store.put_blob(b"y" * 5000, "text/plain", "s_07")
        await store.put_blob(b"y" * 5000, "image/png", "s_07")
        await store.put_blob(b"z" * 5000, "text/plain", "s_08")
        await store.share_blobs("s_08", "s_09")
        await store.put_blob(b"nobody's", "text/plain", "")
        after = await store.sizes()

    assert sorted(before) == [f"s_{number:02}" for number in range(45)]
    assert before["s_07"] - before["s_05"] == 2
    assert 1000 < before["s_00"] < 2000
    assert 5000 <= after["s_07"] - before["s_07"] < 5200, "one file counts once"
    assert 0 <= after["s_08"] - before["s_08"] < 100, "a shared file counts nowhere"
    assert after["s_10"] == before["s_10"]
