"""`scv attach --stdio`: every byte, both ways, and both ends."""

import hashlib
import random
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import psutil
import pytest

from scv.host.private import private_directory
from scv.host.sockets import listen
from tests.daemon.kit import SCV, Daemon, environment, modules_loaded, scv, speaking
from tests.server.kit import ALLOW, WAIT_SECONDS, Place, Running, Scv, talk
from tests.test_layout import HEAVY

pytestmark = pytest.mark.anyio

LARGE_BYTES = 24 * 1024 * 1024
AFTER_END_BYTES = 1024 * 1024


@contextmanager
def listening(place: Place) -> Iterator[socket.socket]:
    """Listen where a server of the home would, as the test's own server."""
    private_directory(str(place.home))
    with listen(str(place.home / "server.sock")) as listener:
        listener.settimeout(WAIT_SECONDS)
        yield listener


def pipe(place: Place, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*SCV, "attach", "--stdio"],
        cwd=place.workspace,
        env=environment(),
        bufsize=0,
        **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **options},  # type: ignore[call-overload]
    )


def digest_of(read: object, limit: int) -> tuple[str, int]:
    """Read up to `limit` bytes, or to the end."""
    digest, count = hashlib.sha256(), 0
    while count < limit and (data := read(min(100_000, limit - count))):  # type: ignore[operator]
        digest.update(data)
        count += len(data)
    return digest.hexdigest(), count


def test_large_data_crosses_both_ways_at_once_and_both_ends_close(
    place: Place, seed: int
) -> None:
    made = random.Random(seed)
    up, down = made.randbytes(LARGE_BYTES), made.randbytes(LARGE_BYTES)
    after_end = made.randbytes(AFTER_END_BYTES)
    arrived: list[tuple[str, int]] = []

    def send_down() -> None:
        server.sendall(down)

    def send_up() -> None:
        os_write_all(process, up)

    with listening(place) as listener, pipe(place) as process:
        server, _ = listener.accept()
        threads = [threading.Thread(target=each) for each in (send_down, send_up)]
        threads.append(
            threading.Thread(
                target=lambda: arrived.append(digest_of(server.recv, LARGE_BYTES))
            )
        )
        for thread in threads:
            thread.start()
        assert process.stdin is not None
        assert process.stdout is not None
        assert digest_of(process.stdout.read, LARGE_BYTES) == told(down)
        for thread in threads:
            thread.join()
        assert arrived == [told(up)]

        process.stdin.close()
        assert server.recv(1) == b""  # the end of input is passed on
        last = threading.Thread(target=send_all, args=(server, after_end))
        last.start()  # and what comes after it still arrives
        assert digest_of(process.stdout.read, LARGE_BYTES) == told(after_end)
        last.join()
        assert process.wait(WAIT_SECONDS) == 0


def send_all(server: socket.socket, data: bytes) -> None:
    with server:
        server.sendall(data)


def told(data: bytes) -> tuple[str, int]:
    return hashlib.sha256(data).hexdigest(), len(data)


def os_write_all(process: "subprocess.Popen[bytes]", data: bytes) -> None:
    assert process.stdin is not None
    rest = memoryview(data)
    while rest:
        rest = rest[process.stdin.write(rest) :]


def fill(server: socket.socket) -> None:
    """Send until nothing more is taken."""
    server.setblocking(False)
    try:
        while True:
            server.send(b"x" * 65_536)
    except BlockingIOError:
        return


def test_one_direction_flows_while_nobody_reads_the_other(place: Place) -> None:
    """A reader that is late must not stop what its process writes."""
    with listening(place) as listener, pipe(place) as process:
        server, _ = listener.accept()
        with server:
            fill(server)
            server.settimeout(WAIT_SECONDS)
            writer = threading.Thread(
                target=os_write_all, args=(process, b"y" * LARGE_BYTES)
            )
            writer.start()

            assert digest_of(server.recv, LARGE_BYTES)[1] == LARGE_BYTES
            writer.join()
            assert process.stdin is not None
            process.stdin.close()
        assert process.stdout is not None
        assert process.stdout.read().count(b"x") > 65_536
        assert process.wait(WAIT_SECONDS) == 0


