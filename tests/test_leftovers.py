"""The look for leftovers finds what a careless test leaves, and nothing else."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import processes_of

ROOT = Path(__file__).parent.parent

STARTS_A_SLEEPER = """
import os, subprocess, time
from pathlib import Path
from tests.conftest import processes_of
def test_it(no_leftovers):
    subprocess.run(["sh", "-c", "{command}"], env={{**os.environ, "FROM": "test"}})
    home, end = Path(os.environ["SCV_HOME"]), time.monotonic() + 20
    while not processes_of(home) and time.monotonic() < end:
        pass  # between fork and exec a process shows no environment
"""


def outcome(body: str, folder: Path) -> tuple[int, str]:
    """Run one test that uses the look; return pytest's exit code and its output."""
    (folder / "test_inner.py").write_text(body)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest"),
            *("-p", "no:pytest-lsp", "-p", "no:cacheprovider"),
            *("--basetemp", folder / "base", "--rootdir", folder, "test_inner.py"),
        ],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 600 >/dev/null 2>&1 &", id="background"),
        pytest.param(
            "setsid sleep 600 >/dev/null 2>&1 &",
            id="own-session",
            marks=pytest.mark.needs_program("setsid"),
        ),
    ],
)
def test_process_left_behind_fails_the_test(tmp_path: Path, command: str) -> None:
    code, output = outcome(STARTS_A_SLEEPER.format(command=command), tmp_path)

    for process in processes_of(tmp_path / "base" / "test_it0" / "home" / ".scv"):
        process.send_signal(signal.SIGKILL)
        psutil.wait_procs([process])
    assert code == 1
    assert "'sleep', '600'" in output


def test_temporary_file_left_behind_fails_the_test(tmp_path: Path) -> None:
    body = "import tempfile\ndef test_it(no_leftovers): tempfile.mkstemp('.left')\n"

    code, output = outcome(body, tmp_path)

    assert code == 1
    assert ".left" in output


def test_half_written_file_in_a_workspace_fails_the_test(tmp_path: Path) -> None:
    body = (
        "def test_it(no_leftovers, tmp_path):\n"
        "    (tmp_path / 'w').mkdir()\n"
        "    (tmp_path / 'w' / '.scv-abc.tmp').touch()\n"
    )

    code, output = outcome(body, tmp_path)

    assert code == 1
    assert ".scv-abc.tmp" in output


def test_process_on_its_way_out_is_waited_for(tmp_path: Path) -> None:
    body = STARTS_A_SLEEPER.format(command="sleep 0.2 >/dev/null 2>&1 &")

    assert outcome(body, tmp_path)[0] == 0


def test_child_that_nobody_waited_for_fails_the_test(tmp_path: Path) -> None:
    body = (
        "import os\n"
        "def test_it(no_leftovers):\n"
        "    child = os.posix_spawn('/bin/true', ['true'], os.environ)\n"
        "    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
    )

    code, output = outcome(body, tmp_path)

    assert code == 1
    assert re.search(r"\d+ zombie", output)
