"""The practice model as a session meets it: over HTTP, through the real client."""

import json
import random

import anyio
import httpx
import pytest

from scv.config.settings import Profile, ProviderLimits
from scv.core.history import OutputEntry, UserEntry
from scv.core.ports import ModelRequest, TextDelta, ToolSpec
from scv.providers import ModelEndpoints
from scv.providers.practice import commands
from scv.providers.practice.commands import HELP, split_commands
from scv.providers.practice.conversation import Conversation
from scv.providers.practice.server import PracticeServer
from tests.providers.asking import TOOLS, Outcome, ask_model

pytestmark = pytest.mark.anyio

DONE = '{"exit_code": 0}'


def open_practice(endpoints):
    return endpoints.open_model(
        "practice",
        Profile(wire_api="practice"),
        limits=ProviderLimits(),
        model_name=None,
        environment={},
    )


async def play(prompt, *outputs, tools=TOOLS, history=()):
    """Run a prompt to its report; returns the calls and the report."""
    given, calls = iter(outputs), []
    history = [*history, UserEntry(prompt)]
    async with ModelEndpoints() as endpoints:
        model = open_practice(endpoints)
        for _ in range(20):
            outcome = Outcome()
            async for event in model.respond(ModelRequest("", history, tools, "s_1")):
                outcome.events.append(event)
            message = outcome.done.message
            if not message.calls:
                return calls, message.text
            assert len(message.calls) == 1
            (call,) = message.calls
            calls.append((call.name, json.loads(call.arguments)))
            history.append(message)
            history.append(OutputEntry(call.call_id, call.name, next(given, DONE)))
    raise AssertionError("no report")


@pytest.mark.parametrize(
    ("prompt", "call"),
    [
        ("read a b.py", ("read", {"path": "a b.py"})),
        ("READ a.py", ("read", {"path": "a.py"})),
        ("list", ("list", {})),
        ("list **/*.py", ("list", {"glob": "**/*.py"})),
        ('search "def main"', ("search", {"pattern": "def main"})),
        (
            r'search "say \"x\"" in src',
            ("search", {"pattern": 'say "x"', "path": "src"}),
        ),
        ("run ls -l | wc -l", ("bash", {"command": "ls -l | wc -l"})),
        ("run echo now then read", ("bash", {"command": "echo now then read"})),
        ("run sh -c 'a then run b'", ("bash", {"command": "sh -c 'a then run b'"})),
    ],
)
async def test_each_command_calls_its_tool(prompt, call):
    calls, report = await play(prompt)

    assert calls == [call]
    assert "done" in report


async def test_commands_run_one_after_the_other_and_are_reported():
    calls, report = await play(
        'read a.py then search "x then list" in src THEN run make\n\nlist',
        '{"total_bytes": 12, "content": "x"}',
        "error: no such file",
        '{"exit_code": 2, "output": "boom"}',
        "denied: a person said no",
    )

    assert [name for name, _ in calls] == ["read", "search", "bash", "list"]
    assert calls[1][1] == {"pattern": "x then list", "path": "src"}
    assert report.splitlines() == [
        "- read a.py: done, 12 bytes",
        "- search x then list: failed: error: no such file",
        "- run make: failed, exit code 2",
        "- list: denied: a person said no",
    ]


async def test_replace_reads_first_and_edits_with_what_it_read():
    sha256 = "ab" * 32
    calls, report = await play(
        r'replace "a\nb \"q\" \\" with "" in x.py', json.dumps({"sha256": sha256}), DONE
    )

    assert calls == [
        ("read", {"path": "x.py"}),
        (
            "edit",
            {
                "path": "x.py",
                "edits": [{"old": 'a\nb "q" \\', "new": ""}],
                "expected_sha256": sha256,
            },
        ),
    ]
    assert report == "- replace in x.py: done"


async def test_replace_stops_when_the_file_cannot_be_read():
    calls, report = await play('replace "a" with "b" in x', "error: not found")

    assert [name for name, _ in calls] == ["read"]
    assert "failed" in report


async def test_write_creates_and_replaces_what_exists():
    calls, report = await play("write a/b.txt: hello", "error: a/b.txt exists", DONE)

    assert calls == [
        ("write", {"path": "a/b.txt", "content": "hello\n", "mode": "create"}),
        ("write", {"path": "a/b.txt", "content": "hello\n", "mode": "replace"}),
    ]
    assert report == "- write a/b.txt: done"


