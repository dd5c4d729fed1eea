"""Streams over real descriptors: any kind of standard stream, slow and gone readers."""

import json
import os
import pty
import select
import socket
import subprocess
import sys
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import anyio
import pytest

from scv.errors import ConnectionLost
from scv.rpc import FdStream, FrameDecoder, connect_unix, encode_frame, memory_pair
from tests.rpc.ends import connected, serving

PROGRAM = [sys.executable, "-m", "tests.rpc.stdio_program"]
SECONDS = 30


def frames(*messages: tuple[int, str, Any]) -> bytes:
    """Write requests."""
    bodies = (
        {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        for id, method, params in messages
    )
    return b"".join(encode_frame(json.dumps(body).encode()) for body in bodies)


def results(output: bytes) -> dict[int, Any]:
    """Read answers from output of which every byte must belong to a frame."""
    decoder = FrameDecoder(1 << 24)
    bodies = decoder.feed(output)
    assert b"".join(encode_frame(body) for body in bodies) == output
    return {answer["id"]: answer["result"] for answer in map(json.loads, bodies)}


@pytest.fixture
def program() -> Iterator[Any]:
    """Start the program with given streams; it must end by itself with status 0."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**streams: Any) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[2]
        # The program prints before it takes the streams: into a buffer, please.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        started.append(subprocess.Popen(PROGRAM, cwd=root, env=environment, **streams))
        return started[-1]

    yield start
    for process in started:
        try:
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


def test_rpc_10_nothing_but_frames_reaches_the_output(program: Any) -> None:
    process = program(
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(frames((1, "noise", []), (2, "fds", []), (3, "echo", ["é🍸"])))
    process.stdin.flush()

    output = read_answers(process.stdout, 3)
    process.stdin.close()
    output += process.stdout.read()
    errors = process.stderr.read()

    assert results(output) == {
        1: [False, False],  # a child inherits neither of the protocol's pipes
        2: [True, True, False, False],
        3: ["é🍸"],
    }
    for noise in (b"waits in a buffer", b"a print", b"a write", b"a warning"):
        assert noise in errors
    assert b"a log line" in errors
    assert b"from a child" in errors


def read_answers(output: IO[bytes], count: int) -> bytes:
    """Read until so many frames have come."""
    data = b""
    while data.count(b"Content-Length") < count or len(results_so_far(data)) < count:
        data += os.read(output.fileno(), 65536)
    return data


def results_so_far(data: bytes) -> list[Any]:
    return FrameDecoder(1 << 24).feed(data)


def test_standard_streams_may_be_one_socket(program: Any) -> None:
    here, there = socket.socketpair()
    with here:
        with there:
            program(stdin=there, stdout=there)
        here.sendall(frames((1, "echo", ["x" * 300_000])))
        output = read_answers(here.makefile("rb", buffering=0), 1)
        here.shutdown(socket.SHUT_WR)

        assert results(output) == {1: ["x" * 300_000]}
        assert here.recv(1) == b""


def test_standard_streams_may_be_files(program: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(frames(*((n, "echo", ["y" * 100_000]) for n in range(20))))
    with source.open("rb") as stdin, target.open("wb") as stdout:
        assert program(stdin=stdin, stdout=stdout).wait(SECONDS) == 0

    assert results(target.read_bytes()) == {n: ["y" * 100_000] for n in range(20)}


@pytest.mark.parametrize("output", ["null", "full", "closed"])
def test_life_1_input_at_its_end_ends_the_program(program: Any, output: str) -> None:
    if output == "closed":
        process = program(stdin=subprocess.DEVNULL, preexec_fn=lambda: os.close(1))
    else:
        with Path("/dev", output).open("wb") as stdout:
            process = program(stdin=subprocess.DEVNULL, stdout=stdout)

    assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("fds", [[0], [2], [0, 1, 2]])
def test_a_program_started_with_closed_streams_ends(
    program: Any, fds: list[int]
) -> None:
    def close() -> None:
        for fd in fds:
            os.close(fd)

    streams = {} if 0 in fds else {"stdin": subprocess.DEVNULL}
    program(preexec_fn=close, stdout=subprocess.DEVNULL, **streams)


def test_standard_streams_may_be_a_terminal_and_get_it_back_as_it_was(
    program: Any,
) -> None:
    here, there = pty.openpty()
    try:
        tty.setraw(there)
        process = program(stdin=there, stdout=there)
        os.write(here, frames((1, "echo", [1])))
        output = b""
        while len(results_so_far(output)) < 1:
            output += os.read(here, 65536)
        os.write(here, encode_frame(b'{"jsonrpc":"2.0","method":"exit"}'))

        assert results(output) == {1: [1]}
        assert process.wait(SECONDS) == 0
        assert os.get_blocking(there)
    finally:
        os.close(here)
        os.close(there)


def test_life_3_a_closed_output_ends_the_program_quietly(program: Any) -> None:
    process = program(
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    process.stderr.close()
    process.stdin.write(frames((1, "noise", []), (2, "echo", [])))
    process.stdin.flush()  # and stays open

    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)

    assert process.returncode in (0, 120)  # 120: Python could not flush its stderr
    process.returncode = 0
    # Importing included; a loop of failing writes would burn far more.
    assert usage.ru_utime + usage.ru_stime < 5 * 1.0


@pytest.mark.anyio
async def test_a_write_to_an_idle_pipe_has_left_when_the_call_returns() -> None:
    read_end, write_end = os.pipe()
    stream = FdStream(os.open(os.devnull, os.O_RDONLY), write_end)

    stream.write(b"now")

    assert stream.backlog_bytes == 0
    assert select.select([read_end], [], [], 0)[0]  # no task had to run
    assert os.read(read_end, 9) == b"now"
    await stream.aclose()
    assert os.read(read_end, 9) == b""
    os.close(read_end)


@pytest.mark.anyio
@pytest.mark.parametrize("transport", ["pipes", "socketpair", "unix"])
async def test_a_slow_reader_gets_every_byte_in_order(transport: str) -> None:
    chunks = [bytes([n % 256]) * (1 + n * 37 % 5000) for n in range(2000)]
    with anyio.fail_after(60):
        async with connected(transport) as (here, there):
            for chunk in chunks:
                here.write(chunk)
            assert here.backlog_bytes > 1_000_000

            received = bytearray()
            while len(received) < sum(map(len, chunks)):
                received += await there.receive()

            assert received == b"".join(chunks)
            await here.drained()
            assert here.backlog_bytes == 0


@pytest.mark.anyio
@pytest.mark.parametrize("transport", ["pipes", "socketpair", "unix"])
async def test_a_reader_too_far_behind_is_cut_off(transport: str) -> None:
    async with serving(transport, backlog_limit_bytes=1_000_000) as (desk, raw):
        params = b'"%b"' % (b"x" * 100_000)
        for _ in range(20):
            desk.peer.notify_encoded("event", params)

        await desk.peer.drained()
        assert desk.peer.backlog_bytes == 0
        while await raw.next():
            pass  # what the system had taken; then the end
        assert desk.peer.is_closed


@pytest.mark.anyio
async def test_a_reader_in_memory_too_far_behind_is_cut_off() -> None:
    here, there = memory_pair(backlog_limit_bytes=1000)
    here.write(b"x" * 1000)
    assert here.backlog_bytes == 1000
    here.write(b"x")

    assert await here.receive() == b""
    assert await there.receive() == b""
    await here.drained()


@pytest.mark.anyio
async def test_a_reader_that_takes_nothing_for_too_long_is_cut_off() -> None:
    async with serving("pipes", stall_seconds=0.05) as (desk, raw):
        desk.peer.notify_encoded("event", b'"%b"' % (b"x" * 1_000_000))
        assert desk.peer.backlog_bytes > 0

        await desk.peer.drained()

        while await raw.stream.receive():
            pass
        assert desk.peer.is_closed


@pytest.mark.anyio
async def test_a_slow_but_living_reader_is_not_cut_off() -> None:
    async with connected("pipes", stall_seconds=0.5) as (here, there):
        here.write(b"x" * 20 * 65536)
        received = 0
        while received < 20 * 65536:
            received += len(await there.receive())
            await anyio.sleep(0.05)  # the reader's slowness is the case


@pytest.mark.anyio
async def test_the_last_words_reach_a_reader_that_is_behind() -> None:
    async with connected("pipes") as (here, there), anyio.create_task_group() as tasks:
        here.write(b"x" * 1_000_000)
        tasks.start_soon(here.aclose)

        received = 0
        while data := await there.receive():
            received += len(data)

        assert received == 1_000_000


@pytest.mark.anyio
async def test_a_gone_reader_is_noticed_at_the_next_write() -> None:
    async with serving("pipes") as (desk, raw):
        await raw.stream.aclose()
        for _ in range(10):
            desk.peer.notify("event")

        await desk.peer.drained()
        assert desk.peer.backlog_bytes == 0


@pytest.mark.anyio
async def test_no_server_at_the_path_is_a_lost_connection(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost):
        await connect_unix(str(tmp_path / "none"))
