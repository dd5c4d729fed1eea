"""One end of a JSON-RPC connection; both ends run this same code.

Theory of operation. `run` reads frames and acts on each message before it
looks at the next. A notification is handled in place. A request becomes a task
of the peer's own group, in its own cancel scope, and the reader lets it start
before it goes on: handlers begin in the order of the frames. Whatever way the
handler ends, its one answer is written on leaving the scope, so behind
everything the handler wrote.

Two tables, because both ends number their requests by themselves: `_incoming`
maps the remote's ids to the scopes of their handlers, `_outgoing` our ids to
what waits for the answers. A cancellation from the remote looks in the first
table only, an answer in the second only.

Writing is synchronous and never waits; the stream owns the backlog. At the
end, for whatever reason, every handler is cancelled and every waiting request
fails with ConnectionLost, and `run` returns when all handlers have ended.
"""

import asyncio
import logging
import math
from typing import Any

import anyio
from anyio.abc import TaskGroup

from scv.errors import ConnectionLost, ProtocolError
from scv.rpc.framing import FrameDecoder, encode_frame, too_large
from scv.rpc.messages import (
    CANCEL_METHOD,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    BadMessage,
    RemoteError,
    describe_error,
    encode_json,
    parse_message,
)
from scv.rpc.ports import ByteStream, Dispatcher, Limits, Params
from scv.wire.errors import refuse

log = logging.getLogger(__name__)

Id = str | int

PARSE_ERRORS_IN_A_ROW = 3
"""After so many bodies that are not JSON the remote speaks something else."""

_INTERNAL = "internal error; the log has the details"


