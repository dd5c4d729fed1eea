"""`bash`: run a shell command in the workspace, with the person's login files."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from scv.core.ports import PreparedCall, Progress, ToolResult, ToolSpec
from scv.errors import BadArguments, NotFound
from scv.host.login_shell import SHELL, ShellResult, run_in_login_shell
from scv.host.output import Capture
from scv.host.process import ProcessResult
from scv.tools.arguments import parse_arguments
from scv.values import frozen

if TYPE_CHECKING:
    from scv.config.settings import ToolSettings


@frozen
class BashArguments:
    """What to run, and for how long at most."""

    command: str
    timeout_seconds: int | None = None


class BashTool:
    """Runs shell commands in one session's workspace."""

    def __init__(
        self,
        workspace: str,
        settings: "ToolSettings",
        *,
        environment: Callable[[], Mapping[str, str] | None] | None = None,
        instance: str = "",
        session: str = "",
    ) -> None:
        """Bind the tool.

        Args:
            workspace: Real path of the directory commands start in.
            environment: Gives the session's own environment, if it has one;
                otherwise commands get that of this process.
            instance: Names this server in the mark that children carry.
            session: Names the session in that mark.
        """
        self._workspace = workspace
        self._limit_bytes = settings.output_limit_bytes
        self._longest = settings.max_timeout_seconds
        self._usual = min(settings.command_timeout_seconds, self._longest)
        self._environment = environment
        self._owner = f"{instance}/{session}"
        self.spec = _spec(self._usual, self._longest)

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate; the deadline is filled in."""
        command, timeout_seconds = self._checked(arguments)
        self._require_workspace()
        return PreparedCall(
            arguments={"command": command, "timeout_seconds": timeout_seconds},
            risk="process",
            title="Run a shell command",
            summary=command,
            subject={
                "type": "command",
                "command": command,
                "cwd": self._workspace,
                "timeoutSeconds": timeout_seconds,
            },
            executable=SHELL,
        )

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Run the command; a failing one is a result, not an exception."""
        self._require_workspace()
        with contextlib.closing(Capture(self._limit_bytes)) as capture:
            news = _News(capture, progress.output)
            ended = await run_in_login_shell(
                call.arguments["command"],
                workspace=self._workspace,
                session_environment=self._environment() if self._environment else None,
                timeout_seconds=call.arguments["timeout_seconds"],
                output=capture.feed,
                tag=f"{self._owner}/bash-{os.urandom(6).hex()}",
                on_start=progress.process,
                on_tick=news.report,
            )
            if not ended.has_started:
                return _not_started(ended, call.arguments["timeout_seconds"])
            return await _result(
                ended.process, capture, call.arguments["timeout_seconds"]
            )

    def _checked(self, arguments: dict[str, Any]) -> tuple[str, int]:
        wanted = parse_arguments(BashArguments, arguments)
        command, timeout_seconds = wanted.command, wanted.timeout_seconds
        if not command.strip():
            raise BadArguments("`command` is blank", field="command")
        if "\0" in command:
            raise BadArguments("`command` contains a NUL character", field="command")
        if not _is_encodable(command):
            raise BadArguments(
                "`command`: expected valid Unicode text (a lone surrogate is none)",
                field="command",
            )
        if timeout_seconds is None:
            return command, self._usual
        if not 1 <= timeout_seconds <= self._longest:
            raise BadArguments(
                f"`timeout_seconds`: expected an integer from 1 to {self._longest}"
                f" (tools.max_timeout_seconds), but got {timeout_seconds}",
                field="timeout_seconds",
            )
        return command, timeout_seconds

    def _require_workspace(self) -> None:
        if not os.path.isdir(self._workspace):
            raise NotFound(f"the workspace {self._workspace} does not exist any more")


def _spec(usual_seconds: int, longest_seconds: int) -> ToolSpec:
    return ToolSpec(
        "bash",
        "Run a command with /bin/bash -lc in the workspace. stdin is empty; there is no"
        " terminal. Returns exit_code or signal, and stdout and stderr together; long"
        " output keeps its head and tail. Everything still running when the shell exits"
        " is ended, background jobs included.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "Shell text."},
                "timeout_seconds": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": longest_seconds,
                    "description": f"Hard limit; {usual_seconds} if left out.",
                },
            },
            "required": ["command"],
            "additionalProperties": False,
        },
    )


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _News:
    """Passes the newest lines on when there are any."""

    def __init__(self, capture: Capture, progress: Callable[[str], None]) -> None:
        self._capture = capture
        self._progress = progress
        self._reported_bytes = 0

    def report(self) -> None:
        if self._capture.total_bytes != self._reported_bytes:
            self._reported_bytes = self._capture.total_bytes
            self._progress(self._capture.recent())


def _not_started(ended: ShellResult, timeout_seconds: int) -> ToolResult:
    process = ended.process
    if process.timed_out:
        how = f"still ran after {timeout_seconds} s and were killed"
    elif process.signal is not None:
        how = f"ended the shell by {_signal_name(process.signal)}"
    else:
        how = f"ended or replaced the shell (exit code {process.exit_code})"
    report = {
        "status": f"failed: the login files {how}; the command did not run",
        **_ending(process),
        "output": "",
        "truncated": False,
        "total_bytes": 0,
        "login_output": ended.login_output,
    }
    return ToolResult(success=False, output=_json(report), total_bytes=0)


async def _result(
    ended: ProcessResult, capture: Capture, timeout_seconds: int
) -> ToolResult:
    printed = capture.text()
    whole = await anyio.to_thread.run_sync(capture.whole) if printed.is_cut else None
    report = {
        "status": _status(ended, timeout_seconds),
        **_ending(ended),
        "output": printed.text,
        "truncated": printed.is_cut,
        "total_bytes": capture.total_bytes,
    }
    notes = []
    if capture.total_bytes == 0:
        notes.append("The command printed no output.")
    if printed.has_replacements:
        notes.append("Bytes that are not UTF-8 were replaced with U+FFFD.")
    if printed.is_cut and whole is None:
        notes.append("The output was too long to keep; the cut part is lost.")
    if ended.ended and not ended.timed_out:
        notes.append(
            "Still running when the shell exited, and ended:"
            f" {_processes(ended.ended)} in the background."
        )
    if ended.left:
        notes.append(f"Could not be ended: {_processes(ended.left)}.")
    if notes:
        report["note"] = " ".join(notes)
    return ToolResult(
        success=ended.exit_code == 0 and not ended.timed_out,
        output=_json(report),
        truncated=printed.is_cut,
        total_bytes=capture.total_bytes,
        full_output=whole,
    )


def _ending(ended: ProcessResult) -> dict[str, Any]:
    return {
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "timed_out": ended.timed_out,
    }


def _status(ended: ProcessResult, timeout_seconds: int) -> str:
    if ended.timed_out:
        return f"failed: timed out after {timeout_seconds} s and was killed"
    if ended.signal is not None:
        return f"failed: killed by {_signal_name(ended.signal)}"
    if ended.exit_code is None:
        return "failed: how the shell ended is not known"
    if ended.exit_code == 0:
        return "completed"
    hint = ""
    if 128 < ended.exit_code < 128 + signal.NSIG:
        hint = f" (in a shell: killed by {_signal_name(ended.exit_code - 128)})"
    return f"failed: exit code {ended.exit_code}{hint}"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False)
