"""The two ways to walk a workspace: ripgrep, and a Python process.

Both run as children that are killed on cancel, and both give the same answer:
files that `.gitignore` files leave over (hidden ones too), without `.git` and
without following links, in the order of path components. What they print is a
hint only: whoever shows it looks again through the workspace.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import anyio

from scv.errors import ToolError
from scv.host.pipe import OutputPipe
from scv.host.process import run_process
from scv.host.workspace import path_of_directory
from scv.tools._search_child import glob_regex
from scv.tools.line_pattern import LinePattern
from scv.tools.secret_names import RIPGREP_GLOBS, SECRET_NAME, secret_like
from scv.values import frozen

DEADLINE_SECONDS = 20
MOST_HITS = 5000
_RIPGREP = (
    "--no-config",
    "--no-messages",
    "--color=never",
    "--hidden",
    "--no-ignore-dot",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-parent",
    "--no-require-git",
    "--null",
)
_RIPGREP_LINES = (
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--byte-offset",
    "--text",
    "--encoding=none",
    "--max-columns=1",  # where a line is, not what it says
    "--case-sensitive",
)
_NARROWING_GLOB = re.compile(r"[\w.*?-]+(?:\{[\w.,*?-]+\}[\w.*?-]*)?", re.ASCII)
_HIT = re.compile(rb"([^\0]*)\0(\d+):(\d+):[^\n]*\n")

Hit = tuple[bytes, int, int]
"""Path, line number from 1, byte offset of the line."""


@frozen
class Scope:
    """Where to look: `start` is real, "" for the root; `directory` is the root, open.

    `glob` is relative to `start` and None for everything.
    """

    directory: int
    start: str
    is_file: bool
    glob: str | None

    def filter(self) -> "re.Pattern[bytes]":
        """Make the expression that a whole path must match."""
        body = glob_regex(self.glob) if self.glob and not self.is_file else ".*"
        prefix = re.escape(self.start + "/") if self.start and not self.is_file else ""
        return re.compile(os.fsencode(prefix + body), re.DOTALL)


@dataclass(slots=True)
class Hits:
    """Matching lines so far; `more` when there are others after them."""

    found: list[Hit] = field(default_factory=list)
    more: bool = False


def find_ripgrep(root: str) -> str | None:
    """Find ripgrep in the absolute entries of PATH that lie outside the workspace."""
    home = os.path.realpath(root)
    for entry in os.environ.get("PATH", "").split(":"):
        program = os.path.join(entry, "rg")
        if not os.path.isabs(entry) or not os.access(program, os.X_OK):
            continue
        real = os.path.realpath(program)
        if os.path.isfile(real) and os.path.commonpath((home, real)) != home:
            return real
    return None


async def list_files(scope: Scope, ripgrep: str | None) -> list[bytes]:
    """List all files of a scope, secret-like ones too, in component order."""
    wanted = scope.filter()
    paths = filter(wanted.fullmatch, _paths(await _listing(scope, ripgrep)))
    return sorted(paths, key=in_component_order)


async def count_secret_like(scope: Scope, ripgrep: str | None) -> int:
    """Count the files that a search passes over because of their names."""
    if scope.is_file:
        return 0
    wanted = scope.filter()
    found = secret_like(await _listing(scope, ripgrep))
    return sum(wanted.fullmatch(path.removeprefix(b"./")) is not None for path in found)


async def _listing(scope: Scope, ripgrep: str | None) -> bytes:
    """Get the files of a scope in any order, perhaps with others, NUL after each."""
    chunks: list[bytes] = []

    def take(data: bytes) -> bool:
        chunks.append(data)
        return True

    if ripgrep is not None and _ripgrep_can_walk(scope):
        argv = [ripgrep, "--files", *_ripgrep_arguments(scope, secrets=True)]
        code = await _stream(argv, scope, take)
        if code in (0, 1) or (code == 2 and chunks):
            return b"".join(chunks)
        chunks.clear()
    if await _stream(_python(scope, None), scope, take) != 0:
        raise ToolError("the process that lists files failed")
    return b"".join(chunks)


async def find_lines(scope: Scope, pattern: LinePattern, ripgrep: str | None) -> Hits:
    """Find the first `MOST_HITS` matching lines in component order.

    Files with secret-like names are not looked into.
    """
    if ripgrep is not None and pattern.ripgrep and _ripgrep_can_walk(scope):
        argv = [
            ripgrep,
            *_RIPGREP_LINES,
            *_ripgrep_arguments(scope, secrets=False, pattern=pattern.ripgrep),
        ]
        hits = await _run(argv, scope)
        if hits is not None and hits.more:
            # Too many to wait for all: let it go in order and stop at the first ones.
            hits = await _run([ripgrep, "--sort=path", *argv[1:]], scope)
        if hits is not None:
            hits.found.sort(key=lambda hit: (in_component_order(hit[0]), hit[1]))
            return hits
    hits = await _run(_python(scope, pattern), scope)
    if hits is None:
        raise ToolError("the search process failed; try a simpler pattern")
    return hits


def in_component_order(path: bytes) -> bytes:
    """Give the key that sorts a directory's content right after its name."""
    return path.replace(b"/", b"\0")


