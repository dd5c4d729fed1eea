"""A real `scv run`, and front ends on its socket.

    with served(place) as daemon:
        async with daemon.front_end(answer=ALLOW, client_id="one") as scv:
            session = await scv.create()

Leaving `served` stops the server by SIGTERM and looks at what it leaves.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from scv.host.sockets import connect
from scv.rpc import FdStream
from tests.server.kit import ALLOW, ROOT, WAIT_SECONDS, Answer, Place, Scv

SCV = (sys.executable, "-m", "scv")
STOP_SECONDS = 20.0
"""Above five times the 3 s that tools have to end, and what is written after."""


def environment(**more: str) -> dict[str, str]:
    """Return the variables of every process that a test starts."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@dataclass
class Daemon:
    """One running server."""

    place: Place
    process: "subprocess.Popen[bytes]"
    errors: Path

    @property
    def path(self) -> Path:
        """Where it listens."""
        return self.place.home / "server.sock"

    def connect(self) -> socket.socket:
        """Connect as a front end does."""
        connected = connect(str(self.path))
        assert connected is not None, "nobody listens"
        return connected

    @asynccontextmanager
    async def front_end(
        self, answer: Answer = ALLOW, **handshake: Any
    ) -> AsyncIterator[Scv]:
        """Talk to it for the block, then just leave."""
        async with speaking(self.connect(), answer) as scv:
            scv.root = self.place.workspace
            await scv.initialize(**handshake)
            yield scv
            assert not scv.problems, scv.problems

    def wait(self) -> int:
        """Wait for its end; returns the exit status."""
        return self.process.wait(STOP_SECONDS)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end and wait for that; returns the exit status."""
        self.process.send_signal(number)
        return self.wait()

    def said(self) -> str:
        """Return what it wrote to standard error."""
        return self.errors.read_text("utf-8", "replace")


@asynccontextmanager
async def speaking(connected: socket.socket, answer: Answer) -> AsyncIterator[Scv]:
    """Speak the protocol over a connected socket for the block, without handshake."""
    fd = connected.detach()
    scv = Scv(FdStream(fd, fd), answer)

    async def serve() -> None:
        await scv.peer.run()
        scv.closed.set()
        scv._tell()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        try:
            yield scv
        finally:
            scv.peer.close()


def start(place: Place, *arguments: str, **options: Any) -> Daemon:
    """Start a server and wait until it says that it serves."""
    errors = place.workspace.parent / f"run-{next(place._starts)}"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*SCV, "run", *arguments],
            cwd=place.workspace,
            env=environment(**place.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            **options,
        )
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert f"process {process.pid}" in line, line + errors.read_text()
    return Daemon(place, process, errors)


@contextmanager
def served(place: Place, *arguments: str, **options: Any) -> Iterator[Daemon]:
    """Serve a place for the block; a test may end the server before."""
    daemon = start(place, *arguments, **options)
    try:
        yield daemon
        if daemon.process.poll() is None:
            assert daemon.stop() == 0
        if daemon.process.returncode >= 0:
            assert not daemon.path.exists()
        assert "Traceback" not in daemon.said()
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        assert daemon.process.stdout is not None
        daemon.process.stdout.close()
        print(daemon.said())  # pytest shows it where the test fails


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


def scv(place: Place, *arguments: str, stdin: str = "", **more: str) -> Done:
    """Run a command of SCV to its end, without a terminal."""
    done = subprocess.run(
        [*SCV, *arguments],
        cwd=place.workspace,
        env=environment(**more),
        input=stdin.encode(),
        capture_output=True,
        timeout=WAIT_SECONDS * 2,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def modules_loaded(place: Place, *arguments: str) -> set[str]:
    """Run a command without input and name the modules it loads."""
    done = scv(place, *arguments, PYTHONPROFILEIMPORTTIME="1")
    assert done.status == 0, done.err
    lines = [line for line in done.err.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}
