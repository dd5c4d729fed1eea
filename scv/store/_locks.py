"""Lock files: the kernel frees them at any death of their process."""

import contextlib
import fcntl
import os
import time

from scv.core.records import SessionLocked
from scv.errors import StoreError
from scv.host.locks import FileLock, lock_exclusively, read_holder
from scv.host.private import open_private

_WAIT_SECONDS = 30
"""How long to wait for another process that makes, upgrades or mends the store."""


class StoreLock:
    """`store.lock`: shared while a process lives, exclusive to change the layout."""

    def __init__(self, folder: str) -> None:
        """Take it exclusively when nobody else lives, else shared.

        Raises:
            StoreError: Another process kept it exclusively all the time.
        """
        self.path = f"{folder}/store.lock"
        self._fd = open_private(self.path)
        self.is_exclusive = False
        try:
            self._take()
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
                if _try_lock(self._fd, how):
                    self.is_exclusive = how == fcntl.LOCK_EX
                    return
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{self.path}: another SCV process has been upgrading or mending"
                    f" the store for {_WAIT_SECONDS} s; wait for it, or end it"
                )
            time.sleep(0.01)

    def try_exclusive(self) -> bool:
        """Become the only one, if nobody else lives."""
        if not self.is_exclusive:
            self.is_exclusive = _try_lock(self._fd, fcntl.LOCK_EX)
            if not self.is_exclusive:  # the kernel took the shared one away to try
                fcntl.flock(self._fd, fcntl.LOCK_SH)
        return self.is_exclusive

    def share(self) -> None:
        """Let others in again."""
        self.is_exclusive = False
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def release(self) -> None:
        """Give it up; the file stays, so that everybody locks the same one."""
        os.close(self._fd)


class SessionFileLock:
    """`locks/<sessionId>`, exclusive; names its owner's pid, gone when it is free."""

    def __init__(self, folder: str, session_id: str) -> None:
        """Take a session.

        Raises:
            SessionLocked: Another holder lives.
            OSError: As the system says.
        """
        self._path = f"{folder}/{session_id}"
        lock = lock_exclusively(self._path)
        if lock is None:
            holder = read_holder(self._path)
            raise SessionLocked(None if holder is None else holder.pid)
        self._lock: FileLock | None = lock

    def release(self) -> None:
        """Remove the file, then let go; a second call does nothing."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._lock.release()
            self._lock = None


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
