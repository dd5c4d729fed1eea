"""How a stdio server begins and ends, looked at from its pipes."""

import json
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from scv.rpc import FrameDecoder, encode_frame, encode_json
from tests.server.kit import (
    ALLOW,
    ROOT,
    Json,
    Place,
    Running,
    frames,
    server_command,
)

EXIT_SECONDS = 10.0
"""Five times the 2 s in which a server ends once its input has."""
CPU_SECONDS = 5.0
"""Five times the second that a quiet end may cost."""
SCV = {"protocol": {"major": 1, "minor": 0}, "clientId": "raw"}


def request(number: int, method: str, params: object = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return encode_frame(encode_json(message))


def notification(method: str) -> bytes:
    return encode_frame(encode_json({"jsonrpc": "2.0", "method": method}))


def initialize(**params: object) -> bytes:
    return request(
        1, "initialize", {"capabilities": {"experimental": {"scv": SCV}}, **params}
    )


@contextmanager
def started(place: Place, **options: int) -> Iterator[Running]:
    running = place.start(**options)  # type: ignore[arg-type]
    try:
        yield running
        assert "Traceback" not in running.stderr()
    finally:
        running.kill()


def send(running: Running, data: bytes) -> None:
    assert running.process.stdin is not None
    running.process.stdin.write(data)


def end_input(running: Running) -> None:
    assert running.process.stdin is not None
    running.process.stdin.close()


class Reader:
    """Reads messages one after the other."""

    def __init__(self, running: Running) -> None:
        assert running.process.stdout is not None
        self._fd = running.process.stdout.fileno()
        self._decoder = FrameDecoder(8 * 1024 * 1024)
        self._bodies: list[bytes] = []

    def until(self, method_or_id: str | int) -> Json:
        while True:
            while self._bodies:
                message: Json = json.loads(self._bodies.pop(0))
                if method_or_id in (message.get("method"), message.get("id")):
                    return message
            data = os.read(self._fd, 65_536)
            assert data, "the server has left"
            self._bodies += [bytes(body) for body in self._decoder.feed(data)]  # type: ignore[arg-type]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_life_1_stdin_end_of_file_at_the_start(place: Place) -> None:
    before = cpu_seconds()
    with started(place, stdin=subprocess.DEVNULL) as running:
        status = running.process.wait(EXIT_SECONDS)

        assert status == 0
        assert running.rest() == b""
    assert cpu_seconds() - before < CPU_SECONDS


def test_life_1_stdin_end_of_file_after_a_turn(place: Place) -> None:
    place.model.call("list", {})
    place.model.say("done")
    before = cpu_seconds()
    with started(place) as running:
        reader = Reader(running)
        send(running, initialize() + notification("initialized"))
        root = {"root": str(place.workspace)}
        create = {"opId": "1", "workspace": root}
        send(running, request(2, "scv/session/create", create))
        session = reader.until(2)["result"]["session"]["id"]
        parts = [{"type": "text", "text": "go"}]
        turn = {"opId": "2", "sessionId": session, "input": parts}
        send(running, request(3, "scv/turn/start", turn))
        while True:
            events = reader.until("scv/session/events")["params"]["events"]
            if any(event["type"] == "turn.ended" for event in events):
                break
        end_input(running)

        assert running.process.wait(EXIT_SECONDS) == 0
        frames(running.rest())
    assert cpu_seconds() - before < CPU_SECONDS


@pytest.mark.anyio
async def test_life_1_children_end_with_the_server(place: Place) -> None:
    place.model.call("bash", {"command": "touch on; sleep 600 & wait"})

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        await session.state(turn, "tools")
        await scv.until(
            lambda: any(
                item["status"] == "in_progress" for item in session.items("tool_call")
            )
        )
        scv.peer.close()
        await scv.closed.wait()
    # The kit has seen status 0; the fixture looks for processes.


def test_life_2_process_id_watch(place: Place) -> None:
    parent = subprocess.Popen(["sleep", "600"])
    try:
        with started(place) as running:
            reader = Reader(running)
            send(running, initialize(processId=parent.pid))
            reader.until(1)
            assert running.process.poll() is None

            parent.kill()
            parent.wait()

            assert running.process.wait(60) == 0  # it is told; 30 s are allowed
    finally:
        parent.kill()
        parent.wait()


def test_life_2_process_that_is_gone_already(place: Place) -> None:
    parent = subprocess.Popen(["true"])
    parent.wait()
    with started(place) as running:
        send(running, initialize(processId=parent.pid))

        assert running.process.wait(60) == 0


def test_life_3_log_pipe_closed(place: Place) -> None:
    before = cpu_seconds()
    reading, writing = os.pipe()
    process = subprocess.Popen(
        server_command(),
        cwd=ROOT,
        env={**os.environ, "SCV_LOG": "debug"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writing,
        bufsize=0,
    )
    os.close(writing)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(initialize())
        assert os.read(process.stdout.fileno(), 1)
        os.close(reading)
        process.stdout.close()
        try:
            process.stdin.write(request(2, "scv/session/get", {"sessionId": "s_1"}))
        except BrokenPipeError:
            pass  # it has left already

        assert process.wait(EXIT_SECONDS) >= 0
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
    assert cpu_seconds() - before < CPU_SECONDS


def test_rpc_9_huge_declared_length(place: Place) -> None:
    with started(place) as running:
        reader = Reader(running)
        send(running, initialize())
        reader.until(1)
        send(running, b"Content-Length: 99999999999\r\n\r\n")
        assert running.process.wait(EXIT_SECONDS) == 0

        (answer,) = frames(running.rest())
        assert answer["id"] is None
        assert answer["error"]["code"] == 4261
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        assert peak < 1024**3, "it was refused before anything was allocated for it"
    with started(place) as running:  # the home is as usable as before
        send(running, initialize())
        assert "result" in Reader(running).until(1)
        end_input(running)
        assert running.process.wait(EXIT_SECONDS) == 0


def test_rpc_11_request_before_initialize(place: Place) -> None:
    with started(place) as running:
        reader = Reader(running)
        workspace = {"root": str(place.workspace)}
        create = {"opId": "1", "workspace": workspace}
        send(running, request(7, "scv/session/create", create))
        assert reader.until(7)["error"]["code"] == -32002
        send(running, request(8, "shutdown"))
        assert reader.until(8)["error"]["code"] == -32002
        send(running, initialize())
        assert "result" in reader.until(1)
        send(running, request(9, "scv/session/list"))
        assert reader.until(9)["result"]["sessions"] == []
        end_input(running)
        assert running.process.wait(EXIT_SECONDS) == 0


def test_rpc_11_exit_works_before_initialize(place: Place) -> None:
    with started(place) as running:
        send(running, request(7, "scv/session/list") + notification("exit"))

        assert running.process.wait(EXIT_SECONDS) == 1  # LSP: no shutdown came first
        (answer,) = frames(running.rest())
        assert answer["error"]["code"] == -32002


def test_nothing_is_served_after_shutdown(place: Place) -> None:
    with started(place) as running:
        reader = Reader(running)
        send(running, initialize() + request(2, "shutdown"))
        assert reader.until(2)["result"] is None
        send(running, request(3, "scv/session/list"))
        assert reader.until(3)["error"]["code"] == -32600
        send(running, notification("exit"))

        assert running.process.wait(EXIT_SECONDS) == 0
        assert frames(running.rest()) == []


def test_a_second_initialize_is_refused(place: Place) -> None:
    with started(place) as running:
        reader = Reader(running)
        send(running, initialize())
        reader.until(1)
        send(running, request(2, "initialize", {"capabilities": {}}))

        assert reader.until(2)["error"]["code"] == -32600
        end_input(running)
        assert running.process.wait(EXIT_SECONDS) == 0


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ({"protocol": {"major": 2}, "clientId": "c"}, "supported"),
        ({"clientId": "c"}, "supported"),
        ({"protocol": {"major": 1}}, "path"),
        ({"protocol": {"major": 1}, "clientId": "c" * 65}, "path"),
    ],
)
def test_a_handshake_that_does_not_fit_is_refused(
    place: Place, block: Json, reason: str
) -> None:
    with started(place) as running:
        reader = Reader(running)
        wrong = {"capabilities": {"experimental": {"scv": block}}}
        send(running, request(5, "initialize", wrong))
        error = reader.until(5)["error"]

        assert error["code"] == 4250
        assert error["data"]["retry"] is False
        assert reason in error["data"]
        send(running, initialize())  # and a fitting one is welcome
        assert "result" in reader.until(1)
        end_input(running)
        assert running.process.wait(EXIT_SECONDS) == 0


