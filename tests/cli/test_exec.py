"""`scv exec`: one prompt for scripts and pipes."""

import json
import os
import subprocess
import threading

from tests.cli.kit import SCV, WAIT_SECONDS, Place, commands_of, interrupt
from tests.fakes.model_server import HANG, ModelServer, delta

ESCAPES = "\x1b[2J\x1b]0;owned\x07hi\x9b31m \u202eevil\r\nend"


def test_answer_goes_to_stdout_and_the_status_is_zero(
    place: Place, model: ModelServer
) -> None:
    model.say("two ", "words")

    done = place.run("exec", "hello")

    assert (done.status, done.out, done.err) == (0, "two words\n", "")
    assert model.requests[0].input[-1]["content"] == "hello"


def test_tui_3_output_to_a_pipe(place: Place, model: ModelServer) -> None:
    """Streamed while the model still talks, plain, and the status is right."""
    gate = threading.Event()
    model.say("first piece, ", "second piece", gate=gate)
    with place.start("exec", "hi") as process:
        assert process.stdout is not None

        first = os.read(process.stdout.fileno(), 4096)
        gate.set()
        rest = process.stdout.read()

        assert first == b"first piece, "
        assert first + rest == b"first piece, second piece\n"
        assert process.wait(WAIT_SECONDS) == 0


def test_tui_3_a_failed_turn_is_not_a_success(place: Place, model: ModelServer) -> None:
    model.fail(401, {"error": {"message": "no such key"}})

    done = place.run("exec", "hi")

    assert (done.status, done.out) == (1, "")
    assert "no such key" in done.err
    assert done.err.count("\n") == 1


def test_tui_2_escapes_in_model_text(place: Place, model: ModelServer) -> None:
    model.call("bash", {"command": f"echo '{ESCAPES}'; exit 3"}, text=ESCAPES)
    model.say(*ESCAPES)

    done = place.run("exec", "--yes", "hi")

    for text in (done.out, done.err):
        assert [c for c in text if c < " " and c != "\n"] == []
        assert "\x9b" not in text
        assert "\u202e" not in text
    assert "\\x1b[2J\\x1b]0;owned\\x07hi\\x9b31m \\u202eevil" in done.out
    assert "\\x1b[2J\\x1b]0;owned\\x07hi\\x9b31m \\u202eevil" in done.err


def test_without_a_word_everything_that_asks_is_denied(
    place: Place, model: ModelServer
) -> None:
    model.call("bash", {"command": "touch made"})
    model.say("done")

    done = place.run("exec", "hi")

    assert done.status == 0
    assert not (place.workspace / "made").exists()
    assert "Run a shell command: touch made" in done.err
    assert "denied" in done.err
    assert "--allow process" in done.err


def test_allow_names_the_risks_that_need_no_question(
    place: Place, model: ModelServer
) -> None:
    model.calls(
        ("write", {"path": "a", "content": "x", "mode": "create"}),
        ("bash", {"command": "touch made"}),
    )
    model.say("done")

    done = place.run("exec", "--allow", "filesystem", "hi")

    assert done.status == 0
    assert (place.workspace / "a").exists()
    assert not (place.workspace / "made").exists()


def test_yes_allows_everything(place: Place, model: ModelServer) -> None:
    model.call("bash", {"command": "touch made; exit 4"})
    model.say("done")

    done = place.run("exec", "--yes", "hi")

    assert done.status == 0
    assert (place.workspace / "made").exists()
    assert "touch made; exit 4" in done.err
    assert "exit code 4" in done.err


def test_json_prints_every_event_once_and_the_ranges_tile(
    place: Place, model: ModelServer
) -> None:
    model.call("bash", {"command": "echo hello"})
    model.say("a", "b")

    done = place.run("exec", "--json", "--allow=process", "hi")

    events = done.events()
    assert (done.status, done.err) == (0, "")
    assert len({event["sessionId"] for event in events}) == 1
    last = 0
    for event in events:
        assert event["from"] == last + 1
        last = event["to"]
    types = [event["type"] for event in events]
    assert types.count("turn.ended") == 1
    assert types.index("approval.requested") < types.index("approval.resolved")
    assert events[types.index("turn.ended")]["data"]["status"] == "completed"


def test_prompt_comes_from_standard_input(place: Place, model: ModelServer) -> None:
    model.say("ok")

    done = place.run("exec", "-", stdin="line one\nline two\n")

    assert done.status == 0
    assert model.requests[0].input[-1]["content"] == "line one\nline two\n"


def test_session_goes_on_with_what_was_said(place: Place, model: ModelServer) -> None:
    model.say("first answer")
    model.say("second answer")
    first = place.run("exec", "--json", "first prompt")
    session_id = first.events()[0]["sessionId"]

    second = place.run("exec", "--session", session_id, "second prompt")

    assert (second.status, second.out) == (0, "second answer\n")
    said = [item.get("content") for item in model.requests[1].input]
    assert said[0] == "first prompt"
    assert said[-1] == "second prompt"


