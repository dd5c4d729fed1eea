"""The `bash` tool: what the model reads about a command, and what a command may do."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from scv.config.settings import ToolSettings
from scv.core.ports import ToolResult
from scv.errors import BadArguments, NotFound
from scv.tools.bash import BashTool

pytestmark = pytest.mark.anyio


class Listener:
    """Keeps what running calls tell."""

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self.pids: list[int] = []

    def output(self, text: str) -> None:
        self.told.append(text)

    def process(self, pid: int) -> None:
        self.pids.append(pid)


class Shell:
    """A workspace and a home with login files, and the tool in between."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.home = folder / "home"
        self.progress: list[str] = []
        self.settings = ToolSettings()
        self.session: dict[str, str] | None = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(folder),
        }
        for made in (self.workspace, self.home):
            made.mkdir()

    @property
    def tool(self) -> BashTool:
        return BashTool(
            str(self.workspace),
            self.settings,
            environment=lambda: self.session,
            instance="0123abcd",
            session="s-1",
        )

    def profile(self, text: str) -> None:
        (self.home / ".bash_profile").write_text(text)

    async def call(self, command: str, **arguments: Any) -> ToolResult:
        tool = self.tool
        call = await tool.prepare({"command": command} | arguments)
        result = await tool.run(call, Listener(self.progress))
        result.output.encode("utf-8")
        return result

    async def report(self, command: str, **arguments: Any) -> dict[str, Any]:
        result = await self.call(command, **arguments)
        report: dict[str, Any] = json.loads(result.output)
        assert result.success == (report["status"] == "completed")
        return report

    async def output(self, command: str) -> str:
        report = await self.report(command)
        assert report["status"] == "completed", report
        text: str = report["output"]
        return text


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def mark() -> str:
    """Give a duration for `sleep` that no other process on the machine uses."""
    return f"600.{int.from_bytes(os.urandom(5))}"


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


