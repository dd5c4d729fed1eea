"""What every suite may ask for: a home of its own, a seed, and the look afterwards."""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "scripts" / "programs"

# What a person's shell may hold that would change how SCV behaves in a test.
FOREIGN_PREFIXES = ("SCV_", "OPENAI_", "ANTHROPIC_", "GIT_", "XDG_", "PYTEST_")
FOREIGN_NAMES = frozenset(
    {
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("ssl_cert_file", "ssl_cert_dir", "bash_env", "env", "virtual_env"),
        *("pythonpath", "pythonhome", "pythonstartup", "editor", "visual", "pager"),
    }
)
KEPT = frozenset({"SCV_SEED", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER"})


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, the only loop SCV supports."""
    return "asyncio"


@pytest.fixture
def scv_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty HOME, SCV_HOME and temporary folder; return SCV_HOME.

    The environment is scrubbed of keys, proxies and settings of the person who runs
    the tests, and finds `scv` of this checkout first.
    """
    home = tmp_path / "home"
    temporary = tmp_path / "temporary"
    for folder in (home, temporary):
        folder.mkdir()
    for name in list(os.environ):
        foreign = name.lower() in FOREIGN_NAMES or name.startswith(FOREIGN_PREFIXES)
        if foreign and name not in KEPT:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SCV_HOME", str(home / ".scv"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return home / ".scv"


@pytest.fixture
def seed() -> int:
    """Return the seed of a random test: SCV_SEED, or a new one that is printed."""
    value = int(os.environ.get("SCV_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SCV_SEED={value}")
    return value


@pytest.fixture
def no_leftovers(scv_home: Path, tmp_path: Path) -> Iterator[None]:
    """Fail the test that leaves a process or a temporary file of ours behind.

    A process is ours when it descends from the test's process, or when its
    environment carries the test's SCV_HOME. Those on their way out get 2 s.
    """
    before = set(psutil.Process().children(recursive=True))

    yield

    me = psutil.Process()
    mine = (processes_of(scv_home) | set(me.children(recursive=True))) - before
    told = {process: describe(process) for process in mine}
    unreaped = [told[each] for each in mine & set(me.children()) if is_zombie(each)]
    _, alive = psutil.wait_procs(mine, timeout=2)
    assert unreaped == []
    assert [told[process] for process in alive if not is_zombie(process)] == []
    assert [str(path) for path in (tmp_path / "temporary").iterdir()] == []
    assert [str(path) for path in tmp_path.rglob(".scv-*tmp")] == []


def processes_of(scv_home: Path) -> set[psutil.Process]:
    """Find the processes, however detached, that were started with this SCV_HOME."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("SCV_HOME") == str(scv_home):
                found.add(process)
        except (psutil.Error, OSError):
            continue  # gone, or another person's
    return found - {psutil.Process()}


def is_zombie(process: psutil.Process) -> bool:
    """Tell whether all that is left of a process is the duty to reap it.

    For an orphan that is no duty of ours: process 1 of a container may be slow.
    """
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def describe(process: psutil.Process) -> str:
    """Name a process for the message of a failed test."""
    try:
        status = process.status()
        command = [] if status == psutil.STATUS_ZOMBIE else process.cmdline()
    except psutil.NoSuchProcess:
        return f"{process.pid} gone"
    return f"{process.pid} {status} {command}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with a reason that helps, what needs a program this machine lacks."""
    for marker in item.iter_markers("needs_program"):
        (program,) = marker.args
        if shutil.which(program) is None:
            package, purpose = programs()[program]
            pytest.skip(f"needs {program} (Debian package {package}): {purpose}")


def programs() -> dict[str, tuple[str, str]]:
    """Read scripts/programs: program, its package, what it is for."""
    lines = PROGRAMS.read_text().splitlines()
    rows = [line.split(None, 2) for line in lines if line and line[0] != "#"]
    return {program: (package, purpose) for program, package, purpose in rows}
