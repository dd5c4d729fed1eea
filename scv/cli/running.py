"""`scv run`: serve this home on its socket, in the foreground."""

import sys

from scv.cli.arguments import GlobalOptions, UsageError, parse


def run_server(options: GlobalOptions, arguments: list[str]) -> int:
    """Serve until a signal says stop; returns the exit status."""
    if parse(arguments).words:
        raise UsageError("run takes no arguments; see: scv run --help")
    import os

    import anyio

    from scv.app import serve_socket
    from scv.cli.options import serving_options
    from scv.client.inert import inert

    serving = serving_options(options)

    def tell() -> None:
        path = inert(str(serving.home.socket))
        sys.stdout.write(f"Serving {path} (process {os.getpid()}); Ctrl+C ends it.\n")
        sys.stdout.flush()

    async def serve() -> int:
        return await serve_socket(serving, on_ready=tell)

    return anyio.run(serve)
