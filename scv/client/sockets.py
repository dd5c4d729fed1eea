"""Talk to the server that runs for a home, whoever started it."""

import socket

from scv.rpc import ByteStream, FdStream


def stream_over(connected: socket.socket) -> ByteStream:
    """Make a stream of a socket from `scv.host.sockets.connect`; it then owns it."""
    fd = connected.detach()
    return FdStream(fd, fd)
