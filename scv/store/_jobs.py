"""What the database thread is asked to do, and where its answers go."""

import asyncio
import queue
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from scv.store._rows import Write

if TYPE_CHECKING:
    import sqlite3

Read = Callable[["sqlite3.Connection"], Any]


class Job:
    """Writes, or a read; `expects_answer` when somebody waits for it."""

    __slots__ = (
        *("_answered", "_future", "_loop"),
        *("error", "is_settled", "read", "result", "writes"),
    )

    def __init__(
        self,
        writes: tuple[Write, ...] = (),
        *,
        read: Read | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        answered: "queue.SimpleQueue[bool] | None" = None,
    ) -> None:
        """`loop`: the running one, when the caller waits in it; a thread that waits
        waits for `answered`."""
        self.writes, self.read = writes, read
        self._loop, self._answered = loop, answered
        self._future: asyncio.Future[Any] | None = None
        if loop is not None:
            self._future = loop.create_future()
        self.is_settled = False
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def expects_answer(self) -> bool:
        """Whether somebody waits."""
        return self._future is not None

    def settle(self, result: Any = None, error: BaseException | None = None) -> None:
        """Fix the answer, the first time; `deliver` sends it off."""
        if not self.is_settled:
            self.is_settled, self.result, self.error = True, result, error

    async def wait(self) -> Any:
        """Wait for the answer; cancelling ends the wait only."""
        assert self._future is not None
        return await self._future

    def _hand_over(self) -> None:
        future = self._future
        if future is None or future.done():  # nobody waits, or no longer
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)

    @staticmethod
    def deliver(jobs: "Iterable[Job]") -> None:
        """Send settled answers to those who wait, with one call into each loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            if job.is_settled and job._answered is not None:
                job._answered.put(True)
            elif job.is_settled and job._loop is not None:
                by_loop.setdefault(job._loop, []).append(job)
        for loop, settled in by_loop.items():
            try:
                loop.call_soon_threadsafe(_hand_over_all, settled)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue


def _hand_over_all(jobs: list[Job]) -> None:
    for job in jobs:
        job._hand_over()
