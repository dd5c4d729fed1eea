"""Find everything a child process started, wherever it went.

On Linux this process is a child subreaper: when a parent dies below it, the
orphans become its own children, whatever session or group they moved to. Which
call an orphan belongs to is told by three marks that children inherit: the
session and group of the call's leader, the `SCV_PARENT` variable, and a soft
RLIMIT_RTTIME of about 70,000 years that carries the call's number. The limit
changes nothing for a process (it counts realtime CPU time) and survives exec,
setsid, double forks and `env -i`. Below an orphan everything belongs to it.

Only what carries a mark of the call is signalled or reaped, so the exit status
of a child that somebody else waits for is never taken.

Elsewhere (macOS) orphans go to process 1. There the group and session count,
and what was seen as a descendant while its parents lived.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from scv.host import procfs

if TYPE_CHECKING:
    import psutil

PARENT_VARIABLE = "SCV_PARENT"
"""Names who started a process: `<instance>/<session>/<call>`, outer calls before
it, joined by semicolons."""

_MARK_BASE = 1 << 61  # microseconds; far beyond any real limit
_leaders: set[int] = set()
_prepared = False
_last_mark = 0


def prepare_this_process() -> None:
    """Make this process able to own children; once, later calls do nothing.

    Becomes a child subreaper on Linux. Signals that were ignored when the process
    started (nohup, background jobs of scripts) would be ignored by all children
    too, and an ignored SIGCHLD loses exit statuses: a handler that does nothing
    takes the place of the former, the default that of the latter.
    """
    global _prepared
    if _prepared:
        return
    _prepared = True
    import threading

    if threading.current_thread() is threading.main_thread():
        for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
            if signal.getsignal(number) is signal.SIG_IGN:
                chld = number == signal.SIGCHLD
                signal.signal(number, signal.SIG_DFL if chld else _do_nothing)
    if sys.platform == "linux":
        import ctypes

        pr_set_child_subreaper = 36  # linux/prctl.h
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _do_nothing(number: int, frame: object) -> None:
    """Keep ignoring a signal without letting children inherit that."""


class Descendants(Protocol):
    """Everything below one leader, the leader itself left out."""

    def alive(self) -> list[int]:
        """List living descendants and collect the dead ones that came to us."""
        ...

    def forget(self) -> None:
        """End the search; the leader was waited for."""
        ...


def descendants_of(leader: int, mark: int | None, tag: str) -> Descendants:
    """Start the search for what `leader` starts; call right after its start."""
    if sys.platform == "linux":
        return _AdoptedDescendants(leader, mark, tag)
    return _SampledDescendants(leader)


@contextlib.contextmanager
def marking() -> Iterator[int | None]:
    """Mark every process started inside; None where the system cannot do that.

    Not for code that waits inside: a child started there by anyone is marked.
    """
    if sys.platform != "linux":
        yield None
        return
    global _last_mark
    import resource

    before = resource.getrlimit(resource.RLIMIT_RTTIME)
    # the pid keeps the numbers of nested and neighbouring servers apart
    mark = _MARK_BASE + (os.getpid() << 32) + _last_mark + 1
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, before[1]))
    except (OSError, ValueError):  # the hard limit is lower
        yield None
        return
    _last_mark += 1
    try:
        yield mark
    finally:
        resource.setrlimit(resource.RLIMIT_RTTIME, before)


class _AdoptedDescendants:
    def __init__(self, leader: int, mark: int | None, tag: str) -> None:
        self._leader = leader
        self._mark = mark
        self._tag = tag.encode("utf-8", "surrogateescape")
        _leaders.add(leader)

    def alive(self) -> list[int]:
        found: list[int] = []
        pending = procfs.children(self._leader)
        for pid in procfs.children(os.getpid()):
            if pid not in _leaders and self._is_marked(pid):
                pending.append(pid)
        seen = set(pending)
        while pending:
            pid = pending.pop()
            stat = procfs.read_stat(pid)
            if stat is None:
                continue
            if stat.is_dead:
                if stat.parent == os.getpid():
                    _collect(pid)
                continue
            found.append(pid)
            below = set(procfs.children(pid)) - seen
            seen |= below
            pending.extend(below)
        return found

    def forget(self) -> None:
        _leaders.discard(self._leader)

    def _is_marked(self, pid: int) -> bool:
        import resource

        with contextlib.suppress(OSError):
            limit = resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
            if limit == self._mark:
                return True
        stat = procfs.read_stat(pid)
        if stat is not None and self._leader in (stat.session, stat.group):
            return True
        # its own value when another SCV below the call set a mark of its own
        return bool(self._tag) and self._tag in procfs.environment_block(pid)


def _collect(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class _SampledDescendants:
    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._seen: dict[int, psutil.Process] = {}

    def alive(self) -> list[int]:
        import psutil

        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if pid != self._leader and self._leader in (
                    os.getpgid(pid),
                    os.getsid(pid),
                ):
                    self._seen.setdefault(pid, psutil.Process(pid))
        roots = list(self._seen.values())
        with contextlib.suppress(psutil.Error):
            roots.append(psutil.Process(self._leader))
        for root in roots:
            with contextlib.suppress(psutil.Error):
                for process in root.children(recursive=True):
                    self._seen.setdefault(process.pid, process)
        for pid, process in list(self._seen.items()):
            if not _runs(process):
                del self._seen[pid]
        return list(self._seen)

    def forget(self) -> None:
        self._seen.clear()


def _runs(process: "psutil.Process") -> bool:
    import psutil

    try:
        if not process.is_running():
            return False
        status: str = process.status()
        return status != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
