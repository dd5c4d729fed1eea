"""Children end whole: groups, sessions, orphans, wiped environments, and no zombies."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread
import psutil
import pytest

from scv.errors import NotFound, ToolError
from scv.host.pipe import OutputPipe
from scv.host.process import ProcessResult, run_process

pytestmark = pytest.mark.anyio

Mark = Callable[[], str]

# Two forks and a session of its own between the caller and the program.
DAEMON = (
    "import os,sys\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "os.closerange(0, 256)\n"
    "os.execve('/bin/sleep', ['sleep', sys.argv[1]], {})\n"
)


@pytest.fixture
def mark() -> Mark:
    """Give durations for `sleep` that no other process on the machine uses."""
    return lambda: f"600.{int.from_bytes(os.urandom(5))}"


def marked(mark: str) -> list[psutil.Process]:
    """Find all processes with the mark as an argument, wherever they hang."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def zombies() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children()
        if child.status() == psutil.STATUS_ZOMBIE
    ]


async def run(
    script: str,
    *arguments: str,
    timeout_seconds: float = 30,
    tag: str = "",
    environment: dict[str, str] | None = None,
    cwd: str = "/",
    shell: tuple[str, ...] = ("/bin/bash", "-c"),
) -> tuple[ProcessResult, bytes]:
    output = bytearray()
    pipe = OutputPipe(output.extend)
    result = await run_process(
        (*shell, script, "test", *arguments),
        cwd=cwd,
        environment=environment or dict(os.environ),
        timeout_seconds=timeout_seconds,
        stdout=pipe,
        stderr=pipe,
        tag=tag,
    )
    return result, bytes(output)


def forks_twice(then: str) -> str:
    return f'{sys.executable} -c "$DAEMON" $1; {then}'


ESCAPES = {
    "background": "sleep $1 & ",
    "stopped": "sleep $1 & kill -STOP $!; ",
    "own session": "setsid sleep $1 & ",
    "wiped environment": "env -i setsid sleep $1 & ",
    "orphan at once": "(setsid sleep $1 &); ",
    "orphan without environment": "(env -i setsid sleep $1 &); ",
    "daemon": f'{sys.executable} -c "$DAEMON" $1; ',
}
escapes = pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())


def daemon_environment() -> dict[str, str]:
    return dict(os.environ) | {"DAEMON": DAEMON}


async def cancel_when_ready(script: str, *arguments: str, tmp_path: Path) -> float:
    """Cancel a script once it said so through `$READY`; return how long that took."""
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    async with anyio.create_task_group() as group:

        async def child() -> None:
            environment = daemon_environment() | {"READY": str(ready)}
            await run(script, *arguments, environment=environment)

        group.start_soon(child)
        await anyio.to_thread.run_sync(ready.read_bytes)
        started = time.monotonic()
        group.cancel_scope.cancel()
    return time.monotonic() - started


@escapes
async def test_what_outlives_the_leader_is_ended(escape: str, mark: Mark) -> None:
    argument = mark()

    started = time.monotonic()
    result, output = await run(
        escape + "echo done", argument, environment=daemon_environment()
    )

    assert (result.exit_code, result.left, output) == (0, 0, b"done\n")
    assert result.ended >= 1
    assert time.monotonic() - started < 5
    assert marked(argument) == []
    assert zombies() == []


@escapes
async def test_bash_3_child_that_leaves_the_group_dies_at_cancel(
    escape: str, mark: Mark, tmp_path: Path
) -> None:
    argument = mark()

    seconds = await cancel_when_ready(
        escape + "echo >$READY; sleep $2", argument, mark(), tmp_path=tmp_path
    )

    assert seconds < 2
    assert marked(argument) == []
    assert zombies() == []


