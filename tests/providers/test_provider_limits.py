"""The caps on one response: at the limit it passes, one more and nothing runs."""

import json

import pytest

from scv.config.settings import ProviderLimits
from scv.errors import ResponseLimit
from tests.fakes.model_server import (
    ModelServer,
    completed,
    delta,
    done,
    function_call,
    message,
    sse,
)
from tests.providers.asking import ask

pytestmark = pytest.mark.anyio


async def outcome_of(*steps, **limits):
    async with ModelServer() as server:
        server.raw(*steps)
        outcome = await ask(server, limits=ProviderLimits(**limits))
        assert len(server.requests) == 1
        return outcome


async def check(code, fits, too_much, **limits):
    assert (await outcome_of(*fits, **limits)).done
    failure = (await outcome_of(*too_much, **limits)).failure
    assert isinstance(failure, ResponseLimit)
    assert failure.code == code
    assert not failure.retryable


async def test_event_bytes():
    def padded(size):
        event = sse({"type": "odd", "x": ""})
        return [sse({"type": "odd", "x": "y" * (size - len(event) + 2)}), completed()]

    await check("response_limit", padded(3000), padded(3001), max_sse_event_bytes=3000)
    default = ProviderLimits().max_sse_event_bytes
    assert default == 1_048_576
    await check("response_limit", padded(default), padded(default + 1))


async def test_response_bytes():
    end = completed()

    def padded(size):
        return [b": " + b"x" * (size - len(end) - 4) + b"\n\n" + end]

    await check("response_limit", padded(9000), padded(9001), max_response_bytes=9000)


async def test_response_bytes_by_default():
    block = b": " + b"x" * 60_000 + b"\n\n"
    count = ProviderLimits().max_response_bytes // len(block)

    await check(
        "response_limit", [block] * count + [completed()], [block] * (count + 2)
    )


@pytest.mark.parametrize("letter", ["x", "é", "你"])
async def test_text_bytes(letter):
    size = len(letter.encode())

    def said(count):
        return [delta(letter * 10)] * (count // 10) + [
            delta(letter * (count % 10)),
            completed(),
        ]

    await check("response_limit", said(101), said(102), max_assistant_bytes=101 * size)


async def test_text_bytes_by_default():
    def said(size):
        return [delta("x" * 65_536)] * (size // 65_536) + [
            delta("x" * (size % 65_536)),
            completed(),
        ]

    await check("response_limit", said(1_048_576), said(1_048_577))


async def test_text_bytes_of_final_forms_count_too():
    def final(size):
        return [done(message("x" * size)), completed()]

    def other(size):
        return [delta("y"), done(message("x" * size)), completed()]

    def together(size):
        return [delta("x" * 50), done(message("x" * size)), completed()]

    for build in (final, other, together):
        await check("response_limit", build(100), build(101), max_assistant_bytes=100)


async def test_tool_calls():
    def calls(count):
        made = [
            done(function_call("list", {}, f"c{number}"), number)
            for number in range(count)
        ]
        return [*made, completed()]

    await check("tool_limit", calls(32), calls(33))
    await check("tool_limit", calls(1), calls(2), max_tool_calls=1)


async def test_tool_calls_that_only_the_final_response_names_count_too():
    def calls(count):
        made = [function_call("list", {}, f"c{number}") for number in range(count)]
        return [completed(output=made)]

    await check("tool_limit", calls(32), calls(33))


@pytest.mark.parametrize("form", ["pieces", "done", "item", "response"])
async def test_argument_bytes(form):
    def build(size):
        text = json.dumps({"a": "é" * 10 + "x" * (size - 29)}, ensure_ascii=False)
        assert len(text.encode()) == size
        item = function_call("bash", text, "c1")
        bare = function_call("bash", "", "c1")
        begun = sse({"type": "response.output_item.added", "output_index": 0,
                     "item": bare})  # fmt: skip
        kind = "response.function_call_arguments"
        where = {"output_index": 0, "item_id": "fc_c1"}
        if form == "pieces":
            pieces = [text[i : i + 1000] for i in range(0, len(text), 1000)]
            steps = [
                sse({"type": f"{kind}.delta", **where, "delta": p}) for p in pieces
            ]
            return [begun, *steps, completed()]
        if form == "done":
            whole = sse({"type": f"{kind}.done", **where, "arguments": text})
            return [begun, whole, completed()]
        if form == "item":
            return [begun, done(item), completed()]
        return [begun, completed(output=[item])]

    await check("tool_limit", build(262_144), build(262_145))


async def test_a_limit_breaks_off_an_endless_answer_and_its_text_stays():
    """The rest is not read: the server would wait for ever."""
    from tests.fakes.model_server import HANG

    outcome = await outcome_of(
        delta("shown"), delta("x" * 1000), HANG, max_assistant_bytes=900
    )

    assert outcome.failure.code == "response_limit"
