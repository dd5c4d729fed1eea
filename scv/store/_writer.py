"""The one thread that touches the database.

Theory of operation. Callers append jobs to a queue and wake the thread; it takes
all jobs that are there, puts every write among them into one transaction, runs
the reads after it, and answers everybody with one call into each event loop.
While it waits for the disk more jobs gather, so many commits share few syncs.
Writes that nobody waits for start no transaction of their own for
`FLUSH_SECONDS`.
"""

import logging
import queue
import threading
import time
from asyncio import get_running_loop
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from scv.errors import StoreError
from scv.store._jobs import Job
from scv.store._keeper import Keeper
from scv.store._rows import Write

if TYPE_CHECKING:
    import sqlite3

logger = logging.getLogger(__name__)
T = TypeVar("T")

FLUSH_SECONDS = 0.25
_IDLE_SECONDS = 0.5
"""Quiet time before upkeep starts."""
_RETRY_SECONDS = 1.0


class Writer:
    """Owns the database thread, which starts with the first job."""

    def __init__(self, folder: str, keeper: Keeper) -> None:
        """`keeper` is the thread's alone from now on."""
        self._folder, self._keeper = folder, keeper
        self._jobs: deque[Job] = deque()
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_armed = False
        self._is_closing = False

    # --- callers ---

    def enqueue(self, writes: tuple[Write, ...]) -> None:
        """Write these within `FLUSH_SECONDS`, or with whatever is written earlier."""
        self._refuse_closed()
        self._jobs.append(Job(writes))
        if not self._is_armed:
            self._is_armed = True
            self._wake(False)

    async def commit(self, writes: tuple[Write, ...]) -> None:
        """Return once these and everything queued before are synced to disk.

        Cancelling ends the wait only.

        Raises:
            StoreError: Nothing of `writes` is kept.
        """
        self._refuse_closed()
        await self._submit(Job(writes, loop=get_running_loop())).wait()

    async def read(self, query: Callable[["sqlite3.Connection"], T]) -> T:
        """Run a query on the thread, after every earlier write.

        Raises:
            StoreError: The database cannot be read.
        """
        self._refuse_closed()
        job = self._submit(Job(read=query, loop=get_running_loop()))
        result: T = await job.wait()
        return result

    def ask(self, query: Callable[["sqlite3.Connection"], T]) -> T:
        """Run a query after every earlier write, and wait in a thread of its own.

        Something must have been read or committed before.

        Raises:
            StoreError: The database cannot be read, or the store is closed.
        """
        self._refuse_closed()
        answered: queue.SimpleQueue[bool] = queue.SimpleQueue()
        job = self._submit(Job(read=query, answered=answered))
        while True:
            try:
                answered.get(timeout=_RETRY_SECONDS)
                break
            except queue.Empty:
                if self._thread is None or not self._thread.is_alive():
                    self._refuse_closed()
        if job.error is not None:
            raise job.error
        result: T = job.result
        return result

    async def close(self) -> None:
        """Write what is queued, close the database, end the thread.

        Raises:
            StoreError: Some of what was queued could not be kept.
        """
        if self._is_closing:
            return
        self._is_closing = True
        if self._thread is None:
            return
        job = self._submit(Job(read=_close, loop=get_running_loop()))
        try:
            await job.wait()
        finally:
            self._thread.join()  # it answered, so only its last lines are left

    def _submit(self, job: Job) -> Job:
        self._jobs.append(job)
        self._wake(True)
        return job

    def _refuse_closed(self) -> None:
        if self._is_closing:
            raise StoreError(f"{self._folder}: the session store is closed")

    def _wake(self, is_urgent: bool) -> None:
        self._wakes.put(is_urgent)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="scv-store", daemon=True
            )
            self._thread.start()

    # --- the thread ---

    def _run(self) -> None:
        is_open = True
        while is_open:
            if not self._wait():
                self._keeper.rest(lambda: bool(self._jobs))
                continue
            self._is_armed = False  # before taking jobs, so that none is forgotten
            jobs = []
            while self._jobs:
                jobs.append(self._jobs.popleft())
            is_open = all(job.read is not _close for job in jobs)
            try:
                self._work(jobs)
            except BaseException as error:  # a bug, or no memory: nobody waits for ever
                logger.exception("session store")
                for job in jobs:
                    job.settle(error=error)
                Job.deliver(jobs)

    def _wait(self) -> bool:
        """Wait for something to do; False in a quiet moment that upkeep can use."""
        timeout: float | None = None
        if self._keeper.holds_back:
            timeout = _RETRY_SECONDS
        elif self._keeper.wants_rest:
            timeout = _IDLE_SECONDS
        deadline: float | None = None
        while True:
            try:
                if self._wakes.get(timeout=timeout):
                    return True
            except queue.Empty:
                return deadline is not None or self._keeper.holds_back
            deadline = deadline or time.monotonic() + FLUSH_SECONDS
            timeout = max(0.0, deadline - time.monotonic())

    def _work(self, jobs: list[Job]) -> None:
        writing = [job for job in jobs if job.read is None]
        if writing or self._keeper.holds_back:
            self._keeper.write(writing)
            Job.deliver(writing)
        is_shut = False
        for job in jobs:
            if job.read is _close:
                self._shut(job)
                is_shut = True
            elif is_shut:
                job.settle(error=StoreError(f"{self._folder}: the store is closed"))
            elif job.read is not None:
                self._keeper.read(job)
            else:
                continue
            Job.deliver((job,))

    def _shut(self, job: Job) -> None:
        try:
            self._keeper.close()
        except StoreError as error:
            job.settle(error=error)
        job.settle()


def _close(_: "sqlite3.Connection") -> None:
    """Mark the job that ends the thread."""
