"""Lock files: held by an open descriptor, so the kernel frees them on death.

The file itself means nothing and is never removed: its presence is no lock, and
the pid inside is for messages only.
"""

import fcntl
import os
from types import TracebackType

from scv.host.private import open_private
from scv.host.procfs import start_time
from scv.values import frozen


@frozen
class Holder:
    """Who wrote a lock file last; `started` as `scv.host.procfs.start_time` says."""

    pid: int
    started: int

    @property
    def is_running(self) -> bool:
        """Whether that very process lives, not a later one with its pid."""
        return start_time(self.pid) == self.started


class FileLock:
    """One taken lock; gone with `release`, the end of a `with`, or the process."""

    def __init__(self, file: int) -> None:
        """Own an already locked descriptor."""
        self._file = file

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "FileLock":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def lock_exclusively(path: str) -> FileLock | None:
    """Take a lock alone and note who has it; None when anybody else holds it."""
    file = _locked(path, fcntl.LOCK_EX)
    if file is None:
        return None
    started = start_time(os.getpid()) or 0
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()} {started}\n".encode("ascii"), 0)
    return FileLock(file)


def lock_shared(path: str) -> FileLock | None:
    """Take a lock beside other sharers; None when somebody holds it alone."""
    file = _locked(path, fcntl.LOCK_SH)
    return None if file is None else FileLock(file)


def read_holder(path: str) -> Holder | None:
    """Read who last held a lock alone; only for messages, never to decide."""
    try:
        with open(path, "rb") as file:
            pid, started = file.read(64).split()
        return Holder(int(pid), int(started))
    except (OSError, ValueError):
        return None


def _locked(path: str, kind: int) -> int | None:
    while True:
        file = open_private(path)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            if _is_at(path, file):
                return file
        except BlockingIOError:
            os.close(file)
            return None
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # somebody replaced the file; lock what is there now


def _is_at(path: str, file: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file))
    except FileNotFoundError:
        return False
