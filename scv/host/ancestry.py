"""Tell whether a process was started, however indirectly, by an SCV tool.

Two signs: it is below this very process, whose children are tools and nothing
else (on Linux also their orphans, see `scv.host.descendants`), or it or something
above it carries the mark that tools of the instance give their children. A guard
against a mistake, not a boundary: a program that wants to hide can.
"""

import os
import re
import sys

from scv.host import procfs
from scv.host.descendants import PARENT_VARIABLE

_WALKS = 3
"""A parent that ends during the walk hands its children on, so it starts again."""


def descends_from_tools(pid: int, *, instance: str) -> bool:
    """Find out about a living process; one that is gone already counts as a tool's."""
    if pid == os.getpid():
        return False
    marks = re.compile(
        rb"(?:^|\0)%s=(?:[^\0]*;)?%s/[^/;\0]*/[^/;\0]*(?:;|\0|$)"
        % (PARENT_VARIABLE.encode(), re.escape(os.fsencode(instance)))
    )
    for _ in range(_WALKS):
        line = _line_above(pid)
        if line is not None:
            return os.getpid() in line or any(
                marks.search(_environment(each)) for each in line
            )
    return True


def _line_above(pid: int) -> list[int] | None:
    """List a process and all above it, itself first; None when one ended meanwhile."""
    line: list[int] = []
    while pid > 1:
        line.append(pid)
        parent = _parent(pid)
        if parent is None:
            return None
        pid = parent
    return line


def _parent(pid: int) -> int | None:
    if sys.platform == "linux":
        stat = procfs.read_stat(pid)
        return None if stat is None or stat.is_dead else stat.parent
    import psutil

    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _environment(pid: int) -> bytes:
    if sys.platform == "linux":
        return procfs.environment_block(pid)
    import psutil

    try:
        variables = psutil.Process(pid).environ()
    except psutil.Error:
        return b""
    return os.fsencode("\0".join(f"{key}={text}" for key, text in variables.items()))