def test_unknown_session_is_a_failure_in_one_line(
    place: Place, model: ModelServer
) -> None:
    done = place.run("exec", "--session", "s_none", "hi")

    assert (done.status, done.out) == (1, "")
    assert done.err.count("\n") == 1


def test_provider_of_a_session_is_kept_with_it(place: Place) -> None:
    first = place.run("exec", "--json", "--provider", "practice", "help")
    session_id = first.events()[0]["sessionId"]

    second = place.run("exec", "--session", session_id, "explain")

    assert second.status == 0
    assert second.out


def test_reader_that_leaves_ends_it_quietly(place: Place, model: ModelServer) -> None:
    gate = threading.Event()
    model.raw(delta("first line\n"), gate, *([delta("more\n" * 1000)] * 50), HANG)
    with place.start("exec", "hi", stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None

        assert os.read(process.stdout.fileno(), 4096) == b"first line\n"
        process.stdout.close()
        gate.set()

        assert process.stderr.read() == b""
        assert process.wait(WAIT_SECONDS) == 1


def test_slow_reader_does_not_stop_the_turn(place: Place, model: ModelServer) -> None:
    """200 kB do not fit into a pipe; the turn ends all the same, nothing is lost."""
    text = "0123456789" * 20
    model.say(*([text] * 1000))
    with place.start("exec", "hi") as process:
        assert process.stdout is not None

        (request,) = model.wait_for_requests(1)
        assert request.input
        out = process.stdout.read()

        assert out == (text * 1000 + "\n").encode()
        assert process.wait(WAIT_SECONDS) == 0


def test_tui_4_ctrl_c_cancels_the_turn_and_its_command(
    place: Place, model: ModelServer
) -> None:
    model.call("bash", {"command": "echo started > started; sleep 63.5"})
    with place.start("exec", "--yes", "--json", "hi") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, b"")
        for line in lines:
            event = json.loads(line)
            patch = event["data"].get("patch", {})
            if event["type"] == "item.updated" and patch.get("status") == "in_progress":
                break

        interrupt(process)
        events = [json.loads(line) for line in lines]

        assert process.wait(WAIT_SECONDS) == 130
        ended = [event for event in events if event["type"] == "turn.ended"]
        assert [event["data"]["status"] for event in ended] == ["cancelled"]
        assert ["sleep", "63.5"] not in commands_of(place)


def test_wrong_command_lines_say_so_in_one_line(place: Place) -> None:
    def check(*arguments: str) -> None:
        done = place.run(*arguments)
        assert (done.status, done.out) == (2, ""), arguments
        assert done.err.startswith("scv: "), arguments
        assert done.err.count("\n") == 1, arguments

    check("exec")
    check("exec", "two", "prompts")
    check("exec", "--bogus", "x")
    check("exec", "--allow", "everything", "x")
    check("exec", "--model")
    check("exec", "--approval-policy", "maybe", "x")
    check("exec", "  ")
    check("server")
    check("server", "--stdio", "more")
    check("nonsense")


def test_missing_model_names_the_lines_to_write_and_practice(place: Place) -> None:
    done = place.run("exec", "hi")

    assert (done.status, done.out) == (2, "")
    for part in ("config.toml", "provider.active", ".model", "--provider practice"):
        assert part in done.err


def test_global_options_stand_on_either_side(place: Place, model: ModelServer) -> None:
    model.say("ok")
    model.say("ok")

    before = place.run("--model", "other-1", "exec", "hi")
    after = place.run("exec", "hi", "--model=other-2")

    assert (before.status, after.status) == (0, 0)
    used = [request.json["model"] for request in model.requests]
    assert used == ["other-1", "other-2"]


def test_policy_never_denies_even_with_yes(place: Place, model: ModelServer) -> None:
    model.call("bash", {"command": "touch made"})
    model.say("done")

    done = place.run("exec", "--yes", "--approval-policy", "never", "hi")

    assert done.status == 0
    assert not (place.workspace / "made").exists()
    assert "denied" in done.err


def test_closed_standard_streams_harm_nothing(place: Place, model: ModelServer) -> None:
    """What is opened later must not become standard output by accident."""
    model.call("bash", {"command": "echo made > made"})
    model.say("an answer that nobody reads")
    command = '"$0" "$@" <&- >&- 2>&-'

    done = subprocess.run(
        ["/bin/sh", "-c", command, *SCV, "exec", "--yes", "hi"],
        cwd=place.workspace,
        env=place.environment(),
        timeout=WAIT_SECONDS,
    )

    assert done.returncode == 0
    assert (place.workspace / "made").read_text() == "made\n"
    shown = place.run("sessions", "show")
    assert "an answer that nobody reads" in shown.out