# --- before anybody is asked --------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "command"),
        ({"command": ""}, "command"),
        ({"command": " \n\t"}, "command"),
        ({"command": "a\0b"}, "command"),
        ({"command": "echo \ud800"}, "command"),
        ({"command": 1}, "command"),
        ({"command": "x", "timeout_seconds": 0}, "timeout_seconds"),
        ({"command": "x", "timeout_seconds": -1}, "timeout_seconds"),
        ({"command": "x", "timeout_seconds": "5"}, "timeout_seconds"),
        ({"command": "x", "timeout_seconds": 1.5}, "timeout_seconds"),
        ({"command": "x", "timeout_seconds": True}, "timeout_seconds"),
        ({"command": "x", "timeout_seconds": 14_401}, "timeout_seconds"),
        ({"command": "x", "cwd": "/"}, "cwd"),
    ],
)
async def test_bad_arguments_are_refused_by_name(
    shell: Shell, arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        await shell.tool.prepare(arguments)

    assert caught.value.field == field


async def test_a_deadline_over_the_ceiling_is_refused_naming_it(shell: Shell) -> None:
    shell.settings = ToolSettings(max_timeout_seconds=77, command_timeout_seconds=600)

    with pytest.raises(BadArguments, match="77"):
        await shell.tool.prepare({"command": "x", "timeout_seconds": 78})
    call = await shell.tool.prepare({"command": "x", "timeout_seconds": None})

    assert call.arguments["timeout_seconds"] == 77
    properties = shell.tool.spec.parameters["properties"]
    assert properties["timeout_seconds"]["maximum"] == 77


async def test_the_question_shows_the_whole_command(shell: Shell) -> None:
    call = await shell.tool.prepare({"command": "echo a\n echo b"})

    assert call.arguments == {"command": "echo a\n echo b", "timeout_seconds": 600}
    assert (call.risk, call.executable) == ("process", "/bin/bash")
    assert call.summary == "echo a\n echo b"
    assert call.subject == {
        "type": "command",
        "command": "echo a\n echo b",
        "cwd": str(shell.workspace),
        "timeoutSeconds": 600,
    }


# --- how a command ends -------------------------------------------------------


async def test_bash_1_background_child_that_holds_the_pipe(
    shell: Shell, mark: str
) -> None:
    started = time.monotonic()
    report = await shell.report(f"sleep {mark} & echo done")

    assert time.monotonic() - started < 5
    assert (report["exit_code"], report["output"]) == (0, "done\n")
    assert "ended: 1 process in the background" in report["note"]
    assert marked(mark) == []


async def test_bash_2_commands_that_read_stdin_see_its_end(shell: Shell) -> None:
    assert await shell.output("cat; echo after") == "after\n"
    assert await shell.output("read x; echo rc=$?") == "rc=1\n"
    assert (
        await shell.output("test -t 0 || (: </dev/tty) 2>&- || echo none") == "none\n"
    )


@pytest.mark.parametrize("command", ["setsid sleep {} & wait", "setsid -w sleep {}"])
async def test_bash_3_child_that_leaves_the_group(
    shell: Shell, mark: str, command: str
) -> None:
    report = await shell.report(command.format(mark), timeout_seconds=1)
    assert report["timed_out"]
    assert marked(mark) == []

    ready = shell.workspace / "ready"
    os.mkfifo(ready)
    async with anyio.create_task_group() as group:
        group.start_soon(shell.call, f"(echo >ready) & {command.format(mark)}")
        await anyio.to_thread.run_sync(ready.read_bytes)
        group.cancel_scope.cancel()
    assert marked(mark) == []


async def test_bash_4_deadline_is_hard_and_keeps_the_output(
    shell: Shell, mark: str
) -> None:
    started = time.monotonic()
    report = await shell.report(f"echo start; sleep {mark}", timeout_seconds=1)

    assert 1 <= time.monotonic() - started < 5
    assert report["status"] == "failed: timed out after 1 s and was killed"
    assert (report["timed_out"], report["output"]) == (True, "start\n")
    assert report["exit_code"] is None
    assert marked(mark) == []


async def test_bash_4_deadline_also_holds_while_the_shell_ignores_signals(
    shell: Shell, mark: str
) -> None:
    report = await shell.report(
        f"trap '' TERM INT HUP; sleep {mark} & wait", timeout_seconds=1
    )

    assert report["timed_out"]
    assert marked(mark) == []


@pytest.mark.parametrize(
    ("command", "status", "exit_code", "number"),
    [
        ("exit 3", "failed: exit code 3", 3, None),
        ("kill -9 $$", "failed: killed by signal 9 (SIGKILL)", None, 9),
        ("kill -SEGV $$", "failed: killed by signal 11 (SIGSEGV)", None, 11),
        ("false | true", "completed", 0, None),
        ("exit 300", "failed: exit code 44", 44, None),
        ("nonesuch-command", "failed: exit code 127", 127, None),
        ("(", "failed: exit code 2", 2, None),
        (
            "sh -c 'kill -9 $$'; exit $?",
            "failed: exit code 137 (in a shell: killed by signal 9 (SIGKILL))",
            137,
            None,
        ),
    ],
)
async def test_bash_5_exit_status_is_worded_as_failure(
    shell: Shell, command: str, status: str, exit_code: int, number: int
) -> None:
    report = await shell.report(command)

    assert report["status"] == status
    assert (report["exit_code"], report["signal"]) == (exit_code, number)
    assert not report["timed_out"]


async def test_life_7_two_hundred_exit_codes_while_orphans_end(shell: Shell) -> None:
    codes = []

    async def calls() -> None:
        for _ in range(50):
            report = await shell.report("(setsid sh -c 'exit 3' &); exit 7")
            codes.append(report["exit_code"])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(calls)

    assert codes == [7] * 200
    assert [c for c in psutil.Process().children() if c.status() == "zombie"] == []


async def test_cancelling_ends_the_command_before_it_returns(
    shell: Shell, mark: str
) -> None:
    ready = shell.workspace / "ready"
    os.mkfifo(ready)
    async with anyio.create_task_group() as group:
        group.start_soon(shell.call, f"echo >ready; sleep {mark}; touch never")
        await anyio.to_thread.run_sync(ready.read_bytes)
        started = time.monotonic()
        group.cancel_scope.cancel()

    assert time.monotonic() - started < 1
    assert marked(mark) == []
    assert not (shell.workspace / "never").exists()


# --- login files --------------------------------------------------------------


async def test_bash_6_profile_that_prints_and_changes_directory(shell: Shell) -> None:
    shell.profile("echo WELCOME; echo oops >&2; cd /; export PS1=x")

    assert await shell.output("pwd") == f"{shell.workspace}\n"


@pytest.mark.parametrize(
    "profile",
    [
        "set -- a b; shift; IFS=:; set -f",
        "set -euo pipefail; cd() { echo WRONG; }; read() { :; }; eval() { :; }",
        "set -x",
        "set -v",
        "exec >/dev/null 2>&1 3>&1 4>&1 9>&1 <&-",
        "set -a; env() { :; }; CDPATH=/usr; printf() { :; }",
        "yes noise | head -c 300000",
        "(trap '' PIPE; while :; do echo noise; done) &",
    ],
)
async def test_bash_6_profiles_do_not_reach_the_output(
    shell: Shell, profile: str
) -> None:
    shell.profile(profile)

    output = await shell.output("command pwd; for i in 'a b'; do echo \"$i\" $#; done")

    shown = [line for line in output.splitlines() if not line.startswith("+")]
    assert shown == [str(shell.workspace), "a b 0"]


@pytest.mark.parametrize(
    ("profile", "status"),
    [
        ("echo bye; exit 0", "ended or replaced the shell (exit code 0)"),
        ("echo bye; exec true", "ended or replaced the shell (exit code 0)"),
        ("echo bye; kill -9 $$", "ended the shell by signal 9 (SIGKILL)"),
        ("echo bye; sleep 60", "still ran after 1 s and were killed"),
    ],
)
async def test_bash_6_profile_that_keeps_the_command_from_running(
    shell: Shell, profile: str, status: str
) -> None:
    shell.profile(profile)

    result = await shell.call("touch ran", timeout_seconds=1)

    report = json.loads(result.output)
    assert not result.success
    assert report["status"] == f"failed: the login files {status}; " + (
        "the command did not run"
    )
    assert (report["output"], report["login_output"]) == ("", "bye\n")
    assert not (shell.workspace / "ran").exists()


async def test_session_path_comes_first_again_after_login(shell: Shell) -> None:
    shell.session = {
        "HOME": str(shell.home),
        "PATH": "/session/bin:/usr/bin:/bin",
        "VIRTUAL_ENV": "/session",
        "MINE": "kept",
    }
    shell.profile("export PATH=/login/bin:/usr/bin:/bin VIRTUAL_ENV=/login LOGIN=yes")

    output = await shell.output('echo "$PATH $VIRTUAL_ENV $MINE $LOGIN"')

    assert output == (
        "/session/bin:/usr/bin:/bin:/login/bin:/usr/bin:/bin /session kept yes\n"
    )


async def test_without_session_environment_login_files_decide(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.session = None
    monkeypatch.setenv("HOME", str(shell.home))
    monkeypatch.setenv("INHERITED", "yes")
    shell.profile("PATH=/login/bin:/usr/bin:/bin")

    assert (
        await shell.output("echo $PATH $INHERITED") == "/login/bin:/usr/bin:/bin yes\n"
    )


async def test_unusable_variables_do_not_stop_commands(shell: Shell) -> None:
    assert shell.session is not None
    shell.session |= {"a=b": "x", "": "x", "N": "\0", "S": "\ud800", "GOOD": "é"}

    assert await shell.output("echo $GOOD") == "é\n"


# --- what the command gets ----------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        'echo $0 $# "$*" \'${x}\' \\"',
        "cat <<'END'\n$(nothing) `here` \\ \" '\nEND",
        "# comment\necho two",
        "printf '%s' '\x01\x7f\x80é🍸' | od -An -tx1",
        "echo $LINENO\necho $LINENO",
        "declare -p BASH_EXECUTION_STRING",
        "compgen -v | grep _scv_; ! env | grep ^BASH_EXEC",
        ": " + "x" * 200_000 + "; echo long",
    ],
)
async def test_commands_reach_bash_as_they_are(shell: Shell, command: str) -> None:
    file = shell.workspace / "command"
    file.write_text(command)
    plain = await anyio.run_process(
        ["/bin/bash", "-c", 'exec /bin/bash -c "$(<command)" /bin/bash']
        if len(command) < 100_000
        else ["/bin/bash", "command"],
        cwd=shell.workspace,
    )

    assert await shell.output(command) == plain.stdout.decode()


