"""Run one child process and leave nothing of it behind.

A child gets its own session and process group, the null device as stdin, no file
descriptor but those named, and default signal handlers. It is over when its
leader is; what the leader left running is ended then:

    leader exits      the rest may end by itself for a moment, then TERM, up to
                      two seconds (not past the deadline), KILL
    deadline          KILL at once, leader included
    cancelled         TERM to all, up to two seconds, KILL

After KILL the wait is bounded, and so is draining pipes that somebody else still
holds. Groups alone do not find everything: see `scv.host.descendants`. The leader
stays a zombie until all this is done, so its pid, group and session cannot be
given to somebody else meanwhile.
"""

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import anyio

from scv.errors import LimitExceeded, NotFound, ToolError
from scv.host.descendants import descendants_of, marking, prepare_this_process
from scv.host.exits import ExitStatus, ExitWatch
from scv.host.pipe import OutputPipe
from scv.values import frozen

TERM_GRACE_SECONDS = 2.0
KILL_WAIT_SECONDS = 1.0
DRAIN_SECONDS = 0.25
SETTLE_SECONDS = 0.1
"""How long children may outlive the leader unharmed: `> >(tee log)` ends just after
it, and would lose its last lines to an immediate TERM."""
TICK_SECONDS = 0.5


@frozen
class ProcessResult:
    """How a child ended.

    Both `exit_code` and `signal` are None when the status could not be learnt,
    which is never a success. `ended` counts processes the leader left running and
    that were ended for it, `left` those that could not be.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    ended: int
    left: int


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    timeout_seconds: float,
    stdout: OutputPipe,
    stderr: OutputPipe,
    further_pipes: Sequence[OutputPipe] = (),
    further_fds: Sequence[int] = (),
    tag: str = "",
    on_start: Callable[[int], None] | None = None,
    on_tick: Callable[[], None] | None = None,
) -> ProcessResult:
    """Run a program to its end and clean up after it.

    Args:
        argv: Program (an absolute path) and arguments.
        stdout: May be the same pipe as `stderr`, which keeps the order of writes.
        further_pipes: Their `write_fd` stays open in the child, same number.
        further_fds: Files the child gets, same number; the caller closes them.
        tag: Part of the environment that marks descendants of this very call.
        on_start: Called with the pid as soon as the program runs.
        on_tick: Called every half second while the leader runs.

    Cancelling ends the child and all below it before the exception goes on.

    Raises:
        NotFound: The program or the directory does not exist.
        ToolError: The system did not start it.
    """
    pipes = list({id(pipe): pipe for pipe in (stdout, stderr, *further_pipes)}.values())
    deadline = time.monotonic() + timeout_seconds
    try:
        prepare_this_process()
        child = _Child(
            argv,
            cwd=cwd,
            environment=environment,
            stdout=stdout.write_fd,
            stderr=stderr.write_fd,
            keep=(*(pipe.write_fd for pipe in further_pipes), *further_fds),
            tag=tag,
        )
        with child:
            for pipe in pipes:
                pipe.listen()
            try:
                if on_start is not None:
                    on_start(child.pid)
                timed_out = not await child.exits_before(deadline, on_tick)
                if timed_out:
                    await child.kill()
                else:
                    await child.end_rest(deadline)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await child.terminate()
                raise
            await _until(lambda: _are_read(pipes), DRAIN_SECONDS)
            status = child.collect()
        return ProcessResult(
            status.exit_code, status.signal, timed_out, child.ended, child.left
        )
    finally:
        for pipe in pipes:
            pipe.close()


class _Child:
    """A started leader with everything below it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        stdout: int,
        stderr: int,
        keep: Sequence[int],
        tag: str,
    ) -> None:
        try:
            with marking() as mark:
                # vfork inside; measured at 0.3 ms, asyncio's own at 1 ms a call
                self._popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=cwd,
                    env=environment,
                    start_new_session=True,
                    pass_fds=keep,
                )
        except (OSError, ValueError) as error:
            raise _start_error(error, argv[0], cwd) from error
        self._pid = self.pid = self._popen.pid
        self._below = descendants_of(self._pid, mark, tag)
        self._exit = ExitWatch(self._pid)
        self._term_until: float | None = None
        self._signalled: set[int] = set()
        self.left = 0

    @property
    def ended(self) -> int:
        """How many descendants were told to end and did."""
        return max(0, len(self._signalled) - self.left)

    def __enter__(self) -> "_Child":
        self._exit.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._exit.happened.is_set():  # only when the clean-up was torn down
            self._signal(signal.SIGKILL)
        self.collect()
        self._exit.stop()
        self._below.forget()

    async def exits_before(
        self, deadline: float, on_tick: Callable[[], None] | None
    ) -> bool:
        """Wait for the leader; False when the deadline came first."""
        while not self._exit.happened.is_set():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            with anyio.move_on_after(min(remaining, TICK_SECONDS)):
                await self._exit.happened.wait()
                return True
            self._below.alive()  # collects orphans that died meanwhile
            if on_tick is not None:
                on_tick()
        return True

    async def end_rest(self, deadline: float) -> None:
        """End what outlives the leader, gently while the deadline allows."""
        remaining = max(0.0, deadline - time.monotonic())
        if await _until(self._is_gone, min(SETTLE_SECONDS, remaining)):
            return
        await self.terminate(longest=max(0.0, deadline - time.monotonic()))

    async def terminate(self, *, longest: float = TERM_GRACE_SECONDS) -> None:
        """TERM everything, then KILL; a second call does not start the grace anew."""
        now = time.monotonic()
        if self._term_until is None:
            self._term_until = now + min(TERM_GRACE_SECONDS, longest)
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process must wake to obey
        if not await _until(self._is_gone, self._term_until - now):
            await self.kill()

    async def kill(self) -> None:
        """KILL everything until nothing is left, for a bounded time."""

        def is_gone_after_kill() -> bool:
            self._signal(signal.SIGKILL)
            return self._is_gone()

        if not await _until(is_gone_after_kill, KILL_WAIT_SECONDS):
            self.left = len(self._below.alive())
            self.left += not self._exit.happened.is_set()

    def collect(self) -> ExitStatus:
        """Take the leader's exit status."""
        status = self._exit.collect()
        # keeps Popen from waiting for, or warning about, a child it does not own
        self._popen.returncode = 0
        return status

    def _is_gone(self) -> bool:
        return self._exit.happened.is_set() and not self._below.alive()

    def _signal(self, number: signal.Signals) -> None:
        below = self._below.alive()
        self._signalled.update(below)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _are_read(pipes: Sequence[OutputPipe]) -> bool:
    still_open = [pipe for pipe in pipes if not pipe.read_on()]
    return not still_open


async def _until(reached: Callable[[], bool], seconds: float) -> bool:
    """Look again and again, less often as time passes; False when time is up."""
    end = time.monotonic() + seconds
    pause = 0.0005
    while not reached():
        remaining = end - time.monotonic()
        if remaining <= 0:
            return False
        await anyio.sleep(min(pause, remaining))
        pause = min(pause * 1.5, 0.02)
    return True


def _start_error(error: OSError | ValueError, program: str, cwd: str) -> ToolError:
    if isinstance(error, ValueError):
        return ToolError(f"{program} was not started: {error}.")
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        if not os.path.isdir(cwd):
            return NotFound(f"The directory {cwd} does not exist.")
        return NotFound(f"{program} does not exist.")
    if error.errno == errno.E2BIG:
        return LimitExceeded(
            f"{program} was not started: its arguments and environment are larger"
            " than the system allows."
        )
    return ToolError(f"{program} was not started: {os.strerror(error.errno or 0)}.")
