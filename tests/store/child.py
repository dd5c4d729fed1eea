"""A process that uses a store and says on stdout what it was told.

python -m tests.store.child FOLDER ACTION SESSION [COUNT]
"""

import os
import subprocess
import sys

import anyio

from scv.core.records import SessionLocked
from scv.store import SqliteStore, open_store
from tests.store import sample


def say(text: str) -> None:
    """Write one line at once, so that a trace shows where it stands."""
    os.write(1, f"{text}\n".encode())


async def steps(store: SqliteStore, session: str, count: int) -> None:
    """Commit one step after the other."""
    for number in range(1, count + 1):
        await store.commit(sample.step(session, number))
        say(f"kept {number}")


async def carried(store: SqliteStore, session: str, count: int) -> None:
    """Let all be written without a sync first; then sync it with an empty commit."""
    for number in range(1, count + 1):
        store.enqueue(sample.step(session, number))
    await store.last_event(session, "e_1")
    say("read")
    await store.commit(())
    say("kept")


async def group(store: SqliteStore, session: str, count: int) -> None:
    """Commit from many tasks at once."""
    say("begin")
    async with anyio.create_task_group() as tasks:
        for number in range(1, count + 1):
            tasks.start_soon(store.commit, sample.step(session, number))
    say("kept")


async def hold(store: SqliteStore, session: str, count: int) -> None:
    """Take a session and keep it until stdin ends."""
    try:
        lock = store.lock_session(session)
    except SessionLocked as error:
        say(f"owner {error.pid}")
        return
    say("mine")
    sys.stdin.read()
    lock.release()


def start_sleeper() -> int:
    """Start a process that outlives this one and keeps every open file it may."""
    command = ["sleep", "1000"]
    return subprocess.Popen(command, close_fds=False, stdout=subprocess.DEVNULL).pid


async def delete(store: SqliteStore, session: str, count: int) -> None:
    """Delete a session and say so."""
    await store.delete_session(session, sample.audit(sample.NOW, session))
    say("deleted")


async def search(store: SqliteStore, session: str, count: int) -> None:
    """Search until all messages of a session are found; they never get fewer."""
    found = 0
    while found < count:
        hits = await store.search("fixLoginPage", limit=count + 1)
        numbers = [hit.at for hit in hits if hit.session_id == session]
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) >= found, (len(numbers), found)
        found = len(numbers)
    say(f"found {found}")


async def father(store: SqliteStore, session: str, count: int) -> None:
    """Take a session and start a process that inherits all it can; name its pid."""
    store.lock_session(session)
    say(str(start_sleeper()))
    await anyio.sleep_forever()


ACTIONS = {
    each.__name__: each
    for each in (steps, carried, group, hold, delete, search, father)
}


async def main(folder: str, action: str, session: str, count: str = "0") -> None:
    """Open the store and do it."""
    async with open_store(folder) as store:
        await ACTIONS[action](store, session, int(count))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
