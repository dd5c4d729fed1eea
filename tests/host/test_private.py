"""Private files are private from their first moment; locks die with their holder."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scv.errors import Refused
from scv.host.locks import lock_exclusively, lock_shared, read_holder
from scv.host.private import open_private, private_directory, write_private
from scv.host.procfs import start_time

HOLD = (
    "import sys\n"
    "from scv.host.locks import lock_exclusively\n"
    "lock = lock_exclusively(sys.argv[1])\n"
    "print(lock is not None, flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_directories_and_files_are_private_whatever_the_umask(
    umask: int, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"

    private_directory(str(folder))
    write_private(str(folder / "note"), b"secret")
    os.close(open_private(str(folder / "lock")))

    assert [mode(folder), mode(folder.parent)] == [0o700, 0o700]
    assert [mode(folder / "note"), mode(folder / "lock")] == [0o600, 0o600]
    assert (folder / "note").read_bytes() == b"secret"


def test_what_was_wider_is_tightened(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / "file"
    file.write_text("x")
    file.chmod(0o644)

    private_directory(str(tmp_path))
    os.close(open_private(str(file)))

    assert (mode(tmp_path), mode(file)) == (0o700, 0o600)


def test_a_write_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    link = tmp_path / "link"
    link.symlink_to(target)

    with pytest.raises(Refused):
        open_private(str(link))
    write_private(str(link), b"new")

    assert target.read_text() == "untouched"
    assert not link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


def test_special_files_and_wrong_kinds_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")

    for path in (tmp_path / "fifo", tmp_path):
        with pytest.raises(Refused):
            open_private(str(path))
    with pytest.raises(Refused):
        private_directory(str(tmp_path / "file"))


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()

    with pytest.raises(IsADirectoryError):
        write_private(str(tmp_path / "taken"), b"x")

    assert os.listdir(tmp_path) == ["taken"]


def test_sharers_exclude_the_one_who_wants_it_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = lock_shared(path), lock_shared(path)
    assert first is not None
    assert second is not None
    assert lock_exclusively(path) is None

    first.release()
    second.release()

    with lock_exclusively(path) or pytest.fail("the lock is free"):
        assert lock_shared(path) is None
        assert lock_exclusively(path) is None
    assert lock_shared(path) is not None
    assert mode(tmp_path / "lock") == 0o600


def test_life_6_a_killed_holder_frees_the_lock_and_is_not_mistaken(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert lock_exclusively(path) is None
        holder = read_holder(path)
        assert holder is not None
        assert (holder.pid, holder.is_running) == (process.pid, True)
        process.kill()

    assert not holder.is_running
    with lock_exclusively(path) or pytest.fail("the lock is free"):
        mine = read_holder(path)
        assert mine is not None
        assert (mine.pid, mine.started) == (os.getpid(), start_time(os.getpid()))


def test_a_recycled_pid_is_no_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text(f"{os.getpid()} 1\n")
    holder = read_holder(str(lock))
    assert holder is not None
    assert not holder.is_running

    lock.write_text("rubbish")
    assert read_holder(str(lock)) is None
    assert read_holder(str(tmp_path / "absent")) is None


def test_a_removed_lock_file_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    old = lock_exclusively(str(path))
    path.unlink()

    with lock_exclusively(str(path)) or pytest.fail("the new file is free"):
        assert lock_exclusively(str(path)) is None
    assert old is not None
    old.release()
