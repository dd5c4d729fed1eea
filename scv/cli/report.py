"""The last stop of errors: one message for a person, and an exit status."""

import os
import sys
from typing import TYPE_CHECKING

from scv.errors import ConfigError, ProtocolError, ScvError

if TYPE_CHECKING:
    from scv.config.paths import Home

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def write_error(text: str) -> None:
    """Write a line to standard error, if somebody still reads it."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return  # started without one, or its reader is gone


def report(error: BaseException) -> int:
    """Say what went wrong, without any trace, and return the exit status."""
    from scv.client.inert import inert

    error = _innermost(error)
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if isinstance(error, ScvError):
        write_error(f"scv: {inert(error.message)}")
        return EXIT_USAGE if _is_usage(error) else EXIT_FAILED
    if isinstance(error, BrokenPipeError):
        return EXIT_FAILED
    write_error(f"scv: {inert(_describe(error))}")
    return EXIT_FAILED


def _innermost(error: BaseException) -> BaseException:
    """Look into groups: the first error of ours, else the first of all."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_innermost(each) for each in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, ScvError)), leaves[0])


def _is_usage(error: ScvError) -> bool:
    from scv.cli.arguments import UsageError

    if isinstance(error, ProtocolError):
        return error.data.get("code") == "config.invalid"
    return isinstance(error, UsageError | ConfigError)


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = ""
    if frame is not None:
        name = os.path.basename(frame.tb_frame.f_code.co_filename)
        place = f" at {name} line {frame.tb_lineno}"
    return f"a bug in SCV, please report it: {type(error).__name__}{place}"


def log_to_file(home: "Home") -> None:
    """Send log records to the instance's log file instead of the screen.

    The file is private and is made by the first record.
    """
    import logging

    class LogFile(logging.FileHandler):
        def _open(self):  # type: ignore[no-untyped-def]
            from scv.host.private import open_private, private_directory

            private_directory(os.path.dirname(self.baseFilename))
            flags = os.O_WRONLY | os.O_APPEND
            return open(open_private(self.baseFilename, flags), "a", encoding="utf-8")

    handler = LogFile(str(home.log_file), delay=True)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    )
    logging.raiseExceptions = False
    logging.getLogger().addHandler(handler)


def log_to_stderr() -> None:
    """Send log records to standard error, for programs that keep it.

    `SCV_LOG` is the level, such as `debug`; warnings and errors without it.
    """
    import logging

    level = os.environ.get("SCV_LOG", "warning").upper()
    logging.raiseExceptions = False  # a closed pipe must not make more records
    logging.basicConfig(
        level=level if level in logging.getLevelNamesMapping() else "WARNING",
        format="%(levelname)s %(name)s %(message)s",
    )
