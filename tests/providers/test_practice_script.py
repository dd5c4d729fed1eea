"""Scripts: what tests, demonstrations and benchmarks let the stand-in play."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from scv.config.settings import Profile, ProviderLimits
from scv.core.history import OutputEntry, UserEntry
from scv.core.ports import ModelRequest, TextDelta
from scv.errors import ConfigError
from scv.providers import ModelEndpoints
from scv.providers.practice.conversation import Result
from scv.providers.practice.script import Script, fill
from scv.providers.practice.server import PracticeServer
from tests.providers.asking import ask_model

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


def open_at(endpoints, url, token, **options):
    return endpoints.open_model(
        "script",
        Profile(base_url=url, api_key=token, model="m", **options),
        limits=ProviderLimits(max_retries=2),
        model_name=None,
        environment={},
        retry_base_seconds=0.001,
    )


@contextlib.asynccontextmanager
async def playing(*responses, loop=False, **options):
    server = PracticeServer(Script(responses, loop=loop).reply)
    async with anyio.create_task_group() as tasks, ModelEndpoints() as endpoints:
        await tasks.start(server.serve)
        yield open_at(endpoints, server.base_url, server.token, **options)
        tasks.cancel_scope.cancel()


async def test_text_reasoning_calls_and_usage():
    response = {
        "reasoning": "let me see",
        "text": ["one ", "two"],
        "calls": [
            {"call": "read", "arguments": {"path": "é"}},
            {"call": "bash", "arguments": '{"broken'},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 6},
    }
    async with playing(response) as model:
        outcome = await ask_model(model)

        assert outcome.reasoning == "let me see"
        assert outcome.text == "one two"
        assert outcome.calls == [("read", '{"path": "é"}'), ("bash", '{"broken')]
        assert outcome.done.usage.output_tokens == 6
        kinds = [item["type"] for item in outcome.done.message.native]
        assert kinds == ["reasoning", "message", "function_call", "function_call"]

        assert "no further response" in (await ask_model(model)).text


async def test_a_loop_starts_again_and_ids_stay_unique():
    async with playing({"calls": [{"call": "list"}]}, loop=True) as model:
        ids = {(await ask_model(model)).done.message.calls[0].call_id for _ in "abc"}

    assert len(ids) == 3


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("max_output_tokens", "length"),
        ("content_filter", "filter"),
        ("refusal", "refusal"),
    ],
)
async def test_ends_of_other_kinds(stop, expected):
    async with playing({"text": "some text", "stop": stop}) as model:
        outcome = await ask_model(model)

    assert outcome.done.stop == expected
    assert outcome.text == "some text"


async def test_status_headers_and_body():
    responses = [
        {"status": 503, "headers": {"Retry-After": "0"}, "body": {"error": "busy"}},
        {"status": 401, "body": "plain"},
    ]
    async with playing(*responses) as model:
        outcome = await ask_model(model)

    assert [retry.delay_seconds for retry in outcome.retries] == [0]
    assert outcome.failure.status == 401
    assert "plain" in outcome.failure.message


async def test_raw_bytes_cut_and_faults():
    raw = 'data: {"type":"response.output_text.delta","output_index":0,"delta":"x"}\n\n'
    responses = [
        {"raw": raw},
        {"text": "a b c d e f", "cut_after_bytes": 600},
        {"raw": raw, "fault": "reset"},
        {"text": "abc", "usage": None},
    ]
    async with playing(*responses) as model:
        assert "incomplete" in (await ask_model(model)).failure.message
        assert "incomplete" in (await ask_model(model)).failure.message
        assert "incomplete" in (await ask_model(model)).failure.message
        assert (await ask_model(model)).done.usage is None


async def test_a_hang_lasts_until_the_client_leaves():
    async with playing({"text": "abc", "fault": "hang"}, timeout_seconds=5) as model:
        shown = []
        with anyio.CancelScope() as scope:
            request = ModelRequest("", [UserEntry("hi")], [], "s_1")
            async for event in model.respond(request):
                shown.append(event)
                scope.cancel()
                await anyio.lowlevel.checkpoint()

    assert shown == [TextDelta("abc")]


async def test_pacing_keeps_its_rate():
    response = {"deltas": {"count": 20, "text": "tok "}, "rate_per_second": 100}
    async with playing(response, {"text": list("abc"), "delay_ms": 20}) as model:
        began = time.monotonic()
        outcome = await ask_model(model)
        assert 0.19 <= time.monotonic() - began < 5 * 0.2
        assert outcome.text == "tok " * 20
        assert len([e for e in outcome.events if isinstance(e, TextDelta)]) > 10

        assert (await ask_model(model)).text == "abc"


async def test_arguments_come_from_earlier_results():
    response = {
        "text": "In {{result:1:/([^ ]+\\.py):(\\d+)/:1}}.",
        "calls": [
            {
                "call": "read",
                "arguments": {
                    "path": "{{result:1:/([^ ]+\\.py):(\\d+)/:1}}",
                    "start_line": "{{result:1:/([^ ]+\\.py):(\\d+)/:2:int}}",
                    "more": [{"text": "<{{result:-1}}>"}],
                },
            }
        ],
    }
    history = [
        UserEntry("go"),
        OutputEntry("c1", "bash", "FAILED tests/a.py:12 in x"),
        OutputEntry("c2", "bash", "last"),
    ]
    async with playing(response, response) as model:
        outcome = await ask_model(model, *history)

        assert outcome.text == "In tests/a.py."
        assert json.loads(outcome.calls[0][1]) == {
            "path": "tests/a.py",
            "start_line": 12,
            "more": [{"text": "<last>"}],
        }
        assert "script error" in (await ask_model(model, UserEntry("go"))).text


@pytest.mark.parametrize(
    "template", ["{{result:3}}", "{{result:0}}", "{{result:-3}}", "{{result:1:/zz/:0}}"]
)
def test_a_template_without_its_result_is_an_error(template):
    with pytest.raises(LookupError):
        fill(template, [Result("bash", "one"), Result("bash", "two")])


@pytest.mark.parametrize(
    "text",
    ['{"responses": [{"text": "a"}]}', '[{"text": "a"}]', '{"text": "a"}',
     '{"text": "a"}\n\n{"text": "b"}\n'],
)  # fmt: skip
def test_script_files_of_every_form_load(text, tmp_path):
    path = tmp_path / "script"
    path.write_text(text)

    Script.load(path)


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "5", '{"a": 1}\nx'])
def test_a_file_that_is_no_script_is_a_configuration_error(text, tmp_path):
    path = tmp_path / "script"
    path.write_text(text)

    if text == "":
        Script.load(path)
        return
    with pytest.raises(ConfigError) as caught:
        Script.load(path)
    assert caught.value.file == str(path)


@contextlib.contextmanager
def program(*arguments):
    command = [sys.executable, "-m", "scv.providers.practice", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def test_the_program_prints_where_it_serves_and_full_speed_costs_little(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('{"deltas": {"count": 20000, "text": "tok "}}')
    with program("--script", str(path)) as process:
        where = json.loads(process.stdout.readline())
        async with ModelEndpoints() as endpoints:
            model = open_at(endpoints, where["url"], where["token"])
            await model.warm()
            before = time.process_time()

            outcome = await ask_model(model)

            spent = time.process_time() - before
    assert outcome.text == "tok " * 20_000
    assert spent < 5 * 0.3
    assert len(outcome.events) < 2000


def test_the_program_explains_wrong_use(tmp_path):
    for arguments in (["--what"], ["--port", "x"], ["--script", str(tmp_path / "no")]):
        with program(*arguments) as process:
            assert process.wait(30) == 2
            assert process.stderr.read()
