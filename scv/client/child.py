"""Start a server of our own as a child process."""

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from anyio import CancelScope, move_on_after, open_process
from anyio.abc import Process

from scv.rpc import ByteStream, FdStream

SERVER_ARGV = (sys.executable, "-m", "scv", "server", "--stdio")
END_SECONDS = 7.0
"""Patience after the end of its input; a turn's processes get 2 s of it to end."""


@asynccontextmanager
async def start_server(
    argv: Sequence[str] = SERVER_ARGV,
    *,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[ByteStream]:
    """Run a server on two pipes for the life of the block.

    Its standard error is ours. Leaving the block closes its input, gives it time
    to end its work, and then ends it.
    """
    its_input, our_output = os.pipe()
    our_input, its_output = os.pipe()
    try:
        process = await open_process(
            argv,
            stdin=its_input,
            stdout=its_output,
            stderr=None,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    except BaseException:
        os.close(our_input)
        os.close(our_output)
        raise
    finally:
        os.close(its_input)
        os.close(its_output)
    stream = FdStream(our_input, our_output)
    try:
        yield stream
    finally:
        with CancelScope(shield=True):
            await stream.aclose()
            await _end(process)


async def _end(process: Process) -> None:
    for stop in (None, process.terminate, process.kill):
        if stop is not None:
            with suppress(ProcessLookupError):
                stop()
        with move_on_after(END_SECONDS):
            await process.wait()
            return
