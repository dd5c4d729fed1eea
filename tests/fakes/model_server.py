"""A model endpoint that a test plays: every byte and every pause is the test's.

Usable from plain and from async tests (it lives in threads of its own):

    with ModelServer() as model:
        model.say("hello")
        model.call("bash", {"command": "ls"})
        model.raw(b"data: {}\\n\\n", gate, b"...", RESET)
        ... run something against model.url with model.key ...
        assert model.requests[0].json["model"] == "m"

Answers are used in the order they were given, one for each request. A request
without an answer gets a final error. A gate is a `threading.Event` that the test
sets; nothing here sleeps.
"""

import json
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

Json = dict[str, Any]
Framing = Literal["chunked", "close", "length"]

WAIT_SECONDS = 60.0
"""Longest wait for a gate or a request; a test that waits longer has failed."""


class _End:
    def __init__(self, name: str) -> None:
        self.name = name


RESET = _End("reset")
"""A step: break the connection with RST."""
CLOSE = _End("close")
"""A step: close the connection without an end mark."""
HANG = _End("hang")
"""A step: send nothing more until the client leaves or the server ends."""

Step = bytes | threading.Event | _End


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Json:
        """The body as a JSON object."""
        value = json.loads(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def input(self) -> list[Json]:
        """The request's input items."""
        items = self.json["input"]
        assert isinstance(items, list)
        return items


@dataclass(frozen=True)
class Answer:
    """One answer: head, then steps."""

    steps: Sequence[Step]
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: {"content-type": "text/event-stream"}
    )
    framing: Framing = "chunked"


def sse(value: Json | str, name: str | None = None) -> bytes:
    """Encode one event; its `event:` name comes from the type unless given."""
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if name is None and isinstance(value, dict):
        name = str(value.get("type", "")) or None
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def delta(text: str, index: int = 0) -> bytes:
    """Encode one text delta."""
    return sse(
        {"type": "response.output_text.delta", "output_index": index, "delta": text}
    )


def done(item: Json, index: int = 0) -> bytes:
    """Encode the final form of one output item."""
    return sse(
        {"type": "response.output_item.done", "output_index": index, "item": item}
    )


def message(text: str, number: int = 0) -> Json:
    """Return a finished message item."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def function_call(name: str, arguments: Json | str, call_id: str) -> Json:
    """Return a finished function call item."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": text,
    }


def completed(usage: Json | None = None, **fields: Any) -> bytes:
    """Encode the proper end of a response."""
    response = {"status": "completed", "usage": usage, **fields}
    return sse({"type": "response.completed", "response": response})


USAGE = {
    "input_tokens": 11,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 5},
    "output_tokens_details": {"reasoning_tokens": 3},
}


