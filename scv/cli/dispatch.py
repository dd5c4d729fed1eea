"""Find the command. The quick ones are read by hand, all others by typer."""

import gc
import os
import sys
from collections.abc import Sequence

from scv.cli.arguments import GlobalOptions, UsageError, parse, split_global_options
from scv.cli.descriptors import occupy_standard_descriptors
from scv.cli.report import report

YOUNG_OBJECTS = 20_000
"""New objects before the collector looks: starting up makes many, and no garbage.
Measured with `scv exec`: 5 % of its processor time."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; every error ends here as one message."""
    occupy_standard_descriptors()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        status = _run(arguments)
        _flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        status = report(error)
    return status


def _run(arguments: Sequence[str]) -> int:
    options, rest = split_global_options(arguments)
    if rest == ["--version"]:
        from scv import __version__

        sys.stdout.write(f"scv {__version__}\n")
        return 0
    command = rest[0] if rest and not rest[0].startswith("-") else None
    if options.wants_help:
        return _help(command, rest)
    match command:
        case None:
            from scv.cli.terminal import run_terminal

            return run_terminal(options, rest)
        case "server":
            return _serve(options, rest[1:])
        case "exec":
            from scv.cli.headless import run_exec

            return run_exec(options, rest[1:])
        case "run":
            from scv.cli.running import run_server

            return run_server(options, rest[1:])
        case "attach":
            return _attach(options, rest[1:])
    from scv.cli.commands import run_command

    return run_command(options, rest)


def _help(command: str | None, rest: list[str]) -> int:
    from scv.cli import help as texts

    match command:
        case None:
            sys.stdout.write(texts.OVERVIEW)
        case "server":
            sys.stdout.write(texts.SERVER)
        case "exec":
            sys.stdout.write(texts.EXEC)
        case "run":
            sys.stdout.write(texts.RUN)
        case "attach":
            sys.stdout.write(texts.ATTACH)
        case "sessions" if len(rest) == 1:
            sys.stdout.write(texts.SESSIONS)
        case "approvals" if len(rest) == 1:
            sys.stdout.write(texts.APPROVALS)
        case _:
            from scv.cli.commands import run_command

            return run_command(GlobalOptions(), [*rest, "--help"])
    return 0


def _serve(options: GlobalOptions, rest: list[str]) -> int:
    parsed = parse(rest, flags=["--stdio"])
    if "--stdio" not in parsed.flags or parsed.words:
        raise UsageError("the server speaks on stdin and stdout: scv server --stdio")
    import anyio

    from scv.app import serve_stdio
    from scv.cli.options import serving_options
    from scv.cli.report import log_to_stderr

    log_to_stderr()
    return anyio.run(serve_stdio, serving_options(options))


def _attach(options: GlobalOptions, rest: list[str]) -> int:
    parsed = parse(rest, flags=["--stdio"])
    if "--stdio" not in parsed.flags or parsed.words:
        raise UsageError("attach joins stdin and stdout to it: scv attach --stdio")
    from scv.cli.attach import attach

    return attach(os.environ, options.home)


def _flush() -> None:
    """Write out what is buffered, so that a closed pipe is noticed here, quietly."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise
