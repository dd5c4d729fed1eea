"""Both ends of a connection under test: a real peer here, raw frames there."""

import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from scv.errors import ProtocolError, UnknownMethod
from scv.rpc import (
    ByteStream,
    FdStream,
    FrameDecoder,
    Limits,
    Params,
    Peer,
    connect_unix,
    encode_frame,
    memory_pair,
)

TRANSPORTS = ["memory", "pipes", "socketpair", "unix"]


class Desk:
    """A dispatcher with a few services; `seen` tells what was asked, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.peer: Peer
        self.opened = anyio.Event()
        self.cleaned_up = anyio.Event()
        self.services: dict[str, Callable[[Params], Awaitable[Any]]] = {
            "echo": self.echo,
            "hold": self.hold,
        }

    async def handle_request(self, method: str, params: Params) -> Any:
        if method not in self.services:
            raise UnknownMethod(f"there is no {method}")
        self.seen.append(method)
        return await self.services[method](params)

    def handle_notification(self, method: str, params: Params) -> None:
        self.seen.append((method, params))
        if method == "open":
            self.opened.set()
        if method == "exit":
            self.peer.close()
        if method == "raise":
            raise RuntimeError("a bug")

    async def echo(self, params: Params) -> Any:
        return params

    async def hold(self, params: Params) -> Any:
        """Wait for the notification `open`, and clean up slowly when cancelled."""
        self.peer.notify("holding", params)
        try:
            await self.opened.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            self.cleaned_up.set()
            raise
        return "released"


class Raw:
    """An end that sends whatever bytes a test likes and reads frames."""

    def __init__(self, stream: ByteStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder(64 * 1024 * 1024)
        self._frames: list[bytes | ProtocolError] = []

    def send(self, message: Any) -> None:
        self.stream.write(encode_frame(json.dumps(message).encode()))

    def call(self, id: Any, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})

    def notify(self, method: str, params: Any = None) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        self.send(message if params is None else {**message, "params": params})

    async def next(self) -> Any:
        """Return the next message, or None at the end of the stream."""
        while not self._frames:
            if not (data := await self.stream.receive()):
                return None
            self._frames += self._decoder.feed(data)
        body = self._frames.pop(0)
        assert isinstance(body, bytes)
        return json.loads(body.decode())

    async def error(self) -> tuple[Any, int]:
        """Return id and code of the next message, which must be an error."""
        answer = await self.next()
        return answer["id"], answer["error"]["code"]

    async def works(self, id: Any = "still there") -> bool:
        """Tell whether an ordinary request is answered, and answered next."""
        self.call(id, "echo", {"n": 1})
        return await self.next() == {"jsonrpc": "2.0", "id": id, "result": {"n": 1}}


@asynccontextmanager
async def connected(
    transport: str, **options: Any
) -> AsyncIterator[tuple[ByteStream, ByteStream]]:
    """Connect two streams; `options` are the first one's."""
    if transport == "memory":
        one, other = memory_pair()
        streams: tuple[ByteStream, ByteStream] = one, other
    elif transport == "pipes":
        (down_read, down_write), (up_read, up_write) = os.pipe(), os.pipe()
        streams = (
            FdStream(up_read, down_write, **options),
            FdStream(down_read, up_write),
        )
    elif transport == "socketpair":
        here, there = (end.detach() for end in socket.socketpair())
        streams = FdStream(here, here, **options), FdStream(there, there)
    else:
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.socket(socket.AF_UNIX) as listener,
        ):
            path = str(Path(folder, "s"))
            listener.bind(path)
            listener.listen()
            client = await connect_unix(path)
            fd = listener.accept()[0].detach()
        streams = FdStream(fd, fd, **options), client
    try:
        yield streams
    finally:
        for stream in streams:
            await stream.aclose()


@asynccontextmanager
async def serving(
    transport: str = "memory", *, limits: Limits | None = None, **options: Any
) -> AsyncIterator[tuple[Desk, Raw]]:
    """Run a peer with a desk; afterwards hang up and see it end with nothing unread."""
    desk = Desk()
    with anyio.fail_after(60):
        async with connected(transport, **options) as (here, there):
            desk.peer = Peer(here, desk, limits=limits)
            raw = Raw(there)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.peer.run)
                yield desk, raw
                desk.peer.close()
                assert await raw.next() is None


@asynccontextmanager
async def talking(transport: str = "memory") -> AsyncIterator[tuple[Desk, Desk]]:
    """Run a peer at both ends."""
    one, other = Desk(), Desk()
    with anyio.fail_after(60):
        async with (
            connected(transport) as streams,
            anyio.create_task_group() as tasks,
        ):
            for desk, stream in zip((one, other), streams, strict=True):
                desk.peer = Peer(stream, desk)
                tasks.start_soon(desk.peer.run)
            yield one, other
            one.peer.close()
            other.peer.close()
