"""Standard output without waiting: a slow reader never holds up the event loop.

The descriptor is shared with other processes, so it stays blocking. `poll` says
whether a pipe takes a page more; no single write is larger than that.
"""

import asyncio
import os
import select
from collections.abc import Callable

_PAGE_BYTES = 4096  # poll reports a pipe as writable when it takes this much


class Output:
    """Writes text to a descriptor; `is_broken` once nobody reads any more."""

    def __init__(self, fd: int, on_broken: Callable[[], None] = lambda: None) -> None:
        self.is_broken = False
        self._fd = fd
        self._on_broken = on_broken
        self._waiting = bytearray()
        self._idle = asyncio.Event()
        self._idle.set()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def write(self, text: str) -> None:
        """Hand text over now if it is taken, else as soon as it is."""
        if self.is_broken:
            return
        self._waiting += text.encode("utf-8", "replace")
        if self._idle.is_set() and not self._flush():
            self._idle.clear()
            asyncio.get_running_loop().add_writer(self._fd, self._on_writable)

    async def drained(self) -> None:
        """Wait until everything is handed over, or nobody reads any more."""
        await self._idle.wait()

    def _flush(self) -> bool:
        """Write what is taken without waiting; False when something stays."""
        done = 0
        try:
            while done < len(self._waiting) and self._poll.poll(0):
                page = memoryview(self._waiting)[done : done + _PAGE_BYTES]
                with page:
                    done += os.write(self._fd, page)
        except OSError:
            self.is_broken = True
            self._waiting.clear()
            self._on_broken()
            return True
        del self._waiting[:done]
        return not self._waiting

    def _on_writable(self) -> None:
        if self._flush():
            asyncio.get_running_loop().remove_writer(self._fd)
            self._idle.set()
