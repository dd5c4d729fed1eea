"""A byte stream inside one process and one event loop."""

import asyncio

from scv.wire.limits import BACKLOG_CLOSE_BYTES


class MemoryStream:
    """One end of a pair; writing puts bytes into the other end's inbox."""

    def __init__(self, backlog_limit_bytes: int) -> None:
        self._limit_bytes = backlog_limit_bytes
        self._other = self
        self._inbox: list[bytes] = []
        self._inbox_bytes = 0
        self._taken = asyncio.Event()
        self._taken.set()
        self._is_ended = False  # nothing more comes in
        self._reader: asyncio.Future[None] | None = None

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the other end has not received yet."""
        return self._other._inbox_bytes

    async def receive(self) -> bytes:
        """Return all that waits, `b""` for ever at the end; one caller at a time."""
        while not self._inbox and not self._is_ended:
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        data = b"".join(self._inbox)
        self._empty()
        return data

    def write(self, data: bytes) -> None:
        """Put data into the other end's inbox."""
        other = self._other
        if other._is_ended:
            return
        other._inbox.append(data)
        other._inbox_bytes += len(data)
        other._taken.clear()
        if other._inbox_bytes > self._limit_bytes:
            other._empty()
            self._end()
        else:
            other._wake_reader()

    async def drained(self) -> None:
        """Wait until the other end has received everything, or the pair has ended."""
        await self._other._taken.wait()

    async def aclose(self) -> None:
        """End both directions; the other end still receives what was written."""
        self._empty()
        self._end()

    def _end(self) -> None:
        for end in (self, self._other):
            end._is_ended = True
            end._wake_reader()

    def _empty(self) -> None:
        self._inbox.clear()
        self._inbox_bytes = 0
        self._taken.set()

    def _wake_reader(self) -> None:
        if self._reader and not self._reader.done():
            self._reader.set_result(None)


def memory_pair(
    *, backlog_limit_bytes: int = BACKLOG_CLOSE_BYTES
) -> tuple[MemoryStream, MemoryStream]:
    """Connect two peers of one process without any system call."""
    one, other = MemoryStream(backlog_limit_bytes), MemoryStream(backlog_limit_bytes)
    one._other, other._other = other, one
    return one, other
