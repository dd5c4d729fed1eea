"""Learn that a child exited, and how, without asyncio's child watcher.

The watcher of Python 3.11 starts a thread for every child. A pidfd costs one
descriptor; a thread is the fallback where the system has none (macOS).
"""

import contextlib
import os

import anyio

from scv.values import frozen


@frozen
class ExitStatus:
    """An exit code or the signal that killed; both None when unknown."""

    exit_code: int | None
    signal: int | None


UNKNOWN = ExitStatus(None, None)


class ExitWatch:
    """Sets `happened` when a child exits, and leaves it a zombie until `collect`."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd = -1
        self._status: ExitStatus | None = None
        self._is_abandoned = False
        self.happened = anyio.Event()

    def start(self) -> None:
        """Begin watching on the running event loop."""
        import asyncio

        self._loop = asyncio.get_running_loop()
        try:
            self._fd = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            import threading

            threading.Thread(target=self._wait, daemon=True).start()
            return
        self._loop.add_reader(self._fd, self._exited)

    def collect(self) -> ExitStatus:
        """Take the exit status, once; `UNKNOWN` while the child still runs."""
        if self._status is None:
            self._status = _take_status(self._pid)
        return self._status or UNKNOWN

    def stop(self) -> None:
        """Stop watching; a child that even KILL did not end is collected later."""
        if self._status is None:
            self._is_abandoned = True
        elif self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _exited(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
        self.happened.set()
        if self._is_abandoned:
            self.collect()
            self.stop()

    def _wait(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._exited)


def _take_status(pid: int) -> ExitStatus | None:
    try:
        info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # somebody else took it: never guess
        return UNKNOWN
    if info is None:
        return None
    if info.si_code == os.CLD_EXITED:
        return ExitStatus(info.si_status, None)
    return ExitStatus(None, info.si_status)
