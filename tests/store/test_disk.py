"""What the disk allows and refuses: modes, full, read-only, far away."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scv.errors import StoreError
from scv.store import SqliteStore, open_store
from scv.store._places import remote_type
from tests.store import sample
from tests.store.test_damage import steps_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 2 MiB, where this user may."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small disk")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"may not mount a small disk: {done.stderr.strip()}")

    yield folder

    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Give everything to everybody, as far as the umask goes."""
    before = os.umask(0)

    yield

    os.umask(before)


def modes(folder: Path) -> set[tuple[str, int]]:
    """List kind and permission bits of all below a folder, itself too."""
    paths = [folder, *folder.rglob("*")]
    return {
        ("folder" if path.is_dir() else "file", path.stat().st_mode & 0o7777)
        for path in paths
    }


@pytest.mark.usefixtures("open_umask")
async def test_sec_5_all_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    state = tmp_path / "home" / "state"
    async with open_store(str(state)) as store:
        await store.commit((sample.session("s_1"),))
        blob = await store.put_blob(b"secret", "text/plain", "s_1")
        lock = store.lock_session("s_1")
        await store.commit((sample.session("s_2"),))
        await store.search("about")

        names = {path.name for path in state.iterdir()}
        assert names >= {"sessions.db", "sessions.db-wal", "sessions.db-shm"}
        assert any(name.startswith("search-") for name in names)
        assert modes(tmp_path / "home") == {("folder", 0o700), ("file", 0o600)}
        assert (await store.read_blob(blob, offset=0, limit=9))[0] == b"secret"
        lock.release()


async def test_sec_5_a_file_that_others_could_read_is_closed_to_them(
    tmp_path: Path,
) -> None:
    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_1"),))
    (tmp_path / "sessions.db").chmod(0o644)
    tmp_path.chmod(0o755)

    async with open_store(str(tmp_path)) as store:
        await store.commit((sample.session("s_2"),))

        assert modes(tmp_path) == {("folder", 0o700), ("file", 0o600)}


async def fill_up(store: SqliteStore, number: int) -> tuple[int, StoreError]:
    """Go on after step `number` until the disk is full; the last step kept, and why."""
    while True:
        try:
            await store.commit(sample.step("s_1", number + 1))
        except StoreError as error:
            return number, error
        number += 1


async def test_a_full_disk_refuses_whole_commits_and_loses_nothing_queued(
    small_disk: Path,
) -> None:
    filler = small_disk / "filler"
    async with open_store(str(small_disk)) as store:
        number = 1
        await store.commit(sample.step("s_1", number))
        filler.write_bytes(bytes(900 * 1024))
        number, refused = await fill_up(store, number)
        assert str(small_disk) in refused.message
        assert "free some space" in refused.message
        # What nobody waits for is kept in memory, and readers see it.
        store.enqueue(sample.step("s_1", number + 1))
        assert await steps_of(store, "s_1") == number + 1
        # A refused commit is gone as a whole, and takes nothing with it.
        with pytest.raises(StoreError):
            await store.commit(sample.step("s_2", 1))
        assert await steps_of(store, "s_2") == 0
        assert await steps_of(store, "s_1") == number + 1

        filler.unlink()
        await store.commit(sample.step("s_3", 1))
    async with open_store(str(small_disk)) as store:
        assert await steps_of(store, "s_1") == number + 1
        assert (await steps_of(store, "s_2"), await steps_of(store, "s_3")) == (0, 1)
        assert store.notices == []


async def test_a_full_disk_that_stays_full_is_told_at_the_end(small_disk: Path) -> None:
    store = open_store(str(small_disk))
    await store.commit(sample.step("s_1", 1))
    (small_disk / "filler").write_bytes(bytes(1200 * 1024))
    number, _ = await fill_up(store, 1)
    store.enqueue((sample.event("s_1", 5000, data=b"x" * 200_000),))

    with pytest.raises(StoreError):
        await store.aclose()

    async with open_store(str(small_disk)) as again:
        assert await steps_of(again, "s_1") == number


async def test_a_full_disk_keeps_no_part_of_a_blob(small_disk: Path) -> None:
    async with open_store(str(small_disk)) as store:
        with pytest.raises(StoreError) as refused:
            await store.put_blob(os.urandom(3 << 20), "text/plain", "s_1")
        assert "free some space" in refused.value.message
        left = [path for path in (small_disk / "blobs").rglob("*") if path.is_file()]
        assert left == []


async def test_a_read_only_disk_is_named_with_a_remedy(small_disk: Path) -> None:
    async with open_store(str(small_disk)) as store:
        await store.commit(sample.step("s_1", 1))
    command = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(command, check=True)

    store = open_store(str(small_disk))
    with pytest.raises(StoreError) as refused:
        await store.commit(sample.step("s_1", 2))
    await store.aclose()

    assert str(small_disk) in refused.value.message
    assert "SCV_HOME" in refused.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = open_store(str(tmp_path / "state"))
    with pytest.raises(StoreError) as refused:
        await store.open()
    await store.aclose()

    assert str(tmp_path / "state") in refused.value.message


async def test_a_path_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    store = open_store(str(tmp_path / "state"))

    with pytest.raises(StoreError) as refused:
        await store.open()
    with pytest.raises(StoreError):
        store.lock_session("s_1")
    await store.aclose()

    assert str(tmp_path / "state") in refused.value.message


MOUNTS = """\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /home rw shared:2 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/local\\040disk rw shared:3 - xfs /dev/vdb rw
32 21 0:42 / /mnt/c rw - 9p C:\\ rw,aname=drvfs;path=C:\\,trans=fd
33 21 0:43 / /sandbox rw - 9p none rw,trans=fd
34 21 0:44 / /media/share rw - fuse.sshfs me@host:/ rw
35 21 0:45 / /over rw - tmpfs tmpfs rw
36 35 0:46 / /over rw - cifs //host/share rw
37 21 0:47 / /pool rw - btrfs /dev/vdc rw
"""


@pytest.mark.parametrize(
    ("path", "device", "kind"),
    [
        ("/srv/state", "254:0", None),
        ("/home/me/.scv", "0:40", "nfs4"),
        ("/homes/me/.scv", "254:0", None),
        ("/home/me/local disk/x", "0:41", None),
        ("/mnt/c/Users/me", "0:42", "9p, a Windows drive"),
        ("/sandbox/x", "0:43", None),
        ("/media/share", "0:44", "fuse.sshfs"),
        ("/over/x", "0:46", "cifs"),
        ("/pool/x", "0:99", None),
    ],
)
def test_network_file_systems_are_found_in_the_mount_table(
    path: str, device: str, kind: str | None
) -> None:
    assert remote_type(MOUNTS, device, path) == kind


def test_importing_the_store_loads_no_database() -> None:
    code = "import sys, scv.store; print('sqlite3' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
    )

    assert (done.stdout, done.stderr) == ("False\n", "")
