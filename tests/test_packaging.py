"""What a stranger installs, and what a newcomer's first commands do.

The wheel goes into an empty environment without network, from wheels that pip fetched
by the lock beforehand; the scripts run in a copy of the committed files.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.markers import Marker

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
STARTS_WITHIN_SECONDS = 5.0  # five times the second that a later run may take


def run(
    *argv: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end without a terminal."""
    return subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def bare_environment(home: Path) -> dict[str, str]:
    """Return an environment with nothing in it but a PATH and an empty home."""
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def pip(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """Run pip with the lock as the only say in what is installed."""
    env = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    done = run(python, "-m", "pip", *arguments, "-qq", env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheelhouse() -> Path:
    """Have the locked wheels on disk; fetched once, kept beside the environment."""
    lock = ROOT / "requirements" / "run.txt"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = Path(sys.prefix) / f"wheels-{digest}"
    if not folder.exists():
        fetched = Path(tempfile.mkdtemp(dir=sys.prefix))
        pip(
            *("download", "--no-deps", "--require-hashes", "--only-binary", ":all:"),
            *("-r", lock, "-d", fetched),
        )
        try:
            fetched.rename(folder)
        except OSError:  # another worker was quicker
            shutil.rmtree(fetched)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the wheel as `scripts/build` does."""
    folder = tmp_path_factory.mktemp("dist")
    pip(
        *("wheel", "--no-index", "--no-deps", "--no-build-isolation"),
        *("-w", folder, ROOT),
    )
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(
    wheel: Path, wheelhouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Install the wheel into an empty environment, no index allowed; return its bin."""
    prefix = tmp_path_factory.mktemp("installed")
    venv.create(prefix, symlinks=True)
    pip(
        *("--python", prefix / "bin" / "python"),
        *("install", "--no-index", "--find-links", wheelhouse, "--no-compile", wheel),
    )
    return prefix / "bin"


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()

    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"scv"}
    assert "scv/py.typed" in names
    assert [name for name in names if name.endswith("/licenses/LICENSE")]
    assert [name for name in names if "__pycache__" in name] == []


def test_installed_command_tells_its_version(installed: Path, tmp_path: Path) -> None:
    done = run(
        installed / "scv", "--version", cwd=tmp_path, env=bare_environment(tmp_path)
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\b\d+\.\d+\.\d+", done.stdout)


def test_installed_command_runs_a_turn(installed: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "hello.txt").write_text("hello\n")

    done = run(
        *(installed / "scv", "exec", "--provider", "practice", "--json", "list"),
        cwd=workspace,
        env=bare_environment(tmp_path / "home"),
    )

    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    calls = [event for event in events if '"tool_call"' in json.dumps(event)]
    assert "hello.txt" in json.dumps(calls)
    assert events[-1]["type"] == "turn.ended"
    assert events[-1]["data"]["status"] == "completed"


def test_installed_packages_fit_together(installed: Path) -> None:
    done = run(
        *(sys.executable, "-m", "pip", "--python", installed / "python", "check")
    )

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_pins_and_hashes_every_package(lock: Path) -> None:
    text = lock.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and line.lstrip()[0] != "#"]

    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9.-]+==[\w.!+]+ ", line), line
        assert "--hash=sha256:" in line, line


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_lock_needs_nothing_else_on_any_platform(
    lock: Path, version: str, system: str
) -> None:
    """The compiled packages have hashes for each platform: more than one file."""
    names = set()
    for line in re.findall(r"^[a-z0-9].*==.*$", lock.read_text(), re.MULTILINE):
        name, _, marker = line.rstrip(" \\").partition(" ; ")
        where = {"python_version": version, "sys_platform": system}
        if not marker or Marker(marker).evaluate(where):
            names.add(name.split("==")[0])

    assert "colorama" not in names
    assert names & {"anyio", "hatchling"}


def test_committed_files_name_no_machine_path_and_no_index() -> None:
    forbidden = re.compile(
        r"(?<![\w./-])/(?:work|root|opt)/|/tmp/[a-z]"  # a machine's folders
        r"|https?://[^ \"]+(?:/simple/|/packages/|\.whl|\.tar\.gz)"
        r"|--(?:extra-)?index-url|--find-links https?:"
    )
    tooling = [
        *LOCKS,
        *(ROOT / name for name in ("pyproject.toml", ".pre-commit-config.yaml")),
        *(path for path in (ROOT / "scripts").iterdir() if path.is_file()),
        *(ROOT / ".ci").iterdir(),
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "scv").rglob("*.py"),
    ]

    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tooling
        for match in forbidden.finditer(path.read_text())
        if not (path.name == "lock" and match[0] == "--index-url")
    ]

    assert found == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy what the scripts read; the environment is the one that runs this test."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in ("requirements", "scripts", "scv"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder


def test_second_run_of_the_tests_starts_at_once() -> None:
    if not (ROOT / ".venv" / "stamp").exists():
        pytest.skip("the checkout has no .venv yet; scripts/test makes it")
    run("scripts/_venv", "dev")

    begin = time.monotonic()
    done = run("scripts/test", "--version")
    seconds = time.monotonic() - begin

    assert done.returncode == 0
    assert "Setting up" not in done.stderr
    assert seconds < STARTS_WITHIN_SECONDS


