"""The socket and its server: who may reach it, how it begins and how it ends."""

import os
import signal
import stat
import subprocess
import sys
import threading

import anyio
import psutil
import pytest

from scv.host.procfs import start_time
from scv.host.sockets import connect
from scv.rpc import RemoteError
from tests.daemon.kit import Daemon, scv, served, speaking
from tests.fakes.model_server import completed, delta, done, message
from tests.server.kit import ALLOW, WAIT_SECONDS, Json, Place, Scv

pytestmark = pytest.mark.anyio

CONNECTIONS = 32
STARTS = 4


def test_life_4_socket_permission_from_the_first_instant(place: Place) -> None:
    seen: set[tuple[str, int]] = set()
    is_over = threading.Event()
    homes = [place.home.parent / f"home-{number}" for number in range(STARTS)]
    paths = [path for home in homes for path in (home, home / "server.sock")]

    def look() -> None:
        while not is_over.is_set():
            for path in paths:
                try:
                    mode = os.lstat(path).st_mode
                except FileNotFoundError:
                    continue
                seen.add((stat.filemode(mode)[0], stat.S_IMODE(mode)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for home in homes:
            there = Place(home, place.workspace, place.model)
            with served(there, "--scv-home", str(home), umask=0):
                pass
    finally:
        is_over.set()
        watcher.join()

    assert seen == {("d", 0o700), ("s", 0o600)}


async def test_life_5_stale_socket_file(place: Place) -> None:
    with served(place) as killed:
        async with speaking(killed.connect(), ALLOW):
            killed.process.kill()
            killed.process.wait()
        assert stat.S_ISSOCK(killed.path.lstat().st_mode)

        with served(place) as daemon:
            async with daemon.front_end() as front_end:
                place.model.say("hello")
                session = await front_end.create()

                assert (await session.prompt())["status"] == "completed"


@pytest.mark.parametrize("started_as_recorded", [True, False])
def test_life_6_recycled_pid_in_a_pid_file(
    place: Place, started_as_recorded: bool
) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleep:
        started = start_time(sleep.pid) if started_as_recorded else 1
        record = f"{sleep.pid} {started}\n"
        lock = place.home / "server.lock"
        lock.write_text(record)

        with served(place) as daemon:
            assert lock.read_text().split()[0] == str(daemon.process.pid)
            lock.write_text(record)
            second = scv(place, "run")
            assert daemon.process.poll() is None

        assert second.status == 1
        assert sleep.poll() is None
        sleep.kill()


def test_a_second_server_is_told_who_serves(daemon: Daemon) -> None:
    second = scv(daemon.place, "run")

    assert second.status == 1
    assert f"process {daemon.process.pid} already serves" in second.err
    assert second.err.count("\n") == 1
    daemon.connect().close()


def test_what_is_no_socket_is_left_alone(place: Place) -> None:
    path = place.home / "server.sock"
    path.write_text("precious")

    refused = scv(place, "run")

    assert refused.status == 1
    assert "no socket" in refused.err
    assert path.read_text() == "precious"


def test_a_home_with_a_long_path_is_served(place: Place) -> None:
    home = place.home.joinpath(*(["a-rather-long-name"] * 8))
    there = Place(home, place.workspace, place.model)

    with served(there, "--scv-home", str(home), "--provider", "practice"):
        done = scv(there, "exec", "--attach", "list", SCV_HOME=str(home))
        piped = scv(there, "attach", "--stdio", SCV_HOME=str(home))

    assert (done.status, piped.status) == (0, 0), done.err + piped.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_another_user_is_not_served(daemon: Daemon) -> None:
    """Even one who may pass every directory, as this capability allows."""
    code = f"""
import ctypes, os, socket, struct
data = (ctypes.c_uint32 * 6)()
os.seteuid(65534)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.capget(header, data) == 0
data[0], data[3] = data[1], data[4]
assert libc.capset(header, data) == 0
client = socket.socket(socket.AF_UNIX)
client.connect({str(daemon.path)!r})
client.settimeout(30)
try:
    client.sendall(b"Content-Length: 2\\r\\n\\r\\n{{}}")
    print("answered" if client.recv(1) else "closed")
except OSError:
    print("closed")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "closed\n", done.stderr
    assert "user 65534" in daemon.said()


async def test_rpc_9_huge_declared_length(daemon: Daemon) -> None:
    place = daemon.place
    async with daemon.front_end() as other:
        session = await other.create()
        before = psutil.Process(daemon.process.pid).memory_info().rss
        with daemon.connect() as attacker:
            attacker.settimeout(WAIT_SECONDS)
            attacker.sendall(b"Content-Length: 99999999999\r\n\r\n")
            answer = b""
            while data := attacker.recv(4096):
                answer += data

        assert b"4261" in answer
        grown = psutil.Process(daemon.process.pid).memory_info().rss - before
        assert grown < 64 * 1024 * 1024
        await session.works(place.model)


@pytest.mark.parametrize("goodbye", ["shutdown and exit", "exit", "just gone"])
async def test_leaving_ends_that_connection_only(daemon: Daemon, goodbye: str) -> None:
    model = daemon.place.model
    gate = threading.Event()
    steps = [delta("a"), gate, delta("b"), done(message("ab")), completed()]
    model.raw(*steps)
    async with daemon.front_end(client_id="stays") as stays:
        async with daemon.front_end(client_id="leaves") as leaves:
            session = await leaves.create()
            turn = await session.start()
            follower, _ = await stays.attach(session.id)
            if goodbye == "shutdown and exit":
                await leaves.peer.request("shutdown")
            if goodbye != "just gone":
                leaves.peer.notify("exit")
                with anyio.fail_after(WAIT_SECONDS):
                    await leaves.closed.wait()
        while len(await _clients(stays, session.id)) > 1:
            continue
        gate.set()

        assert (await follower.end(turn))["status"] == "completed"


async def _clients(scv: Scv, session_id: str) -> list[Json]:
    snapshot = await scv.call("session/get", sessionId=session_id)
    clients: list[Json] = snapshot["clients"]
    return clients


async def test_one_connection_too_many_is_told_so(daemon: Daemon) -> None:
    async with daemon.front_end() as first:
        others = [daemon.connect() for _ in range(CONNECTIONS - 1)]
        async with speaking(daemon.connect(), ALLOW) as refused:
            with pytest.raises(RemoteError) as caught:
                await refused.initialize()
            await refused.closed.wait()
        assert caught.value.code == 4262
        assert caught.value.data["limit"] == "connections"
        assert first.handshake["limits"]["connections"] == CONNECTIONS

        for each in others:
            each.close()
        await first.call("session/list")
        while True:  # the server has seen them leave when one may come
            async with speaking(daemon.connect(), ALLOW) as late:
                try:
                    await late.initialize()
                except RemoteError:
                    continue
                break


async def test_the_handshake_names_the_socket_and_no_process_is_watched(
    daemon: Daemon,
) -> None:
    """Through `ssh host scv attach --stdio` the number is one of another host."""
    gone = await anyio.run_process(["sh", "-c", "echo $$"])
    async with speaking(daemon.connect(), ALLOW) as front_end:
        scv_block = {"protocol": {"major": 1, "minor": 0}, "clientId": "far"}
        result = await front_end.peer.request(
            "initialize",
            {
                "processId": int(gone.stdout),
                "capabilities": {"experimental": {"scv": scv_block}},
            },
        )
        front_end.peer.notify("initialized", {})

        handshake = result["capabilities"]["experimental"]["scv"]
        assert handshake["transport"] == "unix"
        assert (await front_end.call("session/list"))["sessions"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_the_server_in_good_order(
    place: Place, number: signal.Signals
) -> None:
    child = place.workspace / "child"
    place.model.call("bash", {"command": f"echo $$ > {child}; echo on; exec sleep 600"})
    with served(place) as daemon:
        async with daemon.front_end() as front_end:
            session = await front_end.create()
            turn = await session.start()
            await session.state(turn, "tools")
            await front_end.until(child.exists)
            daemon.process.send_signal(number)
            ended = await session.end(turn)
            with anyio.fail_after(WAIT_SECONDS):
                await front_end.closed.wait()

        assert (ended["status"], ended["stopReason"]) == ("cancelled", "server_stopped")
        assert daemon.wait() == 0
        assert not daemon.path.exists()
        assert not psutil.pid_exists(int(child.read_text()))

    with served(place) as daemon:
        async with daemon.front_end() as front_end:
            again, _ = await front_end.attach(session.id)
            calls = [
                each for each in await again.history() if each["kind"] == "tool_call"
            ]
            turn_view = await front_end.call(
                "turn/get", sessionId=session.id, turnId=turn
            )

            assert [each["status"] for each in calls] == ["cancelled"]
            assert turn_view["turn"]["stopReason"] == "server_stopped"
            await again.works(place.model)


async def test_a_server_that_stops_takes_no_new_work(place: Place) -> None:
    ready = place.workspace / "ready"
    stubborn = f"trap '' TERM; touch {ready}; echo on; while :; do sleep 0.05; done"
    place.model.call("bash", {"command": stubborn})
    with served(place) as daemon:
        async with daemon.front_end() as front_end:
            busy, idle = await front_end.create(), await front_end.create()
            turn = await busy.start()
            await front_end.until(ready.exists)
            daemon.process.terminate()
            await busy.state(turn, "cancelling")
            refusal = await front_end.refused(
                "turn/start", sessionId=idle.id, input=[{"type": "text", "text": "go"}]
            )

            assert refusal.code == 4251
            assert refusal.data["retryable"] is True
            assert connect(str(daemon.path)) is None
            assert (await busy.end(turn))["stopReason"] == "server_stopped"
        assert daemon.wait() == 0


def test_a_server_under_nohup_outlives_its_terminal(place: Place) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with served(place, preexec_fn=ignore) as daemon:
        daemon.process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert scv(place, "sessions", "list").status == 0
        assert daemon.process.poll() is None


async def test_idle_sessions_do_not_use_up_descriptors(daemon: Daemon) -> None:
    process = psutil.Process(daemon.process.pid)
    async with daemon.front_end() as front_end:
        first = await front_end.create(attach=False)
        for _ in range(150):
            await front_end.create(attach=False)

        assert process.num_fds() < 110
        again, _ = await front_end.attach(first.id)
        await again.works(daemon.place.model)


async def test_a_session_of_the_server_is_refused_elsewhere_with_a_hint(
    daemon: Daemon,
) -> None:
    async with daemon.front_end() as front_end:
        session = await front_end.create()
        async with daemon.place.server() as other:
            refusal = await other.refused("session/attach", sessionId=session.id)

    assert refusal.code == 4240
    assert refusal.data["pid"] == daemon.process.pid
    assert refusal.data["hint"] == "attach"
