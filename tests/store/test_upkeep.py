"""What the store does by itself in quiet moments."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from anyio.lowlevel import checkpoint

from scv.core.ids import now_ms
from scv.store import open_store
from tests.store import sample

pytestmark = pytest.mark.anyio

QUIET_SECONDS = 0.5


async def wait_for(claim: Callable[[], bool], seconds: float) -> None:
    """Turn the event loop until the claim holds."""
    start = time.monotonic()
    while not claim():
        assert time.monotonic() - start < seconds
        await checkpoint()


async def test_old_and_too_many_operations_are_forgotten(tmp_path: Path) -> None:
    now = now_ms()

    def count() -> int:
        path = tmp_path / "sessions.db"
        with closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute("SELECT count(*) FROM operation").fetchone()
            return int(found)

    async with open_store(str(tmp_path)) as store:
        stale = sample.operation("c_1", "stale", now - 25 * 3600 * 1000)
        many = [sample.operation("c_1", f"op_{n}", now - n) for n in range(10_020)]
        await store.commit((stale, *many))
    async with open_store(str(tmp_path)) as store:
        await wait_for(lambda: count() == 10_000, 5 * 2 * QUIET_SECONDS)

        assert await store.operation("c_1", "op_0") == many[0]
        assert await store.operation("c_1", "op_9999") == many[9999]
        assert await store.operation("c_1", "op_10000") is None


async def test_damage_in_a_large_file_is_found_before_anybody_meets_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sessions.db"
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 40):
            data = b"x" * (256 << 10)
            store.enqueue((sample.event("s_1", number, data=data),))
        for changes in sample.conversation("s_2", 200):
            store.enqueue(changes)
    content = bytearray(path.read_bytes())
    assert len(content) > 8 << 20
    inside = content.index(b'"step 100"') // 4096 * 4096
    content[inside] = 0xFF  # no type of page
    path.write_bytes(content)

    async with open_store(str(tmp_path)) as store:
        assert store.notices == []
        await wait_for(lambda: bool(store.notices), 5 * 2 * QUIET_SECONDS)
        loaded = await store.load("s_2")

    assert loaded is not None
    assert len(loaded.history) == 200, "the page's rows are found without its type"
    assert len(store.notices) == 1


async def test_the_log_is_carried_over_while_nobody_waits(tmp_path: Path) -> None:
    log, main = tmp_path / "sessions.db-wal", tmp_path / "sessions.db"
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 30):
            data = b"x" * (256 << 10)
            await store.commit((sample.event("s_1", number, data=data),))
        await wait_for(lambda: main.stat().st_size > 7 << 20, 5 * 2 * QUIET_SECONDS)
        size = log.stat().st_size
        await store.commit((sample.event("s_1", 100, data=b"x" * 4096),))

        assert log.stat().st_size <= size, "the log begins anew"
