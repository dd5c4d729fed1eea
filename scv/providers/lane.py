"""httpcore's network below httpx, with a short way for chunked bodies.

A connection hands httpcore exactly the header of a response. When the body is
chunked, `Lane.take` lets the reader have the raw bytes instead of running every
chunk through h11; at the body's end `give_back` shows httpcore an empty last
chunk, so that it sees a finished response and keeps the connection. Everything
else (TLS, proxies, pooling, other bodies) is httpcore's own.

This module loads httpx and httpcore; import it only where a request is near.
"""

import importlib.util
import logging
import re
import sys
from collections.abc import AsyncIterator, Iterable
from types import ModuleType
from typing import Any, cast

# httpx/__init__ imports its command line, and with it click, rich and pygments where
# they are installed: 60 ms that no request needs. An empty module stands in for it.
if "httpx" not in sys.modules and "httpx._main" not in sys.modules:
    _stand_in = ModuleType("httpx._main")
    _stand_in.__dict__["main"] = lambda: None
    sys.modules["httpx._main"] = _stand_in

# httpcore asks for sniffio at every lock it makes. Where that is not installed, each
# failing search of the path costs 0.1 ms, several times a request.
if importlib.util.find_spec("sniffio") is None:
    cast("dict[str, Any]", sys.modules)["sniffio"] = None

import httpcore
import httpx

# Their debug and info records hold whole URLs and response headers.
for _name in ("httpx", "httpcore"):
    logging.getLogger(_name).setLevel(logging.WARNING)

READ_BYTES = 65_536
IDLE_SECONDS = 30.0
"""Idle connections are retired after this: proxies close them at about 60 s."""

_HEADER_END = re.compile(rb"\n\r?\n")
_LAST_CHUNK = b"0\r\n\r\n"


class Lane(httpcore.AsyncNetworkStream):
    """One connection; reading stops once at the end of each response header."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._rest = b""
        self._tail = b""
        self._state = "idle"  # then header, clean, passing, taken

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._state == "clean":  # the body goes through httpcore after all
            self._state = "passing"
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        data = await self._inner.read(max_bytes, timeout)
        if self._state == "header":
            return self._cut(data)
        return data

    def _cut(self, data: bytes) -> bytes:
        seen = self._tail + data
        end = _HEADER_END.search(seen)
        if end is None:
            self._tail = seen[-2:]
            return data
        cut = end.end() - len(self._tail)
        self._tail = b""
        self._state = "clean"
        self._rest = data[cut:]
        return data[:cut]

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._state != "header":
            self._state, self._tail = "header", b""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: Any,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return Lane(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable" and self._rest:
            return True
        return self._inner.get_extra_info(info)

    def take(self) -> bool:
        """Claim the body's raw bytes; False when httpcore has read into it already."""
        if self._state != "clean":
            return False
        self._state = "taken"
        return True

    async def receive(self) -> bytes:
        """Return raw bytes of a claimed body, empty when the peer has closed."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        return await self._inner.read(READ_BYTES)

    def give_back(self) -> None:
        """Show httpcore the end of a claimed body that has been read to its end."""
        self._rest = _LAST_CHUNK


class _Backend(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        return Lane(
            await self._inner.connect_tcp(
                host, port, timeout, local_address, socket_options
            )
        )

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Body(httpx.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme,
                    host=url.raw_host,
                    port=url.port,
                    target=url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer.stream),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


def build_client(
    *, secure: bool, proxy: str | None, proxy_auth: tuple[str, str] | None
) -> httpx.AsyncClient:
    """Build a client with its own pool; certificates are touched only if `secure`.

    Standard proxy variables are not read here: the caller decides on `proxy`.
    """
    context = None
    if secure:
        import ssl

        import truststore

        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    options: dict[str, Any] = {
        "ssl_context": context,
        "max_connections": None,
        "keepalive_expiry": IDLE_SECONDS,
        "network_backend": _Backend(),
    }
    pool = (
        httpcore.AsyncHTTPProxy(proxy, proxy_auth=proxy_auth, **options)
        if proxy
        else httpcore.AsyncConnectionPool(**options)
    )
    return httpx.AsyncClient(
        transport=_Transport(pool),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(None, connect=30.0),
    )