def test_unknown_area_is_answered_with_the_list_of_areas() -> None:
    done = run("scripts/test", "no-such-area")

    assert done.returncode == 2
    assert "no-such-area" in done.stderr
    assert "layout" in done.stderr
    assert "packaging" in done.stderr


def stand_in(folder: Path, name: str, script: str) -> None:
    """Put a program of this name first on a PATH."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_no_fitting_python_is_one_line_that_says_what_to_do(
    checkout: Path, tmp_path: Path
) -> None:
    old = tmp_path / "bin"
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        stand_in(old, name, "exit 1")
    env = bare_environment(tmp_path / "home")
    env["PATH"] = f"{old}{os.pathsep}{env['PATH']}"

    done = run("scripts/demo", cwd=checkout, env=env)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "3.11" in line
    assert not (checkout / ".venv").exists()


def test_python_without_venv_is_one_line_that_names_the_package(
    checkout: Path, tmp_path: Path
) -> None:
    split = tmp_path / "bin"
    stand_in(
        split,
        "python3",
        'case "$2" in *ensurepip*) exit 1 ;; esac\n'
        f'exec {shlex.quote(sys.executable)} "$@"',
    )
    env = bare_environment(tmp_path / "home")
    env["PATH"] = f"{split}{os.pathsep}{env['PATH']}"

    done = run("scripts/demo", cwd=checkout, env=env)

    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"apt-get install python{version}-venv" in line


@pytest.fixture
def few_programs(tmp_path: Path) -> dict[str, str]:
    """Return an environment of root in CI whose PATH has next to nothing.

    Its apt-get writes down what it is asked for, and fails for one package.
    """
    folder = tmp_path / "bin"
    stand_in(folder, "id", "echo 0")
    stand_in(
        folder,
        "apt-get",
        f'echo "$*" >>{tmp_path}/asked\ncase "$*" in *tmux*) exit 100 ;; esac',
    )
    for name in ("bash", "cat", "dirname", "env", "git", "setsid", "sh"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return {"HOME": str(tmp_path), "PATH": str(folder), "CI": "true"}


def test_missing_programs_are_installed_in_ci(
    few_programs: dict[str, str], tmp_path: Path
) -> None:
    done = run("scripts/_programs", env=few_programs)

    asked = (tmp_path / "asked").read_text().splitlines()
    assert done.returncode == 0
    assert asked[0].split()[0] == "update"
    assert [line.split()[-1] for line in asked[1:]] == ["ripgrep", "strace", "tmux"]
    assert "Could not install tmux" in done.stderr


def test_missing_programs_are_left_alone_on_a_persons_machine(
    few_programs: dict[str, str], tmp_path: Path
) -> None:
    del few_programs["CI"]

    done = run("scripts/_programs", env=few_programs)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_run_ends_with_suites_failures_skips_and_totals(
    tmp_path: Path, workers: str
) -> None:
    for name, body in {
        "tests/tools/test_some.py": "def test_good():\n    pass\n",
        "tests/test_other.py": (
            "import pytest\n"
            "def test_good():\n    pass\n"
            "def test_bad():\n    assert 1 == 2\n"
            "def test_absent():\n    pytest.skip('needs strace')\n"
        ),
        "tests/test_broken.py": "import no_such_module\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body)

    done = run(
        *(sys.executable, "-m", "pytest", "-qq", "-rN", "-p", "tests.report"),
        *(
            "-p",
            "no:pytest-lsp",
            "-n",
            workers,
            "--rootdir",
            tmp_path,
            "--continue-on-collection-errors",
        ),
        cwd=tmp_path,
        env={**bare_environment(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
    )

    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stdout
    assert any(line.startswith("tools: 1 passed, 0 failed, ") for line in lines)
    told = "other: 1 passed, 1 failed, 1 skipped, "
    assert any(line.startswith(told) for line in lines)
    assert any(line.startswith("broken: 0 passed, 1 failed, ") for line in lines)
    ending = lines[lines.index("failed:") :]
    assert sorted(ending[1:3]) == [
        "  tests/test_broken.py",
        "  tests/test_other.py::test_bad",
    ]
    assert ending[3:] == [
        "skipped:",
        "  other: needs strace",
        "2 passed, 2 failed, 1 skipped",
    ]


def test_python_without_venv_is_mended_by_apt_in_ci(
    checkout: Path, tmp_path: Path
) -> None:
    """A stand-in for apt-get brings the module, as the Debian package would."""
    split = tmp_path / "bin"
    mended = tmp_path / "mended"
    stand_in(
        split,
        "python3",
        f'[ -e {mended} ] || case "$2" in *ensurepip*) exit 1 ;; esac\n'
        'case "$1 $2" in "-m venv") echo venv made; exit 7 ;; esac\n'
        f'exec {shlex.quote(sys.executable)} "$@"',
    )
    stand_in(split, "id", "echo 0")
    stand_in(split, "apt-get", f'case "$*" in *-venv*) touch {mended} ;; esac')
    env = {**bare_environment(tmp_path / "home"), "CI": "true"}
    env["PATH"] = f"{split}{os.pathsep}{env['PATH']}"

    done = run("scripts/demo", cwd=checkout, env=env)

    assert mended.exists()
    assert (done.returncode, done.stdout) == (7, "venv made\n")
