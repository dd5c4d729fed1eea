"""One model endpoint over HTTP: post a body, read the answer piece by piece."""

import logging
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio

from scv.errors import ProviderError
from scv.providers.address import Address
from scv.providers.chunked import ChunkedDecoder
from scv.providers.failure import Failures

if TYPE_CHECKING:
    import httpx

    from scv.providers.lane import Lane

logger = logging.getLogger(__name__)

_PIECE_BYTES = 65_536
_DRAIN_SECONDS = 0.05
"""How long a finished answer may take to close before its connection is given up."""


class Endpoint:
    """Keeps connections to one address; close it with `aclose`.

    Args:
        address: Where requests go.
        headers: Every header but those of the connection, checked.
        failures: Builds this endpoint's errors.
    """

    def __init__(
        self, address: Address, headers: Mapping[str, str], failures: Failures
    ) -> None:
        self.failures = failures
        self._address = address
        self._headers = {
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "content-type": "application/json",
            **headers,
        }
        self._client: httpx.AsyncClient | None = None

    async def warm(self) -> None:
        """Load the HTTP library and build the client ahead of the first request."""
        if self._client is None:
            client = await anyio.to_thread.run_sync(self._build_client)
            if self._client is None:  # a request may have been quicker
                self._client = client

    async def aclose(self) -> None:
        """Close every connection."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _build_client(self) -> "httpx.AsyncClient":
        from scv.providers.lane import build_client

        return build_client(
            secure=self._address.secure,
            proxy=self._address.proxy,
            proxy_auth=self._address.proxy_auth,
        )

    @asynccontextmanager
    async def post(
        self, body: bytes, *, timeout_seconds: float
    ) -> AsyncIterator["Answer"]:
        """Send one request; inside the block its answer can be read.

        `timeout_seconds` bounds the whole exchange, reading included.

        Raises:
            ProviderError: No answer, or (while reading) a broken one.
        """
        deadline = anyio.current_time() + timeout_seconds
        client = self._client
        if client is None:
            client = self._client = self._build_client()
        response: httpx.Response | None = None
        try:
            with anyio.CancelScope(deadline=deadline) as scope:
                request = client.build_request(
                    "POST", self._address.url, content=body, headers=self._headers
                )
                response = await client.send(request, stream=True)
        except _network_errors() as error:
            raise self._sending_failed(error) from None
        if response is None or scope.cancelled_caught:
            raise self.failures.timed_out(timeout_seconds)
        answer = Answer(response, self.failures, deadline, timeout_seconds)
        try:
            yield answer
        finally:
            with anyio.CancelScope(shield=True):
                await answer.aclose()

    def _sending_failed(self, error: Exception) -> ProviderError:
        """Name the step that failed.

        The foreign exception is not chained: what refuses a header quotes it.
        """
        import httpcore

        if isinstance(error, httpcore.ProxyError):
            return self.failures.proxy(self._address.proxy or "", str(error))
        if isinstance(error, httpcore.RemoteProtocolError):
            return self.failures.ended_early("closed the connection without an answer")
        return self.failures.unreachable(error)


class Answer:
    """One response: its status and header now, its body on demand."""

    def __init__(
        self,
        response: "httpx.Response",
        failures: Failures,
        deadline: float,
        timeout_seconds: float,
    ) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self._response = response
        self._failures = failures
        self._deadline = deadline
        self._timeout_seconds = timeout_seconds
        self._is_done = False
        self._chunks: ChunkedDecoder | None = None
        self._lane: Lane | None = None
        self._pieces: AsyncGenerator[bytes, None] | None = None
        self._unzip: Any = None
        self._zipped = b""
        self._coding = self.headers.get("content-encoding", "").strip().lower()
        if self._coding in ("gzip", "x-gzip", "deflate"):
            self._unzip = zlib.decompressobj(wbits=47)  # 32 + 15: gzip or zlib
        self._choose_way()

    def _choose_way(self) -> None:
        lane: Any = self._response.extensions.get("network_stream")
        coding = self.headers.get("transfer-encoding", "").strip().lower()
        if coding == "chunked" and hasattr(lane, "take") and lane.take():
            self._chunks, self._lane = ChunkedDecoder(), lane
        else:
            self._pieces = cast(
                "AsyncGenerator[bytes, None]", self._response.aiter_raw()
            )

    async def read(self) -> bytes:
        """Return the next decoded bytes as soon as there are any, empty at the end.

        Raises:
            ProviderError: The connection broke, or the deadline passed.
        """
        if self._unzip is None and self._coding not in ("", "identity"):
            raise self._failures.malformed(
                f"its answer is packed as {self._failures.clean(self._coding)},"
                " which SCV did not ask for"
            )
        while True:
            if self._zipped:
                piece = self._inflate(self._zipped)
            else:
                raw = await self._read_raw()
                if not raw or self._unzip is None:
                    return raw
                piece = self._inflate(raw)
            if piece:
                return piece

    async def head(self, limit: int) -> bytes:
        """Return at most `limit` bytes of the body; for error bodies."""
        body = b""
        while len(body) < limit:
            try:
                piece = await self.read()
            except ProviderError:
                break  # a broken error body still has its status
            if not piece:
                break
            body += piece
        return body[:limit]

    async def finish(self) -> None:
        """Read a complete answer to its end, so that the connection can stay."""
        with anyio.move_on_after(_DRAIN_SECONDS):
            try:
                for _ in range(4):
                    if self._is_done or not await self._read_raw():
                        break
            except ProviderError:
                pass  # the answer itself was complete

    async def aclose(self) -> None:
        """Let go of the connection; it stays open only after a complete answer."""
        chunks, lane, pieces = self._chunks, self._lane, self._pieces
        try:
            if pieces is not None:
                await pieces.aclose()
            elif lane and chunks and chunks.is_done and not chunks.surplus:
                lane.give_back()
                async for _ in self._response.aiter_raw():
                    pass
            await self._response.aclose()
        except _network_errors() as error:
            logger.debug("closing an answer failed: %s", type(error).__name__)

    def _inflate(self, data: bytes) -> bytes:
        try:
            piece: bytes = self._unzip.decompress(data, _PIECE_BYTES)
        except zlib.error:
            raise self._failures.malformed("its compressed answer is damaged") from None
        self._zipped = self._unzip.unconsumed_tail
        return piece

    async def _read_raw(self) -> bytes:
        if self._is_done:
            return b""
        with anyio.CancelScope(deadline=self._deadline) as scope:
            try:
                data = await self._next_raw()
            except ValueError as error:
                raise self._failures.malformed(
                    f"broken HTTP framing ({error})"
                ) from None
            except _network_errors():
                raise self._failures.ended_early(
                    "broke the connection before its end"
                ) from None
        if scope.cancelled_caught:
            raise self._failures.timed_out(self._timeout_seconds)
        self._is_done = not data
        return data

    async def _next_raw(self) -> bytes:
        chunks, lane = self._chunks, self._lane
        if chunks is None or lane is None:
            assert self._pieces is not None
            async for piece in self._pieces:
                if piece:
                    return piece
            return b""
        while not chunks.is_done:
            raw = await lane.receive()
            if not raw:
                raise ConnectionResetError("closed inside a chunked body")
            piece = chunks.feed(raw)
            if piece:
                return piece
        return b""


def _network_errors() -> tuple[type[Exception], ...]:
    import httpcore
    import httpx

    return (
        OSError,
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.ProxyError,
        httpcore.TimeoutException,
        httpx.TransportError,
    )