def test_a_plain_lsp_client_gets_standard_lsp_only(place: Place) -> None:
    with started(place) as running:
        reader = Reader(running)
        send(running, request(1, "initialize", {"capabilities": {}, "rootUri": None}))
        result = reader.until(1)["result"]
        assert result["serverInfo"]["name"] == "scv"
        assert "experimental" not in result["capabilities"]
        send(running, notification("initialized") + notification("$/whatever"))
        send(running, request(2, "scv/session/list"))
        assert reader.until(2)["error"]["code"] == -32601
        send(running, request(3, "no/such") + request(4, "shutdown"))
        assert reader.until(3)["error"]["code"] == -32601
        assert reader.until(4)["result"] is None
        send(running, notification("exit"))

        assert running.process.wait(EXIT_SECONDS) == 0
        assert frames(running.rest()) == []


@pytest.mark.anyio
async def test_rpc_10_nothing_but_frames_on_stdout(place: Place) -> None:
    noise = "echo out; echo err >&2; echo sly >/dev/fd/1; echo slier >/proc/self/fd/1"
    place.model.call("bash", {"command": noise})
    place.model.say("done")
    loud = {
        "SCV_LOG": "debug",
        "PYTHONWARNINGS": "always",
        "PYTHONDEVMODE": "1",
        "PYTHONASYNCIODEBUG": "1",
    }

    async with place.server(environment=loud) as scv:
        session = await scv.create()
        turn = await session.prompt()
        assert turn["status"] == "completed"
        assert "slier" in session.results()[0]
        place.configure("[tools]\nno_such_setting = 1")
        error = await scv.refused(
            "session/create", workspace={"root": str(place.workspace)}
        )
        assert error.code == 4291
        assert "no_such_setting" in error.message
        place.configure()
        await session.works(place.model)
    # The kit has parsed every byte of standard output as frames.
    assert place.model.key not in place.said
