"""Several processes on one store, and processes that die."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scv.core.records import SessionLocked
from scv.errors import NotFound
from scv.store import open_store
from tests.store import sample
from tests.store.test_damage import steps_of

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parent.parent.parent


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a child that uses the store."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.child", str(folder), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def line(child: "subprocess.Popen[str]") -> str:
    """Read the next thing the child says."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


async def test_two_processes_write_different_sessions_at_once(tmp_path: Path) -> None:
    names = ("s_1", "s_2", "s_3")
    children = [start(tmp_path, "steps", name, "150") for name in names]
    async with open_store(str(tmp_path)) as store:
        for number in range(1, 51):
            await store.commit(sample.step("s_0", number))
        said = [child.communicate()[0].split("\n") for child in children]

        assert [len(lines) for lines in said] == [151] * 3
        assert [child.returncode for child in children] == [0] * 3
        assert [await steps_of(store, name) for name in names] == [150] * 3
        assert await steps_of(store, "s_0") == 50
        assert store.notices == []


async def test_what_a_killed_process_was_told_is_there(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for attempt in range(8):
        name = f"s_{attempt}"
        with start(tmp_path, "steps", name, "100000") as child:
            told = 0
            for _ in range(chance.randrange(1, 60)):
                told = int(line(child).split()[1])
            child.send_signal(signal.SIGKILL)
            rest = child.stdout.read() if child.stdout else ""
        told = max([told, *(int(each.split()[1]) for each in rest.splitlines())])
        async with open_store(str(tmp_path)) as store:
            # One more may be on disk than it could still say.
            assert await steps_of(store, name) in (told, told + 1)
            if attempt:
                assert await steps_of(store, "s_0") > 0


async def test_a_session_has_one_owner_until_it_lets_go_or_dies(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        mine = store.lock_session("s_1")
        with pytest.raises(SessionLocked):
            store.lock_session("s_1")
        with start(tmp_path, "hold", "s_1") as child:
            owner = line(child)
        mine.release()
        mine.release()
        with start(tmp_path, "hold", "s_1") as child:
            assert line(child) == "mine"
            with pytest.raises(SessionLocked) as locked:
                store.lock_session("s_1")
            assert locked.value.pid == child.pid
            store.lock_session("s_2").release()
            child.send_signal(signal.SIGKILL)
        store.lock_session("s_1").release()

    assert owner == f"owner {os.getpid()}"
    assert list((tmp_path / "locks").iterdir()) == []


async def test_a_dead_owner_leaves_no_lock_in_what_it_started(tmp_path: Path) -> None:
    with start(tmp_path, "father", "s_1") as child:
        orphan = int(line(child))
        child.send_signal(signal.SIGKILL)
    try:
        open_store(str(tmp_path)).lock_session("s_1").release()
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_strange_session_id_names_no_file(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "state"))

    for name in ("../outside", "", "a/b", "s" * 65, "s\n", "é"):
        with pytest.raises(NotFound):
            store.lock_session(name)

    assert list(tmp_path.iterdir()) == []
