"""The other commands of `scv`, and what all of them promise."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from statistics import median

import pytest

from scv import __version__
from tests.cli.kit import ROOT, SCV, WAIT_SECONDS, Place
from tests.fakes.model_server import ModelServer

COMMANDS = (
    *("exec", "server", "run", "attach", "demo", "uninstall"),
    *("sessions", "sessions list", "sessions search", "sessions fork"),
    *("sessions delete", "sessions export", "sessions import"),
    *("approvals", "approvals list", "approvals answer"),
)
HEAVY = ("typer", "rich", "pydantic", "httpx", "prompt_toolkit")


def practice(place: Place, *arguments: str) -> None:
    """Leave a session behind."""
    done = place.run("exec", "--provider", "practice", *arguments)
    assert done.status == 0, done.err


# --- starting ---


def test_version_costs_little_more_than_python_itself(place: Place) -> None:
    def seconds(*argv: str) -> float:
        taken = []
        for _ in range(9):
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *argv], env=place.environment(), capture_output=True
            )
            taken.append(time.perf_counter() - began)
            assert done.returncode == 0
        return median(taken)

    floor = seconds("-c", "pass")

    assert place.run("--version").out == f"scv {__version__}\n"
    assert seconds("-m", "scv", "--version") < 5 * 2 * floor


def test_server_answers_initialize_before_anything_heavy_is_loaded(
    place: Place,
) -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _handshake()}
    )
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "scv", "server", "--stdio"],
        cwd=place.workspace,
        env=place.environment(),
        input=f"Content-Length: {len(body)}\r\n\r\n{body}".encode(),
        capture_output=True,
        timeout=WAIT_SECONDS,
    )

    assert process.returncode == 0
    assert b'"serverInfo"' in process.stdout
    loaded = {
        line.rpartition("|")[2].strip().split(".")[0]
        for line in process.stderr.decode().splitlines()
        if line.startswith("import time:")
    }
    assert "scv" in loaded
    assert loaded & set(HEAVY) == set()


def _handshake() -> dict[str, object]:
    scv = {"protocol": {"major": 1, "minor": 0}, "clientId": "c", "features": {}}
    return {"processId": None, "capabilities": {"experimental": {"scv": scv}}}


def test_help_is_for_newcomers_and_loads_nothing(place: Place) -> None:
    help_text = place.run("--help")

    assert (help_text.status, help_text.err) == (0, "")
    for part in ("scv demo", "scv exec", "sessions", "config", "Examples", "--model"):
        assert part in help_text.out
    assert max(map(len, help_text.out.splitlines())) <= 88
    for command in COMMANDS:
        done = place.run(*command.split(), "--help")
        assert (done.status, done.err) == (0, ""), command
        assert "Usage" in done.out, command
        assert max(map(len, done.out.splitlines())) <= 88, command


def test_closed_pipe_ends_a_command_quietly(place: Place) -> None:
    command = (
        f'{" ".join(SCV)} schema | head -n 1 >/dev/null; echo "${{PIPESTATUS[0]}}"'
    )

    done = subprocess.run(
        ["/bin/bash", "-c", command], env=place.environment(), capture_output=True
    )

    assert done.stderr == b""


def test_errors_never_show_a_trace(place: Place) -> None:
    def check(status: int, *arguments: str) -> None:
        done = place.run(*arguments)
        assert done.status == status, (arguments, done)
        assert "Traceback" not in done.out + done.err
        assert done.err.startswith("scv: "), arguments

    check(2, "sessions", "nonsense")
    check(2, "sessions", "list", "--limit", "zero")
    check(1, "sessions", "show")
    check(1, "sessions", "show", "s_none")
    place.home.mkdir(exist_ok=True)
    (place.home / "config.toml").write_text("[tools]\napproval_polcy = 'x'\n")
    check(2, "config", "show")
    check(2, "exec", "--provider", "practice", "help")
    (place.home / "config.toml").chmod(0o600)
    check(2, "config", "show")
    (place.home / "config.toml").unlink()
    shutil.rmtree(place.home / "state")
    (place.home / "state").write_text("not a directory")
    check(1, "exec", "--provider", "practice", "help")


def test_bad_setting_is_named_with_file_and_remedy(place: Place) -> None:
    place.home.mkdir()
    config = place.home / "config.toml"
    config.write_text("[tools]\napproval_polcy = 'never'\n")
    config.chmod(0o600)

    done = place.run("config", "show")

    for part in (str(config), "tools.approval_polcy", "tools.approval_policy"):
        assert part in done.err


# --- sessions ---


def test_sessions_are_listed_newest_first(place: Place) -> None:
    assert "No sessions yet" in place.run("sessions", "list").out
    practice(place, "help")
    practice(place, "explain")

    shown = place.run("sessions", "list")
    listed = json.loads(place.run("sessions", "list", "--json").out)["sessions"]

    assert [each["title"] for each in listed] == ["explain", "help"]
    assert shown.out.index("explain") < shown.out.index("help")
    assert listed[0]["id"] in shown.out
    assert "\x1b" not in shown.out
    elsewhere = Place(place.home, place.home.parent)
    assert "help" in elsewhere.run("sessions", "list").out
    assert "help" not in elsewhere.run("sessions", "list", "--here").out


def test_session_is_shown_as_a_transcript(place: Place) -> None:
    (place.workspace / "evil\x1b[2J.txt").write_text("x")
    practice(place, "--yes", "list then run echo to-be-seen")
    listed = json.loads(place.run("sessions", "list", "--json").out)["sessions"]
    session_id = listed[0]["id"]

    newest = place.run("sessions", "show")
    by_id = place.run("sessions", "show", session_id)
    by_prefix = place.run("sessions", "show", session_id[:-4])
    whole = json.loads(place.run("sessions", "show", session_id, "--json").out)

    assert newest.out == by_id.out == by_prefix.out
    for part in ("> list then run", "List files", "to-be-seen", "evil\\x1b[2J.txt"):
        assert part in newest.out
    assert "\x1b" not in newest.out
    kinds = {item["kind"] for item in whole["items"]}
    assert kinds == {"user_message", "assistant_message", "tool_call"}
    assert whole["session"]["id"] == session_id


# --- configuration ---


def test_configuration_shows_where_values_come_from_and_no_secret(
    place: Place, model: ModelServer
) -> None:
    (place.home / "config.toml").write_text(
        '[providers.fake]\nmodel = "m"\napi_key = "sk-secret-1"\n'
        'base_url = "https://user:secret-2@example.org/v1"\n'
        'headers = {X-Key = "secret-3"}\n[agent]\nmax_steps = 7\n'
    )
    (place.workspace / ".scv").mkdir()
    (place.workspace / ".scv" / "config.toml").write_text(
        '[agent]\nmax_steps = 5\n[tools]\napproval_policy = "always"\n'
        "[session]\nmax_messages = 99999\n"
    )
    place = Place(place.home, place.workspace, {"SCV_MODEL": "other"})

    done = place.run("config", "show", "--approval-policy", "never", "--model", "mine")

    assert done.status == 0
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert "secret" not in done.out
    assert "(hidden)" in rows["providers.fake.api_key"]
    assert "(hidden)" in rows["providers.fake.headers"]
    assert str(place.home / "config.toml") in rows["providers.fake.model"]
    assert ".scv/config.toml" in rows["agent.max_steps"]
    assert " 5 " in rows["agent.max_steps"]
    assert "command line" in rows["tools.approval_policy"]
    assert "default" in rows["context.max_tokens"]
    assert any("other" in line and "environment" in line for line in rows.values())
    assert any("mine" in line and "command line" in line for line in rows.values())
    assert "session.max_messages is ignored" in done.err


def test_configuration_path_is_alone_on_standard_output(place: Place) -> None:
    done = place.run("config", "path")

    assert done.out == f"{place.home / 'config.toml'}\n"
    assert "does not exist yet" in done.err


def test_schema_is_printed_as_it_is_served(place: Place) -> None:
    done = place.run("schema")

    assert done.status == 0
    text = (ROOT / "scv" / "wire" / "schema.json").read_text()
    assert done.out == text
    json.loads(text)


# --- demo ---


def test_demo_runs_by_itself_without_a_terminal(place: Place) -> None:
    done = place.run("demo")

    assert (done.status, done.err) == (0, "")
    for part in (
        "List files",
        "Search files",
        "Read a file",
        "FAILED",
        "-    return sum(prices) * (100 + discount) / 100",
        "+    return sum(prices) * (100 - discount) / 100",
        "allowed once",
        "OK",
        "denied: not in this demo",
        "The bug is fixed",
        "shop is still there",
    ):
        assert part in done.out, part
    assert "\x1b" not in done.out
    assert not place.home.exists()
    assert list(place.workspace.iterdir()) == []


# --- uninstall ---


def test_uninstall_says_what_there_is_and_removes_nothing(place: Place) -> None:
    practice(place, "help")
    before = sorted(place.home.rglob("*"))

    done = place.run("uninstall")

    assert done.status == 0
    assert "uninstall scv-agent" in done.out
    assert str(place.home / "state") in done.out
    assert sorted(place.home.rglob("*")) == before


def test_purge_asks_first_and_takes_only_what_is_its_own(place: Place) -> None:
    practice(place, "help")
    config = place.home / "config.toml"
    config.touch(mode=0o600)
    (place.home / "notes.txt").write_text("mine")
    outside = place.workspace / "precious.txt"
    outside.write_text("mine too")
    (place.home / "state" / "link").symlink_to(place.workspace)

    unsure = place.run("uninstall", "--purge")
    assert unsure.status == 2
    assert config.exists()

    done = place.run("uninstall", "--purge", "--yes")
    assert done.status == 0
    assert [path.name for path in place.home.iterdir()] == ["notes.txt"]
    assert "notes.txt" in done.out
    assert outside.read_text() == "mine too"

    (place.home / "notes.txt").unlink()
    practice(place, "help")
    assert place.run("uninstall", "--purge", "--yes").status == 0
    assert not place.home.exists()
    assert "no sessions and no configuration" in place.run("uninstall").out


def test_purge_is_refused_while_scv_runs_on_the_data(place: Place) -> None:
    practice(place, "help")
    lock = os.open(place.home / "state" / "store.lock", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        done = place.run("uninstall", "--purge", "--yes")
    finally:
        os.close(lock)

    assert done.status == 1
    assert "running" in done.err
    assert (place.home / "state" / "sessions.db").exists()


@pytest.mark.parametrize("module", ["scv.cli", "scv.__main__", "scv.cli.help"])
def test_importing_the_command_loads_nothing(module: str) -> None:
    code = (
        f"import sys, importlib; sys.argv = ['scv', '--version'];"
        f"before = set(sys.modules)\n"
        f"try: importlib.import_module('{module}')\n"
        f"except SystemExit: pass\n"
        f"print(*(set(sys.modules) - before), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )

    loaded = {name for name in done.stderr.split() if not name.startswith("scv")}
    assert loaded == set()
