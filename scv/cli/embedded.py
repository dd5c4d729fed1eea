"""A server inside this process, for commands that talk to it for a moment."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions

if TYPE_CHECKING:
    from scv.client import Client


def with_client(
    options: GlobalOptions, use: "Callable[[Client], Awaitable[int]]"
) -> int:
    """Start a server, let `use` talk to it, end it; returns what `use` does."""
    import anyio

    from scv.cli.options import home_of
    from scv.cli.report import log_to_file

    async def run() -> int:
        from scv.app import in_process
        from scv.cli.options import embedded_options
        from scv.client import connect

        async with (
            in_process(embedded_options(options)) as stream,
            connect(stream, name="scv") as client,
        ):
            return await use(client)

    log_to_file(home_of(options))
    return anyio.run(run)
