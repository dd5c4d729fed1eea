"""Read what children print, on the event loop and without a task for it."""

import fcntl
import os
from collections.abc import Callable

_READ_BYTES = 65_536  # what a pipe holds on Linux
_READS_IN_A_ROW = 32  # the loop must go on even when a pipe never runs dry


class OutputPipe:
    """A pipe whose bytes go to `sink` as they arrive, whoever writes them."""

    def __init__(self, sink: Callable[[bytes], None], *, lowest_fd: int = 0) -> None:
        """Open the pipe; `lowest_fd` keeps the writing end out of the way of shells."""
        self._sink = sink
        self._read_fd, self.write_fd = os.pipe()
        if lowest_fd:
            low = self.write_fd
            try:
                self.write_fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, lowest_fd)
            finally:
                os.close(low)
        os.set_blocking(self._read_fd, False)

    def listen(self) -> None:
        """Start reading; the writing end is the child's alone from now on."""
        import asyncio

        self._close_writing_end()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_fd, self._read)

    def read_on(self) -> bool:
        """Read what is there without waiting; True when the end was reached."""
        for _ in range(_READS_IN_A_ROW):
            if not self._read():
                break
        return self._read_fd < 0

    def close(self) -> None:
        """Stop, without reading what may still come."""
        self._close_writing_end()
        self._stop()

    def _close_writing_end(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def _read(self) -> bool:
        if self._read_fd < 0:
            return False
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._sink(data)
        else:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        if self._read_fd >= 0:
            if hasattr(self, "_loop"):
                self._loop.remove_reader(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = -1
