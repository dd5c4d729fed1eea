"""Which server a front end talks to: the home's running one, or one of its own.

The running server has its own configuration file and environment. So whoever names
others on the command line or in the environment gets a server of their own, unless
they ask for the running one by name (`exec --attach`).
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from scv.cli.arguments import GlobalOptions, UsageError
from scv.errors import ScvError

if TYPE_CHECKING:
    import socket

    from scv.client import ByteStream

_OWN_VARIABLES = ("SCV_CONFIG", "SCV_MODEL", "SCV_BASE_URL", "SCV_API_KEY_ENV")


def find_running(options: GlobalOptions) -> "socket.socket | None":
    """Connect to the home's running server, if there is one and it will do."""
    if options.config_file or any(os.environ.get(name) for name in _OWN_VARIABLES):
        return None
    return _connect(options)


def require_running(options: GlobalOptions) -> "socket.socket":
    """Connect to the home's running server.

    Raises:
        UsageError: An option is for servers of one's own only.
        ScvError: None runs.
    """
    if options.config_file:
        raise UsageError("--config is for a new server; the running one has its own.")
    connected = _connect(options)
    if connected is None:
        raise ScvError("no server runs for this home; start it: scv run")
    return connected


def running_config(options: GlobalOptions) -> dict[str, str]:
    """Return what a session of the running server is told of the command line.

    A server of one's own knows the approval policy from its start.
    """
    config = options.session_config()
    if options.approval_policy:
        config["approval"] = options.approval_policy
    return config


def travelling_environment() -> dict[str, str]:
    """Return the variables of this place, for commands that run elsewhere.

    One that is no valid text cannot travel.
    """
    found = {}
    for name, value in os.environ.items():
        try:
            f"{name}={value}".encode()
        except UnicodeEncodeError:
            continue
        found[name] = value
    return found


class Reached:
    """The server that was chosen.

    `config` and `environment` are for the sessions that are made or opened there.
    """

    def __init__(self, options: GlobalOptions) -> None:
        """Choose: the running one where that is possible."""
        self._options = options
        self._running = find_running(options)
        self.config = options.session_config()
        self.environment: dict[str, str] | None = None
        if self._running is not None:
            self.config = running_config(options)
            self.environment = travelling_environment()

    @asynccontextmanager
    async def stream(self) -> "AsyncIterator[ByteStream]":
        """Talk to it for the life of the block; a server of our own lives as long."""
        if self._running is not None:
            from scv.client import stream_over

            yield stream_over(self._running)
            return
        from scv.app import in_process
        from scv.cli.options import embedded_options

        async with in_process(embedded_options(self._options)) as stream:
            yield stream


def _connect(options: GlobalOptions) -> "socket.socket | None":
    from scv.config.root import SOCKET_NAME, find_root
    from scv.host.sockets import connect

    return connect(f"{find_root(os.environ, options.home)}/{SOCKET_NAME}")
