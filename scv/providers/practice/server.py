"""A small HTTP/1.1 server on loopback that speaks the Responses wire.

It binds 127.0.0.1 only, asks for a random bearer token, and keeps connections
open. It serves one purpose and refuses everything else.
"""

import hmac
import json
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from scv.providers.practice import commands
from scv.providers.practice.answer import Fault, Move, Reply, stream
from scv.providers.practice.conversation import Conversation, read_conversation
from scv.providers.practice.script import STREAM_HEADERS

logger = logging.getLogger(__name__)

MAX_HEADER_BYTES = 65_536
MAX_BODY_BYTES = 67_108_864
"""Well above the largest request a session can make (16 MiB of history)."""

_WRITE_BYTES = 65_536

Responder = Callable[[Conversation], Reply]


class PracticeServer:
    """One listening practice model; `serve` runs until it is cancelled.

    Args:
        respond: Gives the answer to each request; by default the command language.
        port: Port to listen on, 0 for any.
    """

    def __init__(self, respond: Responder | None = None, *, port: int = 0) -> None:
        self.token = os.urandom(24).hex()
        self.base_url = ""
        self._port = port
        self._respond = respond or self._follow_commands
        self._count = 0

    async def serve(
        self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and answer; reports as started once `base_url` is known."""
        async with await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=self._port
        ) as listener:
            port = listener.extra(SocketAttribute.local_port)
            self.base_url = f"http://127.0.0.1:{port}/v1"
            task_status.started()
            await listener.serve(self._serve_connection)

    def _follow_commands(self, conversation: Conversation) -> Reply:
        self._count += 1
        answer = commands.answer(conversation)
        return Reply(
            200,
            STREAM_HEADERS,
            stream(answer, number=self._count, model=conversation.model),
        )

    async def _serve_connection(self, connection: SocketStream) -> None:
        try:
            async with connection:
                requests = _Requests(connection)
                while True:
                    request = await requests.next()
                    if request is None:
                        return
                    reply = self._answer(*request)
                    if not await _send(connection, reply):
                        return
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            logger.debug("a practice connection ended early")
        except ValueError as error:
            logger.warning("practice: not a request: %s", error)

    def _answer(self, target: str, headers: dict[str, str], body: bytes) -> Reply:
        given = headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return _error(401, "this practice model belongs to another program")
        if target == "GET /v1/models":
            listed = {"object": "list", "data": [{"id": "practice", "object": "model"}]}
            return Reply(200, _JSON, json.dumps(listed).encode())
        if target != "POST /v1/responses":
            return _error(404, "the practice model knows only POST /v1/responses")
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            return _error(400, "the body is not JSON")
        if not isinstance(request, dict):
            return _error(400, "the body is not a JSON object")
        return self._respond(read_conversation(request))


_JSON = {"content-type": "application/json"}


def _error(status: int, message: str) -> Reply:
    body: dict[str, Any] = {"error": {"message": message}}
    return Reply(status, _JSON, json.dumps(body).encode())


class _Requests:
    """Reads requests from one connection, one after the other."""

    def __init__(self, connection: SocketStream) -> None:
        self._connection = connection
        self._buffer = b""

    async def next(self) -> tuple[str, dict[str, str], bytes] | None:
        """Return method and path, headers and body; None when the client has left."""
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > MAX_HEADER_BYTES:
                raise ValueError("the header is too long")
            if not await self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= MAX_BODY_BYTES or "transfer-encoding" in headers:
            raise ValueError("the body's length is not acceptable")
        pieces, held = [self._buffer], len(self._buffer)
        while held < length:
            self._buffer = b""
            if not await self._more():
                return None
            pieces.append(self._buffer)
            held += len(self._buffer)
        whole = b"".join(pieces)
        self._buffer = whole[length:]
        path = rest.partition(" ")[0].partition("?")[0]
        return f"{method} {path}", headers, whole[:length]

    async def _more(self) -> bool:
        try:
            self._buffer += await self._connection.receive(_WRITE_BYTES)
        except anyio.EndOfStream:
            return False
        return True


async def _send(connection: SocketStream, reply: Reply) -> bool:
    """Send one answer; True when the connection may go on."""
    head = [f"HTTP/1.1 {reply.status} {'OK' if reply.status == 200 else 'Error'}"]
    head += [f"{name}: {value}" for name, value in reply.headers.items()]
    if isinstance(reply.body, bytes):
        head.append(f"content-length: {len(reply.body)}")
        await connection.send("\r\n".join([*head, "\r\n"]).encode() + reply.body)
        return True
    head.append("transfer-encoding: chunked")
    return await _send_moves(
        connection, "\r\n".join([*head, "\r\n"]).encode(), reply.body
    )


async def _send_moves(
    connection: SocketStream, head: bytes, moves: Iterator[Move]
) -> bool:
    """Send a body chunk by chunk; what needs no wait in between goes out together."""
    began = anyio.current_time()
    waiting, held = [head], len(head)
    for move in moves:
        if isinstance(move, bytes):
            waiting.append(b"%x\r\n%b\r\n" % (len(move), move))
            held += len(move)
            if held < _WRITE_BYTES:
                continue
        if waiting:
            await connection.send(b"".join(waiting))
            waiting, held = [], 0
        if isinstance(move, float):
            await anyio.sleep_until(began + move)
        elif isinstance(move, Fault):
            if move is Fault.HANG:
                await anyio.sleep_forever()
            if move is Fault.RESET:
                raw = connection.extra(SocketAttribute.raw_socket)
                linger = b"\1\0\0\0\0\0\0\0"  # on, zero seconds: close sends RST
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
    await connection.send(b"".join([*waiting, b"0\r\n\r\n"]))
    return True
