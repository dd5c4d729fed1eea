"""This repository's own checkout as somebody's project, with one function broken.

Everything is judged from outside: git says what changed, and the `python` of the
session, a few lines of shell, writes down every run before it happens.
"""

import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.journey.script import PYTEST, QUICK_TESTS

ROOT = Path(__file__).parent.parent.parent

BROKEN_FILE = "scv/providers/sse.py"
RIGHT = "field, _, value = line.partition("
WRONG = "field, value = line.partition("
FAILING_FILE = "tests/providers/test_sse_parser.py"
FAILING_TEST = "test_every_cut_gives_the_same_events"

_PYTHON = """\
#!/bin/sh
printf '%s\\n' "$PWD: python $*" >>{log}
exec {python} "$@"
"""


@dataclass(frozen=True)
class Checkout:
    """A broken copy of the repository, and what was run in it."""

    workspace: Path
    log: Path
    bin: Path

    @property
    def path(self) -> str:
        """The PATH on which `python` is the one that keeps the log."""
        return f"{self.bin}{os.pathsep}{os.environ['PATH']}"

    def commands(self) -> list[str]:
        """Name the commands of the script as they must run, in order."""
        return [
            f"{PYTEST} {' '.join(QUICK_TESTS)}",
            f"{PYTEST} {FAILING_FILE}",
        ]

    def runs(self) -> list[str]:
        """Read what really ran so far, each with the directory it ran in."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def is_broken(self) -> bool:
        """Tell whether the break, and nothing else, is what git sees."""
        path = self.workspace / BROKEN_FILE
        return WRONG in path.read_text() and self.changes() == [f" M {BROKEN_FILE}"]

    def changes(self) -> list[str]:
        """Ask git what differs from the commit."""
        return git(self.workspace, "status", "--porcelain").splitlines()

    def broken_line(self) -> int:
        """Find the line of the break by looking for it."""
        lines = (self.workspace / BROKEN_FILE).read_text().splitlines()
        (number,) = (n for n, line in enumerate(lines, 1) if WRONG in line)
        return number

    def applied(self, patch: str) -> str:
        """Give the broken file as this patch alone would change it."""
        place = self.workspace.parent / "patched"
        broken = git(self.workspace, "show", f"HEAD:{BROKEN_FILE}")
        path = place / BROKEN_FILE
        path.parent.mkdir(parents=True)
        path.write_text(broken.replace(RIGHT, WRONG))
        subprocess.run(
            ["git", "apply", "--unsafe-paths", "-"],
            cwd=place,
            input=patch.encode(),
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(place.parent)},
            check=True,
        )
        return path.read_text()

    def report(self, line: int) -> str:
        """Begin the answer as it must be; how many passed is not told here."""
        return (
            f"{FAILING_FILE}::{FAILING_TEST} failed at {BROKEN_FILE}:{line}"
            " (ValueError: too many values to unpack "
        )

    def assert_mended(self) -> None:
        """See for ourselves: the commit's text is back, and the tests pass."""
        assert self.changes() == []
        done = subprocess.run(
            [sys.executable, *shlex.split(PYTEST)[1:], FAILING_FILE],
            cwd=self.workspace,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout


def check_out(folder: Path) -> Checkout:
    """Copy the repository, commit the copy, and break one function."""
    workspace = folder / "workspace"
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, workspace / name, follow_symlinks=False)
    git(workspace, "init", "-q")
    git(workspace, "add", "--all")
    author = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    git(workspace, *author, "commit", "-q", "-m", "as it was")
    checkout = Checkout(workspace, folder / "runs", folder / "bin")
    _break(workspace / BROKEN_FILE)
    _make_python(checkout)
    return checkout


def _break(path: Path) -> None:
    text = path.read_text()
    assert text.count(RIGHT) == 1, f"{path} has changed: choose another line to break"
    path.write_text(text.replace(RIGHT, WRONG))


def _make_python(checkout: Checkout) -> None:
    checkout.bin.mkdir()
    program = checkout.bin / "python"
    log, python = shlex.quote(str(checkout.log)), shlex.quote(sys.executable)
    program.write_text(_PYTHON.format(log=log, python=python))
    program.chmod(0o755)


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, whoever owns it, and return what it prints."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
