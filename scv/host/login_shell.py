"""Run a command the way the person's login shell would, with clean output.

`/bin/bash -lc` gets a fixed script; the command travels as data in a file without
a name. While the login files run, stdout and stderr go to a pipe of their own.
Then the script enters the workspace, puts the session's PATH in front again,
switches to the result pipe, writes a start mark and evaluates the command. So a
profile may print and change directory; and when no mark came, the command did not
start, whatever the exit status says.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping

from scv.host.descendants import PARENT_VARIABLE
from scv.host.output import Capture
from scv.host.pipe import OutputPipe
from scv.host.process import ProcessResult, run_process
from scv.values import frozen

SHELL = "/bin/bash"

# No command may wait for a person at a pager or a prompt that nobody sees.
_UNATTENDED = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
_LOGIN_LIMIT_BYTES = 2048
_LOWEST_FD = 100  # below, login files may use descriptors by number

# One line, so that line numbers in bash's messages are those of the command.
# `builtin`, because profiles like to replace cd. Traces of the script itself would
# stand in the output, hence set +vx. BASH_EXECUTION_STRING is where bash itself keeps
# the text of -c; exported, a long one would leave no room for arguments.
_SCRIPT = " ".join(
    """
    set +vx; set --;
    {{ IFS= builtin read -r -d '' _scv_cwd && IFS= builtin read -r -d '' _scv_path &&
    IFS= builtin read -r -d '' _scv_venv && IFS= builtin read -r -d '' _scv_command;
    }} <&{input} || exit 125;
    exec {input}<&-;
    builtin cd -- "$_scv_cwd" || exit 125;
    [[ -z $_scv_path || ${{PATH-}}: == "$_scv_path":* ]] ||
    export PATH="$_scv_path:${{PATH-}}";
    [[ -z $_scv_venv ]] || export VIRTUAL_ENV="$_scv_venv";
    BASH_EXECUTION_STRING=$_scv_command;
    builtin export -n BASH_EXECUTION_STRING;
    unset -v _scv_cwd _scv_path _scv_venv _scv_command;
    exec 1>&{output} 2>&1 {output}>&- || exit 125;
    builtin printf '\\0';
    builtin eval "$BASH_EXECUTION_STRING"
    """.split()
)


@frozen
class ShellResult:
    """How the shell ended; without `has_started` the login files kept the command
    from running, and `login_output` is the end of what they printed."""

    process: ProcessResult
    has_started: bool
    login_output: str


async def run_in_login_shell(
    command: str,
    *,
    workspace: str,
    session_environment: Mapping[str, str] | None,
    timeout_seconds: float,
    output: Callable[[bytes], None],
    tag: str,
    on_start: Callable[[int], None],
    on_tick: Callable[[], None],
) -> ShellResult:
    """Run shell text in a directory and clean up after it.

    Args:
        command: Without NUL; of any length.
        workspace: Real path; the shell starts there and returns to it after login.
        session_environment: None gives the command this process's environment, and
            login files alone decide on PATH.
        output: Takes what the command prints, and nothing else.
        tag: Marks descendants, as `run_process` says.

    Raises:
        ToolError: The shell could not be started.
    """
    session = _usable(session_environment)
    login = Capture(_LOGIN_LIMIT_BYTES)
    started = _StartMark(output)
    with contextlib.closing(login), contextlib.ExitStack() as pipes:
        input_fd = pipes.enter_context(
            _input_file(
                workspace,
                session.get("PATH", ""),
                session.get("VIRTUAL_ENV", ""),
                command,
            )
        )
        login_pipe = pipes.enter_context(contextlib.closing(OutputPipe(login.feed)))
        result_pipe = pipes.enter_context(
            contextlib.closing(OutputPipe(started.feed, lowest_fd=_LOWEST_FD))
        )
        script = _SCRIPT.format(input=input_fd, output=result_pipe.write_fd)
        ended = await run_process(
            (SHELL, "-lc", script),
            cwd=workspace,
            environment=_child_environment(session, tag),
            timeout_seconds=timeout_seconds,
            stdout=login_pipe,
            stderr=login_pipe,
            further_pipes=(result_pipe,),
            further_fds=(input_fd,),
            tag=tag,
            on_start=on_start,
            on_tick=on_tick,
        )
        return ShellResult(ended, started.was_seen, login.text().text)


class _StartMark:
    """Takes the start mark off the result pipe."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self.was_seen = False
        self._sink = sink

    def feed(self, data: bytes) -> None:
        if not self.was_seen:
            self.was_seen = True
            data = data[1:]
        if data:
            self._sink(data)


@contextlib.contextmanager
def _input_file(*records: str) -> Iterator[int]:
    """Open a file without a name that holds the records, each ended by a NUL.

    bash reads a file in blocks but a pipe byte by byte; and unlike an argument it
    may be longer than 128 KiB.
    """
    data = b"".join(os.fsencode(record) + b"\0" for record in records)
    with contextlib.ExitStack() as stack:
        if hasattr(os, "memfd_create"):
            low = os.memfd_create("scv-command")
            stack.callback(os.close, low)
        else:
            import tempfile

            low = stack.enter_context(tempfile.TemporaryFile()).fileno()
        while data:
            data = data[os.write(low, data) :]
        os.lseek(low, 0, os.SEEK_SET)
        file = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FD)
        stack.callback(os.close, file)
        yield file


def _usable(session: Mapping[str, str] | None) -> dict[str, str]:
    """Leave out what no process can be given, so that the rest still works."""
    usable = {}
    for name, value in (session or {}).items():
        with contextlib.suppress(UnicodeEncodeError):
            entry = os.fsencode(f"{name}={value}")
            if name and "=" not in name and b"\0" not in entry:
                usable[name] = value
    return usable


def _child_environment(session: Mapping[str, str], tag: str) -> dict[str, str]:
    environment = dict(session or os.environ) | _UNATTENDED
    outer = environment.get(PARENT_VARIABLE)
    environment[PARENT_VARIABLE] = f"{outer};{tag}" if outer else tag
    return environment