async def test_a_profile_that_exports_everything_does_not_export_the_command(
    shell: Shell,
) -> None:
    shell.profile("set -a")

    assert await shell.output(": " + "x" * 200_000 + "; date >&2 >/dev/null") == ""


async def test_messages_of_bash_name_the_line_of_the_command(shell: Shell) -> None:
    report = await shell.report("true\nnonesuch-command")

    assert "line 2: nonesuch-command: command not found" in report["output"]

    report = await shell.report("true\necho a; )")

    assert report["output"].endswith("line 2: `echo a; )'\n")


async def test_pagers_and_prompts_are_off_and_children_are_marked(
    shell: Shell,
) -> None:
    assert shell.session is not None
    shell.session |= {"PAGER": "less", "SCV_PARENT": "outer/x/y"}

    output = await shell.output(
        "echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT $SCV_PARENT"
    )

    *values, parent = output.split()
    assert values == ["cat", "cat", "0"]
    assert parent.startswith("outer/x/y;0123abcd/s-1/bash-")


async def test_the_command_gets_no_descriptor_of_ours(shell: Shell) -> None:
    output = await shell.output(
        "for fd in {0..400}; do [ ! -e /proc/$$/fd/$fd ] || echo $fd; done"
    )

    assert output == "0\n1\n2\n"


