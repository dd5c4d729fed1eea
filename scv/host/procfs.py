"""Facts about processes, read from `/proc` on Linux."""

import os
import sys

from scv.values import frozen


@frozen
class Stat:
    """One line of `/proc/<pid>/stat`; `started` counts clock ticks since boot."""

    state: str
    parent: int
    group: int
    session: int
    started: int

    @property
    def is_dead(self) -> bool:
        """Whether only an exit status is left of the process."""
        return self.state in "ZXx"


def read_stat(pid: int) -> Stat | None:
    """Read what the kernel says about a process; None when there is none.

    Source: proc_pid_stat(5), fields 3 to 6 and 22. The command name in field 2
    may hold blanks and brackets, so counting starts after its last bracket.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        return Stat(
            fields[0].decode("ascii"),
            int(fields[1]),
            int(fields[2]),
            int(fields[3]),
            int(fields[19]),
        )
    except (OSError, IndexError, ValueError):
        return None


def start_time(pid: int) -> int | None:
    """Tell when a process started, to know it from a later one with the same pid.

    Clock ticks since boot on Linux, microseconds since 1970 elsewhere; None when
    no such process lives.
    """
    if sys.platform == "linux":
        stat = read_stat(pid)
        return None if stat is None or stat.is_dead else stat.started
    import psutil

    try:
        return int(psutil.Process(pid).create_time() * 1_000_000)
    except psutil.Error:
        return None


def children(pid: int) -> list[int]:
    """List the direct children of all threads of a process, zombies included."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                while block := file.read(65_536):
                    found.extend(map(int, block.split()))
        except FileNotFoundError:
            if not os.path.exists("/proc/thread-self/children"):
                return _children_by_parent(pid)
        except OSError:  # the thread or the process ended meanwhile
            continue
    return found


def _children_by_parent(pid: int) -> list[int]:
    """Do the same on a kernel built without CONFIG_PROC_CHILDREN."""
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdecimal()
        and (stat := read_stat(int(name))) is not None
        and stat.parent == pid
    ]


def environment_block(pid: int) -> bytes:
    """Read the environment a process was started with; empty when not readable."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read(4_194_304)
    except OSError:
        return b""
