"""SCV/1 without an event loop, for a command that lives for one turn.

Loading anyio costs more than such a command may take. So this reads and writes one
socket in plain calls: `request` waits for its answer and keeps what comes before it,
`receive` hands that out in order. Nothing here runs beside anything else.
"""

import os
import select
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from scv import __version__
from scv.errors import ConnectionLost, ProtocolError, UnknownMethod
from scv.rpc.framing import FrameDecoder, encode_frame
from scv.rpc.messages import RemoteError, encode_json, parse_message
from scv.wire import PROTOCOL_MAJOR, PROTOCOL_MINOR
from scv.wire.limits import FRAME_BYTES

Json = dict[str, Any]

_CHUNK_BYTES = 64 * 1024


class Output(Protocol):
    """Something that writes to a descriptor when that takes it."""

    fd: int
    is_broken: bool

    @property
    def is_holding(self) -> bool:
        """Whether something waits to be written."""

    def flush(self) -> None:
        """Write what is taken without waiting."""


class BlockingClient:
    """An initialised connection over a socket from `scv.host.sockets.connect`.

    Without `approvals` the server does not ask this client.
    """

    def __init__(
        self, connected: socket.socket, *, name: str, approvals: bool = False
    ) -> None:
        """Shake hands.

        Raises:
            RemoteError: The server refused the handshake.
            ConnectionLost: It closed before it answered.
        """
        self.client_id = os.urandom(16).hex()
        self._socket = connected
        self._decoder = FrameDecoder(FRAME_BYTES)
        self._messages: deque[Json] = deque()
        self._last_id = 0
        self._woken: int | None = None
        handshake = {
            "protocol": {"major": PROTOCOL_MAJOR, "minor": PROTOCOL_MINOR},
            "clientId": self.client_id,
            "features": {"events": True, "approvals": approvals},
        }
        self.request(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": name, "version": __version__},
                "capabilities": {"experimental": {"scv": handshake}},
            },
        )
        self._send({"method": "initialized", "params": {}})

    def request(self, method: str, params: Json) -> Any:
        """Make a request and wait for its result; other messages are kept.

        Raises:
            RemoteError: The server refused it.
            ConnectionLost: The server is gone.
        """
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        passed: list[Json] = []
        while True:
            message = self._next()
            if "method" in message or message.get("id") != self._last_id:
                passed.append(message)
                continue
            self._messages.extendleft(reversed(passed))
            if "result" in message:
                return message["result"]
            raise RemoteError(message.get("error"))

    def act(self, method: str, params: Json) -> Any:
        """Make a request that changes something, with a new operation id."""
        return self.request(method, {"opId": os.urandom(16).hex(), **params})

    def read_blob(self, blob_id: str) -> bytes:
        """Read a whole blob."""
        from base64 import b64decode

        data = b""
        while True:
            wanted = {"blobId": blob_id, "offset": len(data)}
            part = self.request("scv/blob/read", wanted)
            data += b64decode(part["data"])
            if part["eof"]:
                return data

    def answer(self, request_id: str | int, result: Any) -> None:
        """Answer a request of the server."""
        self._send({"id": request_id, "result": result})

    def receive(self, *outputs: Output) -> Json | None:
        """Wait for the next message; None when a caught signal came first, or
        an output broke.

        Meanwhile outputs write what they hold: a server lets go of a client that
        stops reading because somebody does not read from it.

        Raises:
            ConnectionLost: The server is gone.
        """
        if not self._messages and not self._wait(outputs):
            return None
        return self._next()

    def refuse(self, request_id: str | int) -> None:
        """Tell the server that this client does not know such a request."""
        error = {"code": UnknownMethod.code, "message": "unknown method"}
        self._send({"id": request_id, "error": error})

    @contextmanager
    def catching(
        self, caught: Callable[[], None], *signals: signal.Signals
    ) -> Iterator[None]:
        """Let signals call `caught` and interrupt `receive`, inside the block."""
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        handlers = {each: signal.signal(each, lambda *_: caught()) for each in signals}
        self._woken = reading
        try:
            yield
        finally:
            self._woken = None
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)

    def close(self) -> None:
        """End the connection; the server notices, and needs no good-bye."""
        self._socket.close()

    def _wait(self, outputs: Sequence[Output]) -> bool:
        """Wait for the socket; False when a signal came first."""
        while True:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if self._woken is not None:
                poll.register(self._woken, select.POLLIN)
            holding = [each for each in outputs if each.is_holding]
            for output in holding:
                poll.register(output.fd, select.POLLOUT)
            ready = dict(poll.poll())
            for output in holding:
                if output.fd in ready:
                    output.flush()
            if self._woken in ready:
                os.read(self._woken, _CHUNK_BYTES)
                return False
            if self._socket.fileno() in ready:
                return True
            if any(output.is_broken for output in holding):
                return False

    def _next(self) -> Json:
        while not self._messages:
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except OSError:
                data = b""
            if not data:
                raise ConnectionLost("the server closed the connection")
            for body in self._decoder.feed(data):
                if isinstance(body, ProtocolError):
                    raise body
                self._messages.append(parse_message(body))
        return self._messages.popleft()

    def _send(self, message: Json) -> None:
        try:
            self._socket.sendall(
                encode_frame(encode_json({"jsonrpc": "2.0"} | message))
            )
        except OSError as error:
            raise ConnectionLost("the server closed the connection") from error
