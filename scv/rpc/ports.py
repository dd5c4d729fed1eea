"""What a peer is given: a stream, somebody who answers, and bounds."""

from dataclasses import dataclass
from typing import Any, Protocol

from scv.wire import limits

Params = dict[str, Any] | list[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection.

    Source: docs/protocol.md, "Limits and back-pressure".
    """

    frame_in_bytes: int = limits.FRAME_BYTES
    frame_out_bytes: int = limits.FRAME_BYTES
    requests_in: int = limits.REQUESTS_IN
    requests_out: int = limits.REQUESTS_OUT


class Dispatcher(Protocol):
    """What a connection does with the remote's messages."""

    async def handle_request(self, method: str, params: Params) -> Any:
        """Do the work and return the result, a JSON value.

        Cancelled when the remote withdraws the request or goes away.

        Raises:
            UnknownMethod: There is no such request.
            ProtocolError: The answer is this error.
        """

    def handle_notification(self, method: str, params: Params) -> None:
        """Take a notification, in order and at once; ignore an unknown one."""


class ByteStream(Protocol):
    """A duplex pipe of bytes that never makes its writer wait.

    It breaks by itself when the other side is gone or reads too slowly: what
    waits is dropped, `receive` returns the end, later writes do nothing.
    """

    @property
    def backlog_bytes(self) -> int:
        """Bytes written here that the transport has not taken yet; 0 is idle."""

    async def receive(self) -> bytes:
        """Return the next bytes, `b""` for ever at the end; one caller at a time."""

    def write(self, data: bytes) -> None:
        """Send now what the transport takes now, keep the rest as backlog."""

    async def drained(self) -> None:
        """Wait until there is no backlog, or no stream."""

    async def aclose(self) -> None:
        """Give the backlog a short while to leave, then let go of the transport."""