@escapes
async def test_bash_3_child_that_leaves_the_group_dies_at_the_deadline(
    escape: str, mark: Mark
) -> None:
    argument, waiting = mark(), mark()

    result, _ = await run(
        escape + "sleep $2",
        argument,
        waiting,
        timeout_seconds=1,
        environment=daemon_environment(),
    )

    assert result.timed_out
    assert (result.exit_code, result.signal) == (None, signal.SIGKILL)
    assert marked(argument) + marked(waiting) == []
    assert zombies() == []


async def test_bash_3_waiting_shell_with_a_setsid_child_is_cancelled(
    mark: Mark, tmp_path: Path
) -> None:
    argument = mark()

    await cancel_when_ready(
        "setsid sleep $1 & echo >$READY; wait", argument, tmp_path=tmp_path
    )

    assert marked(argument) == []


async def test_who_ignores_term_is_killed_after_two_seconds(
    mark: Mark, tmp_path: Path
) -> None:
    argument = mark()
    ignoring = "trap '' TERM; setsid sleep $1 & echo >$READY; sleep $1"

    seconds = await cancel_when_ready(ignoring, argument, tmp_path=tmp_path)

    assert 1.9 < seconds < 10
    assert marked(argument) == []


async def test_term_lets_children_clean_up(mark: Mark, tmp_path: Path) -> None:
    cleaned = tmp_path / "cleaned"
    script = "trap 'echo >$1; exit' TERM; echo >$READY; while :; do sleep 0.01; done"

    await cancel_when_ready(script, str(cleaned), tmp_path=tmp_path)

    assert cleaned.exists()


async def test_deadline_also_bounds_the_end_of_what_is_left(mark: Mark) -> None:
    argument = mark()
    script = "trap '' TERM; sleep $1 & echo done"

    started = time.monotonic()
    result, output = await run(script, argument, timeout_seconds=1)

    assert (result.exit_code, result.timed_out, output) == (0, False, b"done\n")
    assert time.monotonic() - started < 5
    assert marked(argument) == []


def names_of(processes: list[psutil.Process]) -> list[str]:
    """Name the processes that are still there."""
    names = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            names.append(process.name())
    return names


async def test_other_calls_keep_their_children(mark: Mark, tmp_path: Path) -> None:
    mine, other = mark(), mark()
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    environment = daemon_environment() | {"READY": str(ready)}
    script = forks_twice("(env -i setsid sleep $1 &); echo >$READY; wait; sleep $1")
    async with anyio.create_task_group() as group:

        async def long_call() -> None:
            await run(script, other, environment=environment, tag="other")

        group.start_soon(long_call)
        await anyio.to_thread.run_sync(ready.read_bytes)
        names: list[str] = []
        while len(names) != 3 or "sleep" not in names:  # forks settle in their time
            await anyio.lowlevel.checkpoint()
            names = names_of(marked(other))
        before = {process.pid for process in marked(other)}

        short = forks_twice("(env -i setsid sleep $1 &)")
        await run(short, mine, environment=environment, tag="mine")

        assert marked(mine) == []
        assert {process.pid for process in marked(other)} == before
        assert len(before) == 3
        group.cancel_scope.cancel()

    assert marked(other) == []


async def test_life_7_exit_codes_survive_the_end_of_orphans() -> None:
    codes: list[int | None] = []
    foreign: list[int] = []

    async def calls() -> None:
        for _ in range(50):
            result, _ = await run("(setsid sh -c 'exit 3' &); (exit 4) & exit 7")
            codes.append(result.exit_code)

    async def foreign_calls() -> None:
        for _ in range(50):
            process = await asyncio.create_subprocess_exec("sh", "-c", "exit 5")
            foreign.append(await process.wait())

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(calls)
        group.start_soon(foreign_calls)

    assert codes == [7] * 200
    assert foreign == [5] * 50
    assert zombies() == []


async def test_life_7_orphans_that_die_during_a_call_are_collected(
    tmp_path: Path,
) -> None:
    script = (
        "for i in 1 2 3; do (setsid true &); done; sleep 1.2; ps -o stat= --ppid $1"
    )

    _, output = await run(script, str(os.getpid()))

    assert b"Z" not in output


