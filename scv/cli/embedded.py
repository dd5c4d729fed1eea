"""A server for commands that talk to it for a moment: the running one, or an own."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions

if TYPE_CHECKING:
    from scv.client import Client


def with_client(
    options: GlobalOptions, use: "Callable[[Client], Awaitable[int]]"
) -> int:
    """Reach a server, let `use` talk to it, leave; returns what `use` does."""
    import anyio

    from scv.cli.options import home_of
    from scv.cli.report import log_to_file

    async def run() -> int:
        from scv.cli.reach import Reached
        from scv.client import connect

        async with (
            Reached(options).stream() as stream,
            connect(stream, name="scv") as client,
        ):
            return await use(client)

    log_to_file(home_of(options))
    return anyio.run(run)


def with_running(
    options: GlobalOptions, use: "Callable[[Client], Awaitable[int]]"
) -> int:
    """Let `use` talk to the home's running server; returns what it does.

    Raises:
        ScvError: None runs.
    """
    import anyio

    from scv.cli.options import home_of
    from scv.cli.reach import require_running
    from scv.cli.report import log_to_file

    async def run() -> int:
        from scv.client import connect, stream_over

        stream = stream_over(require_running(options))
        async with connect(stream, name="scv") as client:
            return await use(client)

    log_to_file(home_of(options))
    return anyio.run(run)
