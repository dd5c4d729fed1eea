"""Commands that use the running server."""

import json
import os
import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.daemon.kit import SCV, Daemon, Done, environment, modules_loaded, scv
from tests.server.kit import HOLD, WAIT_SECONDS, Json
from tests.test_layout import HEAVY

Process = subprocess.Popen[bytes]

pytestmark = pytest.mark.anyio


def start_exec(daemon: Daemon, *options: str, **streams: int) -> Process:
    """Start a prompt that may do anything."""
    return subprocess.Popen(
        [*SCV, "exec", "--attach", "--yes", *options, "go"],
        cwd=daemon.place.workspace,
        env=environment(),
        **{"stdout": subprocess.PIPE, **streams},  # type: ignore[call-overload]
    )


def await_progress(process: Process) -> None:
    """Read events until the command tells something."""
    assert process.stdout is not None
    while b'"progress"' not in (line := process.stdout.readline()):
        assert line, "it ended before the command ran"


def events(done: Done) -> list[Json]:
    return [json.loads(line) for line in done.out.splitlines()]


def owner(daemon: Daemon, session_id: str) -> int:
    """Name the process that has a session open."""
    lock = daemon.place.home / "state" / "locks" / session_id
    return int(lock.read_text().split()[0])


def test_exec_attach_runs_in_the_server(daemon: Daemon) -> None:
    model = daemon.place.model
    model.call("bash", {"command": "echo $MARK > marked"})
    model.say("all ", "done")

    done = scv(daemon.place, "exec", "--attach", "--yes", "go", MARK="from here")

    assert (done.status, done.out) == (0, "all done\n")
    assert "echo $MARK" in done.err
    assert (daemon.place.workspace / "marked").read_text() == "from here\n"
    [lock] = (daemon.place.home / "state" / "locks").iterdir()
    assert owner(daemon, lock.name) == daemon.process.pid


def test_exec_attach_denies_what_is_not_allowed(daemon: Daemon) -> None:
    daemon.place.model.call("write", {"path": "a", "content": "b", "mode": "create"})
    daemon.place.model.say("denied, then")

    done = scv(daemon.place, "exec", "--attach", "--allow", "process", "go")

    assert done.status == 0
    assert "denied: nobody to ask" in done.err
    assert not (daemon.place.workspace / "a").exists()


def test_exec_with_a_session_of_the_server_goes_on_there(daemon: Daemon) -> None:
    model = daemon.place.model
    model.say("first")
    first = events(scv(daemon.place, "exec", "--attach", "--json", "one"))
    model.say("second")

    done = scv(
        daemon.place, "exec", "--json", "--session", first[0]["sessionId"], "two"
    )

    second = events(done)
    assert done.status == 0, done.err
    assert {each["sessionId"] for each in second} == {first[0]["sessionId"]}
    assert "one" in json.dumps(model.requests[1].input)
    numbers = [(each["from"], each["to"]) for each in first]
    assert numbers[0][0] == 1
    ranges = sorted(set(numbers))
    assert all(a[1] + 1 == b[0] for a, b in pairwise(ranges))


