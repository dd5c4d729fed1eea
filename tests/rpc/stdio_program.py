"""A program that serves a peer on its standard streams, noisy as it can be."""

import logging
import os
import subprocess
import sys
import warnings
from typing import Any

import anyio

from scv.errors import UnknownMethod
from scv.rpc import FdStream, Params, Peer, take_stdio

print("noise that waits in a buffer when frames begin", end="; ")
FDS = take_stdio()


class Service:
    """Echoes, makes noise, and ends the connection on `exit`."""

    peer: Peer

    async def handle_request(self, method: str, params: Params) -> Any:
        if method == "echo":
            return params
        if method == "noise":
            print("a print")
            os.write(1, b"a write to descriptor 1\n")
            warnings.warn("a warning", stacklevel=1)
            logging.getLogger().debug("a log line")
            sys.__stdout__.flush()
            script = "echo from a child; cat; ls -l /proc/self/fd >&2"
            child = await anyio.to_thread.run_sync(
                lambda: subprocess.run(
                    ["sh", "-c", script], stderr=subprocess.PIPE, check=True
                )
            )
            listing = child.stderr.decode()
            assert "/dev/null" in listing
            return [os.readlink(f"/proc/self/fd/{fd}") in listing for fd in FDS]
        if method == "fds":
            return [os.get_inheritable(fd) for fd in (0, 1, *FDS)]
        raise UnknownMethod(method)

    def handle_notification(self, method: str, params: Params) -> None:
        if method == "exit":
            self.peer.close()


async def main() -> None:
    """Serve until the end of input or `exit`."""
    logging.basicConfig(level=logging.DEBUG)
    service = Service()
    service.peer = Peer(FdStream(*FDS), service)
    await service.peer.run()


anyio.run(main)