def test_the_pipe_works_over_one_socket_pair(place: Place) -> None:
    """Node gives its children sockets for standard input and output."""
    ours, theirs = socket.socketpair()
    ours.settimeout(WAIT_SECONDS)
    with (
        ours,
        listening(place) as listener,
        pipe(place, stdin=theirs, stdout=theirs) as process,
    ):
        theirs.close()
        server, _ = listener.accept()
        with server:
            ours.sendall(b"ping")
            assert server.recv(4) == b"ping"
            server.sendall(b"pong")
            assert ours.recv(4) == b"pong"
            ours.shutdown(socket.SHUT_WR)
            assert server.recv(1) == b""
        assert ours.recv(1) == b""
        assert process.wait(WAIT_SECONDS) == 0


def test_the_pipe_ends_when_nobody_reads_it(place: Place) -> None:
    """A wrapper may keep its input open after the editor died."""
    with listening(place) as listener, pipe(place) as process:
        server, _ = listener.accept()
        with server:
            assert process.stdout is not None
            process.stdout.close()

            assert process.wait(WAIT_SECONDS) == 0
            assert server.recv(1) == b""


def test_the_pipe_starts_with_closed_descriptors(place: Place) -> None:
    with listening(place) as listener:
        command = " ".join([*SCV, "attach", "--stdio"])
        with subprocess.Popen(
            ["sh", "-c", f"exec {command} <&- >&-"], env=environment()
        ) as process:
            server, _ = listener.accept()
            with server:
                assert server.recv(1) == b""
            assert process.wait(WAIT_SECONDS) == 0


def test_a_pipe_that_waits_costs_nothing(place: Place) -> None:
    with listening(place) as listener, pipe(place) as process:
        server, _ = listener.accept()
        with server:
            server.sendall(b"a")
            assert process.stdout is not None
            assert process.stdout.read(1) == b"a"
            assert process.stdin is not None
            process.stdin.close()
            assert server.recv(1) == b""  # half closed, and now it waits
            before = psutil.Process(process.pid).num_ctx_switches().voluntary
            while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
                continue
            used = psutil.Process(process.pid).cpu_times()
            assert used.user + used.system < 1
            after = psutil.Process(process.pid).num_ctx_switches().voluntary
            assert after - before < 100
        assert process.wait(WAIT_SECONDS) == 0


def test_without_a_server_one_line_says_so(place: Place) -> None:
    done = scv(place, "attach", "--stdio")

    assert (done.status, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert "scv run" in done.err


def test_a_wrong_command_line_is_told_apart(place: Place) -> None:
    assert scv(place, "attach").status == 2
    assert scv(place, "attach", "--stdio", "--what").status == 2


async def test_a_front_end_works_through_the_pipe(daemon: Daemon) -> None:
    place = daemon.place
    place.model.call("bash", {"command": "echo hi"})
    place.model.say("done")
    errors = place.workspace.parent / "pipe-errors"
    with errors.open("wb") as stderr:
        process = pipe(place, stderr=stderr)
    running = Running(process, errors)
    try:
        async with talk(running) as (front_end, _):
            await _works(front_end, place)
            await front_end.peer.request("shutdown")
            front_end.peer.notify("exit")
            with anyio.fail_after(WAIT_SECONDS):
                await front_end.closed.wait()
        assert await running.wait() == 0
        assert running.stderr() == ""
    finally:
        running.kill()


async def _works(front_end: Scv, place: Place) -> None:
    front_end.root = place.workspace
    handshake = await front_end.initialize()
    session = await front_end.create()

    assert handshake["transport"] == "unix"
    assert (await session.prompt())["status"] == "completed"


def test_the_pipe_ends_with_its_server(daemon: Daemon) -> None:
    with pipe(daemon.place) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Content-Length: 1\r\n\r\n{")
        assert process.stdout.read(7) == b"Content"  # it is connected
        assert daemon.stop() == 0

        assert process.wait(WAIT_SECONDS) == 0


def test_the_pipe_loads_nothing_heavy(daemon: Daemon) -> None:
    loaded = modules_loaded(daemon.place, "attach", "--stdio")

    assert loaded & (HEAVY | {"dataclasses", "json", "logging", "typing"}) == set()


async def test_a_server_killed_behind_the_pipe_ends_it(daemon: Daemon) -> None:
    with pipe(daemon.place) as process:
        async with speaking(daemon.connect(), ALLOW) as front_end:
            await front_end.initialize()
            while not psutil.Process(process.pid).net_connections("unix"):
                await front_end.call("session/list")
            daemon.process.kill()
            daemon.process.wait()

        assert process.wait(WAIT_SECONDS) == 0
