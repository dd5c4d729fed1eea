"""Byte streams over file descriptors.

`FdStream` serves everything the system gives a descriptor for: pipes, Unix
sockets, terminals, and also files and /dev/null, which no event loop can watch
and which never make anyone wait. Reading keeps at most two chunks ahead of the
peer; writing hands over at once and counts every byte that had to stay.
"""

import asyncio
import os
from collections import deque
from itertools import islice

import anyio

from scv.errors import ConnectionLost
from scv.wire.limits import BACKLOG_CLOSE_BYTES

STALL_SECONDS = 30.0
"""A backlog that does not shrink for so long belongs to a reader that is gone.

Source: docs/protocol.md, "Limits and back-pressure".
"""

FLUSH_SECONDS = 1.0
"""Patience on closing with a reader that has yet to take the last bytes."""

_CHUNK_BYTES = 64 * 1024  # what a Linux pipe holds
_BUFFERS_PER_WRITE = 64


class FdStream:
    """A stream over a readable and a writable descriptor, which may be the same.

    Owns both: `aclose` closes them and first makes them blocking again if they
    were, because other processes may hold the same pipe or terminal.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        backlog_limit_bytes: int = BACKLOG_CLOSE_BYTES,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_fd, self._write_fd = read_fd, write_fd
        self._limit_bytes, self._stall_seconds = backlog_limit_bytes, stall_seconds
        self._ahead = b""
        self._is_at_end = False
        self._is_paused = False
        self._reader: asyncio.Future[None] | None = None
        self._queue: deque[memoryview] = deque()
        self._backlog_bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._progress_at = 0.0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._is_broken = False
        self._is_open = True
        self._were_blocking = {fd: os.get_blocking(fd) for fd in (read_fd, write_fd)}
        for fd in self._were_blocking:
            os.set_blocking(fd, False)
        try:
            self._loop.add_reader(read_fd, self._on_readable)
            self._is_watched = True
        except OSError:  # EPERM from epoll: a file or /dev/null, always readable
            self._is_watched = False

    @property
    def backlog_bytes(self) -> int:
        """Bytes written here that the system has not taken yet."""
        return self._backlog_bytes

    async def receive(self) -> bytes:
        """Return the next bytes, `b""` for ever at the end; one caller at a time."""
        if not self._is_watched:
            await asyncio.sleep(0)
            return b"" if self._is_broken else self._read() or b""
        while not self._ahead and not self._is_at_end:
            self._reader = self._loop.create_future()
            await self._reader
        data, self._ahead = self._ahead, b""
        if self._is_paused and not self._is_broken:
            self._is_paused = False
            self._loop.add_reader(self._read_fd, self._on_readable)
        return data

    def write(self, data: bytes) -> None:
        """Hand data to the system if it takes it now, else keep it as backlog."""
        if self._is_broken:
            return
        rest = memoryview(data)
        while rest and not self._backlog_bytes:
            try:
                rest = rest[os.write(self._write_fd, rest) :]
            except BlockingIOError:
                break
            except OSError:
                self._break()
                return
        if rest:
            self._keep(rest)

    async def drained(self) -> None:
        """Wait until there is no backlog, or no stream."""
        await self._idle.wait()

    async def aclose(self) -> None:
        """Let the backlog leave for a second at most, then close the descriptors."""
        if not self._is_open:
            return
        try:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self.drained()
        finally:
            self._break()
            self._close()

    def _read(self) -> bytes | None:
        """Read what is there: `b""` at the end, None when nothing is."""
        try:
            return os.read(self._read_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:  # reset, or a terminal that was hung up
            return b""

    def _on_readable(self) -> None:
        if self._ahead:  # the peer is behind; the rest waits in the system
            self._is_paused = True
            self._loop.remove_reader(self._read_fd)
            return
        data = self._read()
        if data is None:
            return
        if not data:
            self._is_at_end = True
            self._loop.remove_reader(self._read_fd)
        self._ahead = data
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)

    def _keep(self, data: memoryview) -> None:
        if not self._backlog_bytes:
            self._idle.clear()
            self._loop.add_writer(self._write_fd, self._on_writable)
            self._progress_at = self._loop.time()
            self._check_stall()
        self._queue.append(data)
        self._backlog_bytes += len(data)
        if self._backlog_bytes > self._limit_bytes:
            self._break()

    def _on_writable(self) -> None:
        try:
            taken = os.writev(
                self._write_fd, list(islice(self._queue, _BUFFERS_PER_WRITE))
            )
        except BlockingIOError:
            return
        except OSError:
            self._break()
            return
        self._progress_at = self._loop.time()
        self._backlog_bytes -= taken
        while taken:
            first = self._queue.popleft()
            if taken < len(first):
                self._queue.appendleft(first[taken:])
            taken -= min(taken, len(first))
        if not self._backlog_bytes:
            self._stop_writing()

    def _check_stall(self) -> None:
        due = self._progress_at + self._stall_seconds
        if self._loop.time() >= due:
            self._break()
        else:
            self._stall_timer = self._loop.call_at(due, self._check_stall)

    def _stop_writing(self) -> None:
        self._loop.remove_writer(self._write_fd)
        if self._stall_timer:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._idle.set()

    def _break(self) -> None:
        """Give up both directions: drop what waits and let the reader see the end."""
        if self._is_broken:
            return
        self._is_broken = self._is_at_end = True
        self._ahead = b""
        self._queue.clear()
        self._backlog_bytes = 0
        if self._is_watched:
            self._loop.remove_reader(self._read_fd)
        self._stop_writing()
        self._wake_reader()

    def _close(self) -> None:
        self._is_open = False
        for fd, was_blocking in self._were_blocking.items():
            os.set_blocking(fd, was_blocking)
            os.close(fd)


def take_stdio() -> tuple[int, int]:
    """Reserve this process's standard input and output for frames.

    Returns a reading and a writing descriptor that no child inherits, to be
    given to `FdStream`. From here on, descriptor 1 is standard error, so that a
    print or a child's output cannot get between frames, and descriptor 0 is
    /dev/null. A closed standard input reads as ended, a closed output drops all.
    """
    null = _above_standard(os.open(os.devnull, os.O_RDWR))
    fds = []
    for standard in (0, 1):
        try:
            fds.append(_copy(standard))
        except OSError:  # started with it closed
            fds.append(_copy(null))
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(null, 1)
    os.close(null)
    return fds[0], fds[1]


def _copy(fd: int) -> int:
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    return fcntl(fd, F_DUPFD_CLOEXEC, 3)


def _above_standard(fd: int) -> int:
    """Move a descriptor off a standard place that was free and so was given to it."""
    if fd > 2:
        return fd
    moved = _copy(fd)
    os.close(fd)
    return moved


async def connect_unix(path: str) -> FdStream:
    """Connect to the Unix socket at a path.

    Raises:
        ConnectionLost: Nothing listens there, or it may not be reached.
    """
    import socket

    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(client, path)
    except OSError as error:
        raise ConnectionLost(f"no server answers at {path}") from error
    else:
        fd = client.detach()
        return FdStream(fd, fd)
    finally:
        client.close()