async def _run(argv: list[str], scope: Scope) -> Hits | None:
    """Collect hits; None when the program failed."""
    hits = Hits()
    wanted = scope.filter()
    secret = re.compile(SECRET_NAME.encode())
    verdicts: dict[bytes, bytes | None] = {}
    rest = b""

    def keep(raw: bytes) -> bytes | None:
        path = raw.removeprefix(b"./")
        good = wanted.fullmatch(path) and not secret.search(path)
        return path if good else None

    def take(data: bytes) -> bool:
        nonlocal rest
        data = rest + data
        end = 0
        for match in _HIT.finditer(data):
            end = match.end()
            raw = match[1]
            if raw not in verdicts:
                verdicts[raw] = keep(raw)
            path = verdicts[raw]
            if path is None:
                continue
            if len(hits.found) == MOST_HITS:
                hits.more = True
                return False
            hits.found.append((path, int(match[2]), int(match[3])))
        rest = data[end:]
        return True

    code = await _stream(argv, scope, take)
    # ripgrep's 2 with hits: some files could not be read
    failed = code not in (None, 0, 1) and not (code == 2 and hits.found)
    return None if failed else hits


async def _stream(
    argv: list[str], scope: Scope, take: Callable[[bytes], bool]
) -> int | None:
    """Run a program at the root; `take` ends it by False, which gives None."""
    enough = False

    def sink(data: bytes) -> None:
        nonlocal enough
        if not enough and not take(data):
            enough = True
            scope_of_child.cancel()

    with anyio.CancelScope() as scope_of_child:
        ended = await run_process(
            argv,
            cwd=path_of_directory(scope.directory),
            environment={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
            timeout_seconds=DEADLINE_SECONDS + 1,  # the caller's own comes first
            stdout=OutputPipe(sink),
            stderr=OutputPipe(lambda data: None),
        )
        if not enough:
            return -1 if ended.exit_code is None else ended.exit_code
    return None


def _paths(listing: bytes) -> Iterator[bytes]:
    return (path.removeprefix(b"./") for path in listing.split(b"\0") if path)


def _python(scope: Scope, pattern: LinePattern | None) -> list[str]:
    request: dict[str, object] = {
        "start": scope.start + "/"
        if scope.start and not scope.is_file
        else scope.start,
        "file": scope.is_file,
        "glob": glob_regex(scope.glob) if scope.glob and not scope.is_file else ".*",
        "secret": SECRET_NAME,
        "pattern": None,
    }
    if pattern is not None:
        request |= {
            "pattern": pattern.python,
            "loose": pattern.python_loose,
            "whole": pattern.whole_text,
            "needle": pattern.needle,
            "only_needle": pattern.only_needle,
            "bytes": pattern.as_bytes,
            "ignore_case": pattern.ignore_case,
            "ascii": pattern.ascii_only,
        }
    child = os.path.join(os.path.dirname(__file__), "_search_child.py")
    options = ("-I", "-S", "-B", "-X", "utf8")
    return [sys.executable, *options, child, json.dumps(request)]


def _ripgrep_can_walk(scope: Scope) -> bool:
    """Tell whether ripgrep can be told the ignore rules that hold at the start.

    It reads those below the start itself and takes those of the root as an option;
    a `.gitignore` between the two has no such way in.
    """
    if scope.is_file:
        return True
    parts = scope.start.split("/")
    for count in range(1, len(parts)):
        if _exists("/".join((*parts[:count], ".gitignore")), scope.directory):
            return False
    return True


def _exists(path: str, directory: int) -> bool:
    try:
        os.stat(path, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _ripgrep_arguments(
    scope: Scope, *, secrets: bool, pattern: str | None = None
) -> list[str]:
    arguments = [*_RIPGREP, "--glob=!.git"]
    if not secrets:
        arguments += [f"--iglob=!{glob}" for glob in RIPGREP_GLOBS]
    if scope.start and not scope.is_file and _exists(".gitignore", scope.directory):
        arguments.append("--ignore-file=.gitignore")
    if scope.glob and not scope.is_file:
        name = scope.glob.rsplit("/", 1)[-1]
        if _NARROWING_GLOB.fullmatch(name) and "**" not in name:
            arguments += [f"--type-add=wanted:{name}", "--type=wanted"]
    if pattern is not None:
        arguments += ["--regexp", pattern]
    return [*arguments, "--", "./" + scope.start]
