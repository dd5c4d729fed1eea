"""`scv attach --stdio`: bytes of this process's input and output, to and from a server.

Standard library only, without an event loop: it must start as fast as Python does.
Each direction has one small buffer and reads only when that is empty, so a reader
that is slow on one side slows the writer of the other and nothing else. Standard
input and output stay blocking, because other processes may share them: `poll` says
when a pipe takes a page, and no single write is larger than that.
"""

import os
import select
import socket
import sys

TYPE_CHECKING = False  # as typing's; importing that would double the time to start
if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK_BYTES = 64 * 1024
_PAGE_BYTES = 4096  # poll reports a pipe as writable when it takes this much
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR
_IN, _OUT = 0, 1


def attach(environment: "Mapping[str, str]", home: str | None = None) -> int:
    """Join standard input and output to the home's server until it closes."""
    from scv.cli.descriptors import occupy_standard_descriptors
    from scv.config.root import SOCKET_NAME, find_root
    from scv.host.sockets import connect

    occupy_standard_descriptors()
    root = find_root(environment, home)
    server = connect(f"{root}/{SOCKET_NAME}")
    if server is None:
        from scv.client.inert import inert

        sys.stderr.write(f"scv: no server runs for {inert(root)}; start it: scv run\n")
        return 1
    with server:
        _Pipe(server).run()
    return 0


class _Pipe:
    """Both directions between the standard descriptors and a connected socket."""

    def __init__(self, server: socket.socket) -> None:
        server.setblocking(False)
        self._server = server
        self._up = b""  # read from standard input, not sent yet
        self._down = memoryview(b"")  # received, not written to standard output yet
        self._is_up_open = True

    def run(self) -> None:
        """Copy until the server has closed and all is written, or nobody reads it."""
        while True:
            ready = self._wait()
            if ready.get(_OUT, 0) & (select.POLLERR | select.POLLHUP):
                return  # whoever started this is gone
            if ready.get(_OUT) and not self._write():
                return
            events = ready.get(self._server.fileno(), 0)
            if events & select.POLLOUT:
                self._send()
            if events & _READABLE and not self._down and not self._receive():
                return
            if ready.get(_IN):
                self._read()

    def _wait(self) -> dict[int, int]:
        poll = select.poll()
        poll.register(_OUT, select.POLLOUT if self._down else 0)
        interest = 0 if self._down else select.POLLIN
        if self._up:
            interest |= select.POLLOUT
        elif self._is_up_open:
            poll.register(_IN, select.POLLIN)
        if interest:  # a socket that has hung up would say so again and again
            poll.register(self._server, interest)
        return dict(poll.poll())

    def _read(self) -> None:
        try:
            self._up = os.read(_IN, _CHUNK_BYTES)
        except OSError:
            self._up = b""
        if not self._up:
            self._is_up_open = False
            self._end_sending()
        else:
            self._send()

    def _send(self) -> None:
        try:
            self._up = self._up[self._server.send(self._up) :]
        except BlockingIOError:
            return
        except OSError:  # the server has closed; what it said before still comes
            self._up = b""
            self._is_up_open = False

    def _end_sending(self) -> None:
        try:
            self._server.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has closed already

    def _receive(self) -> bool:
        """Take what the server has sent; False at the end."""
        try:
            data = self._server.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._down = memoryview(data)
        return bool(data)

    def _write(self) -> bool:
        """Write one page; False when nobody reads any more."""
        try:
            self._down = self._down[os.write(_OUT, self._down[:_PAGE_BYTES]) :]
        except OSError:
            return False
        return True