class ModelServer:
    """An HTTP server on loopback that answers as it was told.

    Args:
        key: The bearer key that requests must carry; None takes any.
        tls: Serve HTTPS with this context.
        on_request: Called with each request before its answer; may return one.
    """

    def __init__(
        self,
        *,
        key: str | None = "sk-fake-0123456789abcdef",
        tls: ssl.SSLContext | None = None,
        on_request: Callable[[Request], Answer | None] | None = None,
    ) -> None:
        self.key = key or "sk-any-key"
        self.requests: list[Request] = []
        self.problems: list[BaseException] = []
        self.on_request = on_request
        self._wanted_key = key
        self._tls = tls
        self._answers: deque[Answer] = deque()
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_over = threading.Event()
        self._calls = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    # --- life ---

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            open_ones = list(self._connections)
        for connection in open_ones:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
        if kind is None and self.problems:
            raise self.problems[0]

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from anyio import to_thread

        await to_thread.run_sync(self.__exit__, kind, error, trace)

    @property
    def url(self) -> str:
        """Base URL for the provider's configuration."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    @property
    def connections(self) -> int:
        """How many connections have been made."""
        return len(self._threads) - 1

    # --- answers ---

    def say(
        self,
        *pieces: str,
        usage: Json | None = None,
        gate: threading.Event | None = None,
    ) -> None:
        """Answer with text in these pieces; a gate holds everything after the first."""
        steps: list[Step] = [delta(piece) for piece in pieces]
        if gate is not None:
            steps.insert(1, gate)
        self.raw(*steps, done(message("".join(pieces))), completed(usage or USAGE))

    def call(
        self,
        name: str,
        arguments: Json | str,
        *,
        text: str = "",
        call_id: str | None = None,
    ) -> str:
        """Answer with one tool call (after `text`); returns its call id."""
        return self.calls((name, arguments), text=text, call_ids=[call_id])[0]

    def calls(
        self,
        *wanted: tuple[str, Json | str],
        text: str = "",
        call_ids: Sequence[str | None] = (),
    ) -> list[str]:
        """Answer with several tool calls in one response; returns their call ids."""
        steps: list[Step] = []
        if text:
            steps += [delta(text), done(message(text))]
        used: list[str] = []
        given = [*call_ids, *([None] * len(wanted))]
        for (name, arguments), call_id in zip(wanted, given, strict=False):
            self._calls += 1
            used.append(call_id or f"call_{self._calls}")
            item = function_call(name, arguments, used[-1])
            steps.append(done(item, len(used) - (0 if text else 1)))
        self.raw(*steps, completed(USAGE))
        return used

    def events(self, *values: Json | str) -> None:
        """Answer with exactly these events, then a clean end of the body."""
        self.raw(*(sse(value) for value in values))

    def raw(
        self,
        *steps: Step,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        framing: Framing = "chunked",
    ) -> None:
        """Answer with these bytes, gates and ends, each `bytes` as one chunk."""
        if headers is None:
            headers = {"content-type": "text/event-stream"}
        self.add(Answer(steps, status, headers, framing))

    def fail(
        self,
        status: int,
        body: Any = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with an error status; a body that is no `bytes` is sent as JSON."""
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.raw(
            data,
            status=status,
            headers={"content-type": kind, **(headers or {})},
            framing="length",
        )

    def add(self, *answers: Answer) -> None:
        """Add answers to the queue."""
        with self._changed:
            self._answers.extend(answers)

    def wait_for_requests(self, count: int) -> list[Request]:
        """Block until so many requests have come; returns them all."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: len(self.requests) >= count, WAIT_SECONDS
            )
            assert came, f"{len(self.requests)} of {count} requests came"
            return list(self.requests)

    # --- threads ---

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                self._connections.append(connection)
            self._start(self._serve, connection, len(self._threads))

    def _serve(self, plain: socket.socket, number: int) -> None:
        connection = plain
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            buffer = b""
            while True:
                request, buffer = _receive(connection, buffer, number)
                if request is None or not self._play(connection, request):
                    return
        except OSError:
            pass  # the client left; what it did not get is the test's concern
        except BaseException as error:
            self.problems.append(error)
        finally:
            with self._changed:
                self._connections.remove(plain)
            connection.close()

    def _play(self, connection: socket.socket, request: Request) -> bool:
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        answer = self.on_request(request) if self.on_request else None
        if answer is None:
            answer = self._next_answer(request)
        data = b"".join(s for s in answer.steps if isinstance(s, bytes))
        framing = {
            "chunked": "transfer-encoding: chunked",
            "close": "connection: close",
            "length": f"content-length: {len(data)}",
        }[answer.framing]
        head = [f"HTTP/1.1 {answer.status} Status", framing]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        connection.sendall("\r\n".join([*head, "\r\n"]).encode())
        for step in answer.steps:
            if not self._step(connection, step, answer.framing):
                return False
        if answer.framing == "chunked":
            connection.sendall(b"0\r\n\r\n")
        return answer.framing != "close"

    def _next_answer(self, request: Request) -> Answer:
        wanted = self._wanted_key
        if wanted is not None and request.headers.get("authorization") != (
            f"Bearer {wanted}"
        ):
            return _error(401, "wrong key")
        with self._changed:
            if self._answers:
                return self._answers.popleft()
        return _error(400, "the test has given no answer for this request")

    def _step(self, connection: socket.socket, step: Step, framing: Framing) -> bool:
        if isinstance(step, threading.Event):
            self._wait(step)
        elif isinstance(step, bytes):
            if framing == "chunked" and step:
                step = b"%x\r\n%b\r\n" % (len(step), step)
            connection.sendall(step)
        elif step is HANG:
            connection.recv(1)  # until the client leaves
            return False
        else:
            if step is RESET:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return False
        return True

    def _wait(self, gate: threading.Event) -> None:
        for _ in range(int(WAIT_SECONDS * 10)):
            if gate.wait(0.1) or self._is_over.is_set():
                return
        raise AssertionError("a gate was never opened")


def _error(status: int, text: str) -> Answer:
    body = json.dumps({"error": {"message": text, "type": "fake"}}).encode()
    return Answer([body], status, {"content-type": "application/json"}, "length")


def _receive(
    connection: socket.socket, buffer: bytes, number: int
) -> tuple[Request | None, bytes]:
    """Read one request; None when the client has closed."""
    while b"\r\n\r\n" not in buffer:
        more = connection.recv(65_536)
        if not more:
            return None, b""
        buffer += more
        if buffer.startswith(b"\x16"):  # a TLS greeting; say so as servers do
            connection.sendall(b"HTTP/1.1 400 This is plain HTTP\r\n\r\n")
            return None, b""
    head, _, buffer = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = dict(_header(line) for line in lines)
    length = int(headers.get("content-length", "0"))
    while len(buffer) < length:
        more = connection.recv(65_536)
        if not more:
            return None, b""
        buffer += more
    return Request(method, path, headers, buffer[:length], number), buffer[length:]


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def texts(items: Iterable[Json]) -> list[str]:
    """Return the contents of input items that hold plain text."""
    return [str(item["content"]) for item in items if "content" in item]