class Peer:
    """Calls the remote, and lets a dispatcher answer its calls, over one stream."""

    def __init__(
        self,
        stream: ByteStream,
        dispatcher: Dispatcher,
        *,
        limits: Limits | None = None,
    ) -> None:
        self._stream = stream
        self._dispatcher = dispatcher
        self._limits = limits or Limits()
        self._incoming: dict[Id, anyio.CancelScope] = {}
        self._outgoing: dict[int, asyncio.Future[dict[str, Any] | None]] = {}
        self._slots = anyio.Semaphore(self._limits.requests_out, fast_acquire=True)
        self._last_id = 0
        self._reading = anyio.CancelScope()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """The connection has ended or is ending: no request can be made."""
        return self._is_closed

    @property
    def backlog_bytes(self) -> int:
        """Bytes the remote has yet to take; 0 means that a write leaves at once."""
        return self._stream.backlog_bytes

    async def drained(self) -> None:
        """Wait until there is no backlog, or no connection."""
        await self._stream.drained()

    async def run(self) -> None:
        """Serve the connection until its end, then close the stream.

        Returns at the remote's end of file, after `close`, when the stream
        breaks, and after a message that leaves no way to go on.
        """
        try:
            async with anyio.create_task_group() as tasks:
                with self._reading:
                    await self._read(tasks)
                self._end()
        finally:
            self._end()
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    def close(self) -> None:
        """End the connection: `run` cancels what it serves, flushes and returns."""
        self._end()
        self._reading.cancel()

    async def request(self, method: str, params: Params = None) -> Any:
        """Ask the remote and wait for its result.

        Waits for a free slot first when too many requests are open. Cancelling
        tells the remote, and a late answer is ignored.

        Raises:
            RemoteError: The remote answered with an error, or unusably.
            ConnectionLost: The connection is closed, or closed before the answer.
            FrameTooLarge: The request is over the limit; nothing was sent.
        """
        async with self._slots:
            if self._is_closed:
                raise ConnectionLost(f"the connection is closed: {method} was not sent")
            request_id = self._last_id = self._last_id + 1
            self._send({"jsonrpc": "2.0", "id": request_id, **_call(method, params)})
            waiting = asyncio.get_running_loop().create_future()
            self._outgoing[request_id] = waiting
            try:
                answer = await waiting
            finally:
                if self._outgoing.pop(request_id, None):  # left before an answer came
                    self.notify(CANCEL_METHOD, {"id": request_id})
        if answer is None:
            raise ConnectionLost(f"the connection closed before {method} was answered")
        if (error := answer.get("error")) is not None or "result" not in answer:
            raise RemoteError(error)
        return answer["result"]

    def notify(self, method: str, params: Params = None) -> None:
        """Send a notification; one to a closed connection goes nowhere.

        Raises:
            FrameTooLarge: It is over the limit; nothing was sent.
        """
        self._send({"jsonrpc": "2.0", **_call(method, params)})

    def notify_encoded(self, method: str, params_json: bytes) -> None:
        """Send a notification whose params are JSON already, encoded once for many.

        `method` is one of our own names and needs no escape in JSON.

        Raises:
            FrameTooLarge: It is over the limit; nothing was sent.
        """
        self._write(
            b'{"jsonrpc":"2.0","method":"%b","params":%b}'
            % (method.encode(), params_json)
        )

    def _send(self, message: dict[str, Any]) -> None:
        self._write(encode_json(message))

    def _write(self, body: bytes) -> None:
        if len(body) > self._limits.frame_out_bytes:
            raise too_large(self._limits.frame_out_bytes)
        self._stream.write(encode_frame(body))

    async def _read(self, tasks: TaskGroup) -> None:
        decoder = FrameDecoder(self._limits.frame_in_bytes)
        parse_errors = 0
        while data := await self._stream.receive():
            for body in decoder.feed(data):
                if self._is_closed:
                    return
                if isinstance(body, ProtocolError):
                    self._reply(None, {"error": describe_error(body)})
                    return
                try:
                    message = parse_message(body)
                except BadMessage as error:
                    self._reject(error)
                    parse_errors = parse_errors + 1 if error.code == PARSE_ERROR else 0
                    if parse_errors == PARSE_ERRORS_IN_A_ROW:
                        return
                    continue
                parse_errors = 0
                if "method" not in message:
                    self._settle(message)
                elif "id" not in message:
                    self._observe(message["method"], message.get("params"))
                elif scope := self._admit(message["id"]):
                    tasks.start_soon(self._serve, message, scope)
                    await asyncio.sleep(0)  # the handler starts before the next message

    def _reject(self, error: BadMessage) -> None:
        """Answer a bad message, or fail the request that it was meant to answer."""
        if not error.is_answer:
            self._reply(error.id, {"error": describe_error(error)})
        elif error.id is not None:
            self._settle({"id": error.id, "error": describe_error(error)})

    def _settle(self, answer: dict[str, Any]) -> None:
        request_id = answer["id"]
        waiting = self._outgoing.pop(request_id, None)
        if waiting is None:
            if "result" not in answer and "error" not in answer:
                self._refuse(request_id, "a request needs a method")
        elif not waiting.done():  # done: cancelled, and about to leave
            waiting.set_result(answer)

    def _observe(self, method: str, params: Params) -> None:
        if method == CANCEL_METHOD:
            wanted = params.get("id") if isinstance(params, dict) else None
            if isinstance(wanted, str | int) and wanted in self._incoming:
                self._incoming[wanted].cancel()
            return
        try:
            self._dispatcher.handle_notification(method, params)
        except Exception as error:  # the connection outlives a bug in a handler
            log.error("notification %r failed: %s", method, _trace(error))

    def _admit(self, request_id: Id) -> anyio.CancelScope | None:
        """Enter a request in the table, or refuse it."""
        if request_id in self._incoming:
            self._refuse(request_id, "a request with this id is still open")
        elif len(self._incoming) >= self._limits.requests_in:
            error = refuse(
                "limit.count",
                f"at most {self._limits.requests_in} requests may be open at once",
                limit="requestsIn",
                max=self._limits.requests_in,
            )
            self._reply(request_id, {"error": describe_error(error)})
        else:
            scope = self._incoming[request_id] = anyio.CancelScope()
            return scope
        return None

    async def _serve(self, message: dict[str, Any], scope: anyio.CancelScope) -> None:
        outcome = _failure(REQUEST_CANCELLED, "the request was cancelled")
        try:
            with scope:
                outcome = await self._outcome(message)
        finally:  # cancelled from outside too: an answer in every case, and one
            del self._incoming[message["id"]]
            self._reply(message["id"], outcome)

    async def _outcome(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return {
                "result": await self._dispatcher.handle_request(
                    message["method"], message.get("params")
                )
            }
        except asyncio.CancelledError:
            if anyio.current_effective_deadline() == -math.inf:
                raise
            # Nobody cancelled this request: something that the handler waited on
            # was cancelled, and its exception came up here.
            return _failure(REQUEST_CANCELLED, "the work was cancelled")
        except Exception as error:  # the connection outlives a bug in a handler
            if isinstance(error, ProtocolError) and not isinstance(error, RemoteError):
                return {"error": describe_error(error)}
            if not (isinstance(error, ConnectionLost) and self._is_closed):
                log.error("%s failed: %s", _name(message), _trace(error))
            return _failure(INTERNAL_ERROR, _INTERNAL)

    def _refuse(self, request_id: Id, reason: str) -> None:
        self._reply(request_id, _failure(INVALID_REQUEST, reason))

    def _reply(self, request_id: Id | None, outcome: dict[str, Any]) -> None:
        """Write an answer; one that cannot be sent becomes an error that can."""
        head = {"jsonrpc": "2.0", "id": request_id}
        try:
            body = encode_json({**head, **outcome})
        except (TypeError, ValueError, RecursionError) as error:
            log.error("answer to request %r is no JSON: %s", request_id, _trace(error))
            body = encode_json({**head, **_failure(INTERNAL_ERROR, _INTERNAL)})
        if len(body) > self._limits.frame_out_bytes:
            refusal = too_large(self._limits.frame_out_bytes)
            body = encode_json({**head, "error": describe_error(refusal)})
        self._stream.write(encode_frame(body))

    def _end(self) -> None:
        self._is_closed = True
        for scope in self._incoming.values():
            scope.cancel()
        for waiting in self._outgoing.values():
            if not waiting.done():
                waiting.set_result(None)
        self._outgoing.clear()


def _call(method: str, params: Params) -> dict[str, Any]:
    return (
        {"method": method} if params is None else {"method": method, "params": params}
    )


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


def _name(message: dict[str, Any]) -> str:
    return f"request {message['id']!r} ({message['method']!r})"


def _trace(error: BaseException) -> str:
    """Name an exception and where it was raised, without any value it carries."""
    from traceback import extract_tb

    places = " < ".join(
        f"{frame.filename}:{frame.lineno} {frame.name}"
        for frame in reversed(extract_tb(error.__traceback__))
    )
    return f"{type(error).__name__} at {places}"