def test_exec_attach_follows_a_long_answer_through_a_slow_reader(
    daemon: Daemon,
) -> None:
    """More than the server keeps for a connection: it is fetched from the log."""
    pieces = [f"{number:07d} {'x' * 500}" for number in range(16_000)]
    names = ("max_response_bytes", "max_assistant_bytes", "max_sse_event_bytes")
    limits = "\n".join(f"{name} = 67108864" for name in names)
    daemon.place.configure(f"[provider_limits]\n{limits}")
    daemon.place.model.say(*pieces)
    with start_exec(daemon) as process:
        assert process.stdout is not None
        head = process.stdout.read(8)
        while scv(daemon.place, "sessions", "list", "--json").out.count("idle") == 0:
            continue  # the turn ends without its reader
        out = head + process.stdout.read()

        assert process.wait(WAIT_SECONDS) == 0
    assert out.decode() == "".join(pieces) + "\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupting_exec_attach_cancels_its_turn(
    daemon: Daemon, number: int
) -> None:
    started = daemon.place.workspace / "started"
    command = f"touch {started}; echo on; exec sleep 600"
    daemon.place.model.call("bash", {"command": command})
    async with daemon.front_end(HOLD) as other:
        with start_exec(daemon, "--json") as process:
            assert process.stdout is not None
            await_progress(process)
            process.send_signal(number)
            rest = process.stdout.read().decode().splitlines()

            assert process.wait(WAIT_SECONDS) == 130
        last = json.loads(rest[-1])
        assert last["type"] == "turn.ended"
        assert (last["data"]["status"], last["data"]["stopReason"]) == (
            "cancelled",
            "interrupted",
        )
        listed = await other.call("session/list")
        assert [each["state"] for each in listed["sessions"]] == ["idle"]


def test_exec_attach_ends_when_nobody_reads_its_output(daemon: Daemon) -> None:
    daemon.place.model.call("bash", {"command": "echo on; exec sleep 600"})
    reading, writing = os.pipe()
    os.close(reading)
    with start_exec(daemon, "--json", stdout=writing) as process:
        os.close(writing)
        assert process.wait(WAIT_SECONDS) == 1


def test_exec_attach_says_when_the_server_stops(daemon: Daemon, tmp_path: Path) -> None:
    daemon.place.model.call("bash", {"command": "echo on; exec sleep 600"})
    with start_exec(daemon, "--json") as process:
        assert process.stdout is not None
        await_progress(process)
        assert daemon.stop() == 0
        rest = process.stdout.read().decode().splitlines()

        assert process.wait(WAIT_SECONDS) == 1
    assert json.loads(rest[-1])["data"]["stopReason"] == "server_stopped"


def test_exec_attach_without_a_server(place: object) -> None:
    done = scv(place, "exec", "--attach", "go")  # type: ignore[arg-type]

    assert done.status == 1
    assert "scv run" in done.err
    assert done.err.count("\n") == 1


def test_a_configuration_of_ones_own_needs_a_server_of_ones_own(
    daemon: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "more.toml"
    file.touch(mode=0o600)

    refused = scv(daemon.place, "--config", str(file), "exec", "--attach", "go")
    daemon.place.model.say("mine")
    own = scv(daemon.place, stdin="go", SCV_CONFIG=str(file))

    assert refused.status == 2
    assert own.status == 0, own.err
    assert list((daemon.place.home / "state" / "locks").iterdir()) == []


def test_the_approval_policy_of_the_command_line_holds_in_the_server(
    daemon: Daemon,
) -> None:
    daemon.place.model.call("write", {"path": "a", "content": "b", "mode": "create"})
    daemon.place.model.say("denied, then")

    done = scv(
        daemon.place, "--approval-policy", "never", "exec", "--attach", "--yes", "go"
    )

    assert done.status == 0, done.err
    assert not (daemon.place.workspace / "a").exists()


def test_the_terminal_uses_the_server(daemon: Daemon) -> None:
    daemon.place.model.say("hello")

    done = scv(daemon.place, stdin="a prompt")

    assert (done.status, done.out) == (0, "hello\n"), done.err
    [lock] = (daemon.place.home / "state" / "locks").iterdir()
    assert owner(daemon, lock.name) == daemon.process.pid
    listed = scv(daemon.place, "sessions", "list", "--json")
    assert [each["title"] for each in json.loads(listed.out)["sessions"]] == [
        "a prompt"
    ]
    assert "hello" in scv(daemon.place, "sessions", "show", lock.name).out


def test_exec_attach_loads_nothing_heavy(daemon: Daemon) -> None:
    daemon.place.model.say("done")

    loaded = modules_loaded(daemon.place, "exec", "--attach", "go")

    assert "scv.cli.attached" in loaded
    assert loaded & HEAVY == set()