async def test_a_denied_write_is_not_tried_again():
    calls, report = await play("write a: x", "denied: it exists already, they say")

    assert len(calls) == 1
    assert "denied" in report


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('"a\\nb"', "a\nb"),
        ("a\\nb", "a\nb\n"),
        ('"x"', "x"),
        ("", ""),
        ("a: b", "a: b\n"),
    ],
)
async def test_write_takes_plain_and_quoted_text(text, content):
    calls, _ = await play(f"write f: {text}")

    assert calls[0][1]["content"] == content


async def test_other_tools_are_called_when_they_are_offered():
    tools = [ToolSpec(n, "", {}) for n in ("web_fetch", "agent_claude", "ask")]
    calls, report = await play(
        'fetch https://h/ then delegate claude: fix it then ask "why?"',
        DONE, DONE, "because", tools=tools,
    )  # fmt: skip

    assert calls == [
        ("web_fetch", {"url": "https://h/"}),
        ("agent_claude", {"prompt": "fix it"}),
        ("ask", {"question": "why?"}),
    ]
    assert "because" in report


async def test_a_tool_that_is_not_offered_is_named_and_never_called():
    calls, report = await play("fetch https://h/ then list then delegate x: y")

    assert [name for name, _ in calls] == ["list"]
    assert "web_fetch is not offered" in report
    assert "agent_x is not offered" in report


@pytest.mark.parametrize(
    "prompt", ["hello", "please fix the bug", "read", "read a\nfix b"]
)
async def test_anything_else_says_what_it_is_and_shows_help(prompt):
    calls, report = await play(prompt)

    assert calls == []
    assert "not a language model" in report
    assert HELP in report


async def test_help_and_explain():
    assert HELP in (await play("help"))[1]
    text = (await play("explain"))[1]
    assert "bash, edit, list, read, search, write" in text
    assert "not a language model" in text


async def test_earlier_prompts_are_not_run_again():
    calls, report = await play("run two", history=[UserEntry("run first")])

    assert calls == [("bash", {"command": "two"})]
    assert "first" not in report


async def test_the_same_input_gives_the_same_answer_in_small_pieces():
    async with ModelEndpoints() as endpoints:
        model = open_practice(endpoints)
        first = await ask_model(model, UserEntry("help"))
        again = await ask_model(model, UserEntry("help"))

    assert first.text == again.text
    assert first.done.message.wire == "practice"
    assert all(len(e.text) > 0 for e in first.events if isinstance(e, TextDelta))


@pytest.mark.parametrize(
    ("method", "path", "body", "key", "status"),
    [
        ("GET", "/models", None, "right", 200),
        ("GET", "/models", None, "wrong", 401),
        ("GET", "/models", None, None, 401),
        ("GET", "/other", None, "right", 404),
        ("POST", "/responses", "no json", "right", 400),
        ("POST", "/responses", "[]", "right", 400),
    ],
)
async def test_the_server_is_loopback_and_wants_its_token(
    method, path, body, key, status
):
    server = PracticeServer()
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        assert server.base_url.startswith("http://127.0.0.1:")
        given = {"right": server.token, "wrong": "x"}.get(key)
        headers = {"authorization": f"Bearer {given}"} if given else {}
        async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
            reply = await client.request(method, server.base_url + path, content=body)
            assert reply.status_code == status
            assert ("error" in reply.json()) == (status != 200)
            tasks.cancel_scope.cancel()

    async with httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get(server.base_url)


async def test_leaving_the_block_ends_the_server_whatever_ended_the_block():
    async def fail():
        async with ModelEndpoints() as endpoints:
            await ask_model(open_practice(endpoints), UserEntry("help"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

    with anyio.CancelScope() as scope:
        async with ModelEndpoints() as endpoints:
            await ask_model(open_practice(endpoints), UserEntry("help"))
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught


def test_splitting_keeps_every_character_outside_joints(seed):
    dice = random.Random(seed)
    words = ["then", '"a then read b"', "read x", "run y", "  ", "list", "then read"]
    for _ in range(200):
        line = " ".join(dice.choices(words, k=6))
        joined = "".join("".join(split_commands(line)).split())
        assert set(joined) <= set(line)
        assert joined.replace("then", "") == "".join(line.split()).replace("then", "")


def test_random_prompts_never_break_the_language(seed):
    dice = random.Random(seed)
    parts = ["read", "write", "a:", '"', "\\", " then ", "replace", "with", "in", "\n"]
    for _ in range(500):
        prompt = " ".join(dice.choices(parts, k=8))
        answer = commands.answer(Conversation(prompt, (), frozenset(), "m"))
        assert answer.text