async def test_children_get_no_foreign_descriptor_and_no_terminal() -> None:
    read_fd, write_fd = os.pipe()
    os.set_inheritable(write_fd, True)
    try:
        _, output = await run(
            "ls -l /proc/self/fd | grep -c pipe; readlink /proc/self/fd/0"
        )
    finally:
        os.close(read_fd)
        os.close(write_fd)

    assert output == b"2\n/dev/null\n"


async def test_signals_ignored_at_start_are_not_ignored_by_children() -> None:
    program = (
        "import anyio,os\n"
        "from scv.host.pipe import OutputPipe\n"
        "from scv.host.process import run_process\n"
        "pipe = OutputPipe(lambda data: print(data.decode(), end=''))\n"
        "async def main():\n"
        "    await run_process(['/bin/grep', 'SigIgn', '/proc/self/status'], cwd='/',\n"
        "        environment=os.environ, timeout_seconds=9, stdout=pipe, stderr=pipe)\n"
        "anyio.run(main)\n"
    )
    shell = f"trap '' HUP INT QUIT CHLD USR1; exec {sys.executable} -c \"$PROGRAM\""

    done = await anyio.run_process(
        ["/bin/bash", "-c", shell],
        env=os.environ | {"PROGRAM": program, "PYTHONPATH": os.getcwd()},
    )

    assert done.stdout.split() == [b"SigIgn:", b"0000000000000000"]


@pytest.mark.parametrize(
    ("script", "exit_code", "killed_by"),
    [
        ("exit 3", 3, None),
        ("kill -9 $$", None, 9),
        ("kill -SEGV $$", None, 11),
        ("false | true", 0, None),
        ("exit 300", 44, None),
    ],
)
async def test_bash_5_exit_codes_and_signals_are_told_apart(
    script: str, exit_code: int | None, killed_by: int | None
) -> None:
    result, _ = await run(script)

    assert (result.exit_code, result.signal) == (exit_code, killed_by)


async def test_unknown_exit_status_is_not_a_success() -> None:
    output = bytearray()

    def steal(data: bytes) -> None:
        output.extend(data)
        os.waitpid(int(data), 0)

    pipe = OutputPipe(steal)
    result = await run_process(
        ("/bin/bash", "-c", "echo $$; exit 0"),
        cwd="/",
        environment=os.environ,
        timeout_seconds=10,
        stdout=pipe,
        stderr=pipe,
    )

    assert (result.exit_code, result.signal) == (None, None)


async def test_missing_program_and_directory_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nonesuch"):
        await run("", shell=("/nonesuch",))
    with pytest.raises(NotFound, match="gone"):
        await run("true", cwd=str(tmp_path / "gone"))
    with pytest.raises(ToolError):
        await run("true", shell=(str(tmp_path),))
    with pytest.raises(ToolError):
        await run("true", "x" * 3_000_000)


async def test_no_descriptor_stays_open() -> None:
    await run("true")
    before = sorted(os.listdir("/proc/self/fd"))

    for _ in range(5):
        await run("sleep 60 & true")
        with pytest.raises(NotFound):
            await run("", shell=("/nonesuch",))

    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_pipe_held_by_a_process_that_is_not_ours_does_not_hold_the_call(
    tmp_path: Path,
) -> None:
    """A process started before, elsewhere, opens the call's pipe through /proc."""
    path = str(tmp_path / "pid")
    os.mkfifo(path)
    script = 'read pid <"$1"; exec 9>/proc/$pid/fd/1; echo >"$1"; exec sleep 30'
    holder = await anyio.open_process(["/bin/bash", "-c", script, "holder", path])
    async with holder:
        started = time.monotonic()
        result, output = await run('echo $$ >"$1"; read <"$1"; echo done', path)

        assert (result.exit_code, result.ended, output) == (0, 0, b"done\n")
        assert time.monotonic() - started < 5
        assert holder.returncode is None
        holder.kill()