async def test_bash_7_workspace_that_is_gone_and_back(shell: Shell) -> None:
    call = await shell.tool.prepare({"command": "pwd"})
    shell.workspace.rmdir()

    with pytest.raises(NotFound, match="workspace"):
        await shell.tool.run(call, Listener(shell.progress))
    with pytest.raises(NotFound, match="workspace"):
        await shell.tool.prepare({"command": "pwd"})

    shell.workspace.mkdir()
    assert await shell.output("pwd") == f"{shell.workspace}\n"


async def test_bash_7_command_that_removes_its_own_workspace(shell: Shell) -> None:
    assert await shell.output('rmdir "$PWD"; echo still') == "still\n"


# --- output -------------------------------------------------------------------


async def test_bash_8_both_streams_full(shell: Shell) -> None:
    report = await shell.report(
        'python3 -c "import sys;'
        "sys.stderr.write('e'*2000000);sys.stdout.write('o'*2000000)\""
    )

    assert report["exit_code"] == 0
    assert report["total_bytes"] == 4_000_000
    assert "e" * 1000 in report["output"]
    assert "o" * 1000 in report["output"]


async def test_streams_keep_the_order_of_writes(shell: Shell) -> None:
    numbers = "".join(f"echo {n}; echo {n} >&2; " for n in range(50))

    output = await shell.output(numbers)

    assert output == "".join(f"{n}\n{n}\n" for n in range(50))


async def test_out_1_bytes_that_are_not_utf8(shell: Shell) -> None:
    report = await shell.report(r"printf '\xff\xfeab\n'")

    assert report["output"] == "\ufffd\ufffdab\n"
    assert "replaced" in report["note"]


async def test_out_2_result_is_valid_json_and_utf8(shell: Shell) -> None:
    result = await shell.call(r"printf '\xe1\n'; printf '\xed\xa0\x80'")

    assert json.loads(result.output.encode())["output"].startswith("\ufffd\n")


async def test_out_3_flood(shell: Shell) -> None:
    before = start_peak_anew()

    result = await shell.call(r"head -c 500000000 /dev/zero | tr '\0' y; echo END")

    report = json.loads(result.output)
    assert (report["total_bytes"], result.total_bytes) == (500_000_004,) * 2
    assert report["truncated"]
    assert result.truncated
    assert result.full_output is None
    assert report["output"].startswith("yyyy")
    assert report["output"].endswith("yEND\n")
    assert "500000004 bytes in all" in report["output"]
    assert len(result.output) < 70_000
    assert memory_kilobytes("VmHWM") - before < 20 * 64


def start_peak_anew() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return memory_kilobytes("VmRSS")


def memory_kilobytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise AssertionError(name)


async def test_out_3_flood_without_end(shell: Shell) -> None:
    started = time.monotonic()
    report = await shell.report("yes", timeout_seconds=3)

    assert time.monotonic() - started < 15
    assert report["timed_out"]
    assert report["output"].startswith("y\ny\n")
    assert report["total_bytes"] > 1_000_000


async def test_long_output_is_kept_whole_beside(shell: Shell) -> None:
    result = await shell.call("seq 100000; printf '\\033[1mx'")

    assert result.truncated
    assert (
        result.full_output
        == ("".join(f"{n}\n" for n in range(1, 100_001)) + "x").encode()
    )


async def test_out_4_colours_and_titles(shell: Shell) -> None:
    output = await shell.output(r"printf '\033[31mred\033[0m \033]0;owned\007 x\n'")

    assert output == "red  x\n"


async def test_out_5_silent_success_and_missing_line_end(shell: Shell) -> None:
    silent = await shell.report("true")
    assert (silent["exit_code"], silent["output"]) == (0, "")
    assert "no output" in silent["note"]

    short = await shell.report("printf x")
    assert short["output"] == "x"
    assert "note" not in short


async def test_progress_shows_the_newest_lines_while_it_runs(shell: Shell) -> None:
    ready = shell.workspace / "ready"
    os.mkfifo(ready)

    seen = anyio.Event()

    class Watcher(Listener):
        def output(self, text: str) -> None:
            super().output(text)
            seen.set()

    watcher = Watcher(shell.progress)
    async with anyio.create_task_group() as group:
        call = await shell.tool.prepare(
            {"command": "seq 100; printf '\\033[1mmore'; read <ready"}
        )
        group.start_soon(shell.tool.run, call, watcher)
        await seen.wait()
        assert len(watcher.pids) == 1
        await anyio.to_thread.run_sync(ready.write_text, "go\n")

    assert shell.progress == ["".join(f"{n}\n" for n in range(92, 101)) + "more"]


async def test_signals_that_python_ignores_are_not_inherited(shell: Shell) -> None:
    before = signal.getsignal(signal.SIGPIPE)

    output = await shell.output("grep SigIgn /proc/self/status")

    assert output.split() == ["SigIgn:", "0" * 16]
    assert signal.getsignal(signal.SIGPIPE) == before
