"""SCV mends its own source: the whole job on a real repository, judged from outside.

The model is scripted, but neither the failing test, nor the file and line of the
fault are in the script: it takes them from what the tools told it.
"""

import json
from typing import Any

import pytest

from tests.cli.kit import Done, Place
from tests.cli.terminal import ENTER, Terminal
from tests.journey.checkout import BROKEN_FILE, RIGHT, WRONG, Checkout
from tests.journey.script import SCRIPT, Practice
from tests.server import kit as server_kit

Json = dict[str, Any]
PROMPT = "One of the quick tests fails. Find out why and mend it."
TOOLS = ["bash", "search", "read", "search", "edit", "bash"]
ASKED = ["bash", "edit", "bash"]

pytestmark = [pytest.mark.needs_program("git"), pytest.mark.needs_program("bash")]


def check_questions(checkout: Checkout, approvals: list[Json]) -> None:
    """Every effect was shown exactly, and there was no other effect."""
    workspace = str(checkout.workspace.resolve())
    first, change, second = approvals
    assert [approval["tool"] for approval in approvals] == ASKED
    assert not any(approval["shortened"] for approval in approvals)
    assert {approval["workspace"] for approval in approvals} == {workspace}

    shown = [first["subject"], second["subject"]]
    assert [subject["command"] for subject in shown] == checkout.commands()
    assert checkout.runs() == [f"{s['cwd']}: {s['command']}" for s in shown]

    (file,) = change["subject"]["files"]
    assert (file["path"], file["op"]) == (BROKEN_FILE, "replace")
    changed = (checkout.workspace / BROKEN_FILE).read_text()
    assert checkout.applied(file["patch"]) == changed


def check_transcript(
    items: list[Json], approvals: list[Json], *, line: int, checkout: Checkout
) -> None:
    """The stored items tell the prompt, every call with its question, the report."""
    assert items[0]["kind"] == "user_message"
    assert items[0]["parts"] == [{"type": "text", "text": PROMPT}]
    calls = [item for item in items if item["kind"] == "tool_call"]
    assert [call["name"] for call in calls] == TOOLS
    assert [call["status"] for call in calls] == ["failed", *["completed"] * 5]
    asked = [call for call in calls if "approvalId" in call]
    assert [call["approvalId"] for call in asked] == [
        approval["approvalId"] for approval in approvals
    ]
    commands = [call["arguments"].get("command") for call in asked]
    assert [text for text in commands if text] == checkout.commands()
    said = [item["text"] for item in items if item["kind"] == "assistant_message"]
    assert len(said) == len(SCRIPT)
    assert said[-1].startswith(checkout.report(line)), said[-1]
    assert said[-1].endswith(" passed."), said[-1]


def turn_and_questions(done: Done) -> tuple[Json, list[Json], list[str]]:
    """Find in the events how the turn ended, what was asked, what was decided."""
    events = done.events()
    assert events[-1]["type"] == "turn.ended"
    approvals = [
        event["data"]["approval"]
        for event in events
        if event["type"] == "approval.requested"
    ]
    resolved = [
        event["data"] for event in events if event["type"] == "approval.resolved"
    ]
    assert [each["approvalId"] for each in resolved] == [
        approval["approvalId"] for approval in approvals
    ]
    decisions = [each["decision"] for each in resolved]
    return events[-1]["data"], approvals, decisions


@pytest.mark.usefixtures("practice")
def test_exec_mends_a_checkout_and_prints_every_event(
    checkout: Checkout, place: Place
) -> None:
    line = checkout.broken_line()

    done = place.run("exec", "--json", "--allow", "filesystem,process", PROMPT)

    assert (done.status, done.err) == (0, "")
    checkout.assert_mended()
    turn, approvals, decisions = turn_and_questions(done)
    assert turn["status"] == "completed"
    assert decisions == ["allowed"] * len(ASKED)
    check_questions(checkout, approvals)
    stored = json.loads(place.run("sessions", "show", "--json").out)
    check_transcript(stored["items"], approvals, line=line, checkout=checkout)


@pytest.mark.usefixtures("practice")
def test_exec_without_a_word_runs_and_changes_nothing(
    checkout: Checkout, place: Place
) -> None:
    """The first command is denied, and the script has nothing to go on."""
    done = place.run("exec", "--json", PROMPT)

    _, approvals, decisions = turn_and_questions(done)
    assert [asked["subject"]["command"] for asked in approvals] == (
        checkout.commands()[:1]
    )
    assert decisions == ["denied"]
    assert checkout.runs() == []
    assert checkout.is_broken()


@pytest.mark.anyio
async def test_raw_protocol_mends_a_checkout_one_answer_at_a_time(
    checkout: Checkout, practice: Practice, place: Place
) -> None:
    """Before each answer nothing has happened that was not allowed before."""
    line = checkout.broken_line()
    server = server_kit.Place(
        place.home, checkout.workspace, practice, place.environment()
    )

    async with server.server(server_kit.HOLD) as scv:
        session = await scv.create()
        turn_id = await session.start(PROMPT)

        first = await scv.question(0)
        assert checkout.runs() == []
        first.reply(first.decision("once"))

        change = await scv.question(1)
        assert len(checkout.runs()) == 1
        assert checkout.is_broken()
        change.reply(change.decision("once"))

        second = await scv.question(2)
        assert len(checkout.runs()) == 1
        assert checkout.changes() == []
        second.reply(second.decision("once"))

        turn = await session.end(turn_id)
        assert turn["status"] == "completed"
        items = await session.history()

    checkout.assert_mended()
    approvals = [question.approval for question in scv.questions]
    check_questions(checkout, approvals)
    check_transcript(items, approvals, line=line, checkout=checkout)


@pytest.mark.usefixtures("practice")
def test_terminal_mends_a_checkout_with_a_person_who_answers(
    checkout: Checkout, place: Place
) -> None:
    """What a person sees before each answer is what then happens, and nothing else."""
    line = checkout.broken_line()
    first, second = checkout.commands()

    with Terminal(place, columns=200) as terminal:
        terminal.wait_for("ready")
        terminal.type(f"{PROMPT}{ENTER}")

        seen = terminal.wait_for("Run a shell command?  [y] allow once")
        assert f"│ {first} " in seen
        assert checkout.runs() == []
        terminal.type("y")

        seen = terminal.wait_for("Change a file?  [y] allow once")
        assert f"-        {WRONG}" in seen
        assert f"+        {RIGHT}" in seen
        assert checkout.is_broken()
        terminal.type("y")

        seen = terminal.wait_for("Run a shell command?  [y] allow once")
        assert f"│ {second} " in seen
        assert checkout.changes() == []
        assert len(checkout.runs()) == 1
        terminal.type("y")

        terminal.wait_for("ready")
        terminal.type(f"/quit{ENTER}")
        assert terminal.wait_for_end() == 0
        seen = terminal.text

    checkout.assert_mended()
    assert len(checkout.runs()) == 2
    assert seen.count("→ allowed once") == len(ASKED)
    assert checkout.report(line) in seen
