"""The socket face: everybody of this user who connects, on one server.

A connection that ends takes nothing with it; the server ends only with its process.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import TYPE_CHECKING, Any, NoReturn

from anyio import create_task_group, move_on_after, sleep, wait_readable
from anyio.abc import TaskGroup

from scv.host.ancestry import descends_from_tools
from scv.host.sockets import credentials_of
from scv.rpc import FdStream, Peer
from scv.wire.errors import refuse
from scv.wire.limits import CONNECTIONS

if TYPE_CHECKING:
    from scv.server.server import Server

logger = logging.getLogger(__name__)

REFUSALS = 16
"""Connections above the limit that are told so at once; more are just closed."""
REFUSAL_SECONDS = 1.0
"""How long one has to ask something, so that it can be told."""
PAUSE_SECONDS = 0.1
"""Between attempts while the process has no descriptor left."""


class Listener:
    """Accepts connections to a server until it is cancelled."""

    def __init__(
        self, server: Server, listening: socket.socket, *, instance: str
    ) -> None:
        """Serve on a non-blocking socket; `instance` is what tools are marked with."""
        self._server = server
        self._socket = listening
        self._instance = instance
        self._open = 0

    async def accept(self, connections: TaskGroup) -> NoReturn:
        """Accept for ever; each connection lives in the group that is given."""
        while True:
            await wait_readable(self._socket)
            try:
                client, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue  # it left before we came
            except OSError as error:
                logger.error("a connection cannot be accepted: %s", error.strerror)
                await sleep(PAUSE_SECONDS)
                continue
            connections.start_soon(self._serve, client)

    async def _serve(self, client: socket.socket) -> None:
        self._open += 1
        try:
            await self._serve_checked(client)
        except Exception:  # the server outlives a bug in one connection
            logger.exception("a connection failed")
        finally:
            self._open -= 1
            client.close()

    async def _serve_checked(self, client: socket.socket) -> None:
        try:
            peer = credentials_of(client)
        except OSError:
            return  # it is gone
        if peer.uid != os.geteuid():
            logger.warning("user %d may not connect", peer.uid)
            return
        is_delegated = descends_from_tools(peer.pid, instance=self._instance)
        if self._open > CONNECTIONS + REFUSALS:
            return
        fd = client.detach()
        stream = FdStream(fd, fd)
        if self._open > CONNECTIONS:
            await _NoRoom().run(stream)
        else:
            await self._server.serve(
                stream, peer_pid=peer.pid, is_delegated=is_delegated
            )


class _NoRoom:
    """Answers the first request with a refusal, and ends."""

    async def handle_request(self, method: str, params: Any) -> Any:
        self._tasks.start_soon(self._end)  # runs when the answer is written
        raise refuse(
            "limit.count",
            f"this server serves {CONNECTIONS} connections at once; close one first",
            limit="connections",
            max=CONNECTIONS,
            retry=False,
        )

    def handle_notification(self, method: str, params: Any) -> None:
        """Take nothing."""

    async def run(self, stream: FdStream) -> None:
        self._peer = Peer(stream, self)
        async with create_task_group() as self._tasks:
            with move_on_after(REFUSAL_SECONDS):
                await self._peer.run()

    async def _end(self) -> None:
        self._peer.close()
