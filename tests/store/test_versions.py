"""Files of other versions: older ones are upgraded, newer ones refused."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from scv.errors import StoreError
from scv.store import open_store
from scv.store._schema import MIGRATIONS, migrate, version
from tests.store import sample

FIXTURES = Path(__file__).parent / "fixtures"


@contextmanager
def raw(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the file as any program could."""
    with closing(
        sqlite3.connect(folder / "sessions.db", isolation_level=None)
    ) as connection:
        yield connection


@pytest.mark.anyio
@pytest.mark.parametrize("number", range(1, len(MIGRATIONS) + 1))
async def test_a_store_of_every_version_opens_whole(
    tmp_path: Path, number: int
) -> None:
    shutil.copytree(FIXTURES / f"v{number}", tmp_path / "state")

    async with open_store(str(tmp_path / "state")) as store:
        loaded = await store.load("s_1")
        items, _, _ = await store.items("s_1")
        events, complete = await store.events("s_1", "e_1", after=0, limit_bytes=10**6)
        sessions = await store.sessions()
        (blob_id,) = (item.body["blobId"] for item in items if "blobId" in item.body)
        data, size, mime_type = await store.read_blob(blob_id, offset=0, limit=100)
        approval = await store.approval("a_1")
        hits = await store.search("漢字 quoted")
        in_blob = await store.search("long output")
        titles = await store.search("about")
        audit = await store.audit()

    assert loaded is not None
    assert loaded.session.title == "about s_1"
    assert loaded.history == sample.ENTRIES
    assert [turn.id for turn in loaded.turns] == ["t_1", "t_2"]
    assert [item.id for item in loaded.open_items] == ["i_3"]
    assert [each.id for each in loaded.approvals] == ["a_2"]
    assert [item.id for item in items] == ["i_1", "i_2", "i_3"]
    assert ([event.first for event in events], complete) == ([1, 2, 3, 5], True)
    assert {session.id for session in sessions} == {"s_1", "s_2"}
    assert (data, size, mime_type) == (b"a long output\n", 14, "text/plain")
    assert approval is not None
    assert approval.state == "resolved"
    assert [hit.item_id for hit in hits] == ["i_1"]
    assert [hit.item_id for hit in in_blob] == ["i_2"]
    assert [(hit.session_id, hit.item_id) for hit in titles] == [
        ("s_2", ""),
        ("s_1", ""),
    ]
    if number >= 2:
        assert loaded.queue == sample.queue("s_1")
        assert audit == [sample.audit(sample.NOW, "s_1")]
    else:
        assert (loaded.queue, audit) == (None, [])
    assert store.notices == []
    with raw(tmp_path / "state") as connection:
        assert version(connection) == len(MIGRATIONS)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.anyio
async def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_1"),))
    with raw(tmp_path) as connection:
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
        connection.execute(
            "UPDATE meta SET value=? WHERE key='version'", (len(MIGRATIONS) + 1,)
        )
        before = list(connection.iterdump())

    store = open_store(str(tmp_path))
    with pytest.raises(StoreError) as refused:
        await store.open()
    with pytest.raises(StoreError):
        await store.commit((sample.session("s_2"),))
    await store.aclose()

    assert str(tmp_path / "sessions.db") in refused.value.message
    assert "update SCV" in refused.value.message
    assert store.notices == []
    with raw(tmp_path) as connection:
        assert list(connection.iterdump()) == before


def test_a_migration_makes_the_next_version_or_leaves_the_old_one(
    tmp_path: Path,
) -> None:
    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE turn ADD COLUMN note TEXT")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE turn")
        raise OSError("out of luck")

    with raw(tmp_path) as connection:
        migrate(connection)
        assert version(connection) == len(MIGRATIONS)
        migrate(connection)
        with pytest.raises(OSError, match="out of luck"):
            migrate(connection, (*MIGRATIONS, add_column, fail))

        assert version(connection) == len(MIGRATIONS) + 1
        assert connection.execute("SELECT note FROM turn").fetchall() == []
        assert not connection.in_transaction


@pytest.mark.anyio
async def test_an_upgrade_waits_until_no_other_process_uses_the_store(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as first:
        await first.commit((sample.session("s_1"),))
        with raw(tmp_path) as connection:
            connection.execute("PRAGMA user_version=0")
            connection.execute("UPDATE meta SET value=0 WHERE key='version'")
        second = open_store(str(tmp_path))
        with pytest.raises(StoreError) as refused:
            await second.open()
        await second.aclose()

    assert "other SCV processes" in refused.value.message
