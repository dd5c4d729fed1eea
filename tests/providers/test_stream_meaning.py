"""Hazards STRM and ARGS: what the events of a stream mean."""

import json

import pytest

from scv.core.history import Call, OutputEntry, UserEntry
from scv.core.ports import TokenUsage
from scv.errors import ProviderProtocol, ProviderRejected
from scv.providers import ModelEndpoints
from tests.fakes.model_server import (
    USAGE,
    ModelServer,
    completed,
    delta,
    done,
    function_call,
    message,
    sse,
)
from tests.providers.asking import ask, ask_model, open_model

pytestmark = pytest.mark.anyio


def added(item, index):
    kind = "response.output_item.added"
    return sse({"type": kind, "output_index": index, "item": item})


def arguments(piece, **where):
    return sse(
        {"type": "response.function_call_arguments.delta", "delta": piece, **where}
    )


def incomplete(reason):
    details = {"incomplete_details": {"reason": reason}}
    return sse({"type": "response.incomplete", "response": details})


def failed(**response):
    return {"type": "response.failed", "response": response}


async def answer(*steps, **options):
    async with ModelServer() as server:
        server.raw(*steps)
        outcome = await ask(server, **options)
        assert len(server.requests) == 1
        return outcome


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"type": "error", "error": {"message": "quota exceeded"}}, "quota exceeded"),
        ({"type": "error", "code": "c1", "message": "top level"}, "top level [c1]"),
        (failed(error={"code": "bad", "message": "x y"}), "x y [bad]"),
        ({"error": {"message": "no type"}}, "no type"),
        ({"error": "just text"}, "just text"),
        (failed(), "no reason"),
    ],
)
async def test_strm_1_failure_events(event, text):
    outcome = await answer(delta("some "), sse(event), completed())

    assert isinstance(outcome.failure, ProviderRejected)
    assert text in outcome.failure.message
    assert outcome.text == "some "


async def test_strm_1_failure_events_before_text_follow_the_retry_rule():
    error = {"code": "server_error", "message": "x"}
    async with ModelServer() as server:
        server.events(failed(error=error))
        server.events({"type": "error", "error": {"message": "quota exceeded"}})

        outcome = await ask(server)

        assert "quota exceeded" in outcome.failure.message
        assert len(outcome.retries) == 1
        assert len(server.requests) == 2


async def test_strm_1_error_event_that_is_not_json():
    outcome = await answer(b"event: error\ndata: Something broke <b>\n\n")

    assert isinstance(outcome.failure, ProviderRejected)
    assert "Something broke" in outcome.failure.message


async def test_strm_2_closed_before_completed():
    outcome = await answer(delta("a"), delta("b"), delta("c"))

    assert isinstance(outcome.failure, ProviderProtocol)
    assert "incomplete" in outcome.failure.message
    assert outcome.text == "abc"


async def test_strm_2_closed_before_anything_is_tried_again():
    async with ModelServer() as server:
        server.raw(b"")
        server.events({"type": "response.created"})
        server.say("at last")

        outcome = await ask(server)

        assert outcome.done.message.text == "at last"
        assert [retry.attempt for retry in outcome.retries] == [1, 2]


async def test_strm_3_cut_by_the_output_limit():
    outcome = await answer(
        delta("text"),
        done(message("text")),
        done(function_call("read", {"path": "a"}, "c1"), 1),
        added(function_call("write", "", "c2"), 2),
        arguments('{"path": "a", "content": "half of', output_index=2),
        incomplete("max_output_tokens"),
    )

    assert outcome.done.stop == "length"
    assert outcome.done.detail == "max_output_tokens"
    assert [call.call_id for call in outcome.done.message.calls] == ["c1", "c2"]


async def test_strm_3_a_cut_answer_goes_back_as_valid_items():
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        server.raw(
            added(function_call("write", "", "c2"), 0),
            arguments('{"content": "half', output_index=0),
            done({"type": "reasoning", "id": "rs_1", "summary": []}, 1),
            incomplete("max_output_tokens"),
        )
        cut = (await ask_model(model)).done.message
        server.say("ok")

        output = OutputEntry("c2", "write", "not run: cut", is_error=True)
        await ask_model(model, UserEntry("hi"), cut, output)

        items = server.requests[1].input
        kinds = [item.get("type") for item in items]
        assert kinds == [None, "function_call", "function_call_output"]
        assert json.loads(items[1]["arguments"]) == {
            "malformed_arguments": '{"content": "half'
        }


async def test_strm_4_content_filter():
    outcome = await answer(delta("some text"), incomplete("content_filter"))

    assert outcome.text == "some text"
    assert outcome.done.stop == "filter"
    assert outcome.done.detail == "content_filter"


async def test_a_refusal_is_shown_and_named():
    item = message("")
    item["content"] = [{"type": "refusal", "refusal": "I will not."}]
    outcome = await answer(
        sse({"type": "response.refusal.delta", "output_index": 0, "delta": "I will "}),
        done(item),
        completed(),
    )

    assert outcome.text == "I will not."
    assert outcome.done.stop == "refusal"


@pytest.mark.parametrize("by", ["output_index", "item_id"])
async def test_strm_5_arguments_in_many_pieces(by):
    whole = json.dumps({"command": "echo " + "x" * 200})
    size = len(whole) // 40 + 1
    pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
    first = {**function_call("bash", "", "c1"), "id": "fc_1"}
    other = {**function_call("read", "", "c2"), "id": "fc_2"}
    steps = [added(first, 0), added(other, 1)]
    for piece in pieces:
        steps.append(
            arguments(piece, **{by: {"output_index": 0, "item_id": "fc_1"}[by]})
        )
        steps.append(arguments("", **{by: {"output_index": 1, "item_id": "fc_2"}[by]}))
    # No final form: the pieces are all there is.
    outcome = await answer(*steps, completed())

    assert outcome.calls == [("bash", whole), ("read", "{}")]


async def test_strm_5_arguments_given_whole_at_the_end():
    finished = {"type": "response.function_call_arguments.done", "output_index": 0,
                "arguments": '{"a": 1}'}  # fmt: skip
    outcome = await answer(
        added(function_call("bash", "", "c1"), 0),
        arguments('{"a"', output_index=0),
        sse(finished),
        completed(),
    )

    assert outcome.calls == [("bash", '{"a": 1}')]


@pytest.mark.parametrize("usage", [None, "missing", {}, "nonsense", 7])
async def test_strm_8_no_usage(usage):
    response = {"status": "completed"} if usage == "missing" else {"usage": usage}
    outcome = await answer(
        delta("a"), sse({"type": "response.completed", "response": response})
    )

    assert outcome.done.message.text == "a"
    expected = TokenUsage(0, 0) if usage == {} else None
    assert outcome.done.usage == expected


async def test_usage_counts_what_the_endpoint_says():
    outcome = await answer(delta("a"), completed(USAGE))

    assert outcome.done.usage == TokenUsage(11, 7, cached_tokens=5, reasoning_tokens=3)


async def test_strm_9_items_finished_out_of_order():
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "x",
               "summary": [{"type": "summary_text", "text": "long"}]}  # fmt: skip
    call = function_call("bash", {"command": "ls"}, "c1")
    outcome = await answer(
        added({**thought, "summary": [], "encrypted_content": ""}, 0),
        added({**call, "arguments": ""}, 1),
        done(call, 1),
        done(thought, 0),
        completed(),
    )

    assert list(outcome.done.message.native) == [thought, call]


async def test_items_only_in_the_final_response_count():
    call = function_call("bash", {"command": "ls"}, "c1")
    outcome = await answer(completed(output=[message("whole"), call]))

    assert outcome.text == "whole"
    assert outcome.done.message.text == "whole"
    assert outcome.calls == [("bash", '{"command": "ls"}')]
    assert list(outcome.done.message.native) == [message("whole"), call]


async def test_the_final_form_of_a_message_wins_and_only_the_rest_is_shown():
    outcome = await answer(delta("Hel"), done(message("Hello")), completed())
    assert outcome.text == "Hello"

    outcome = await answer(delta("Helo"), done(message("Hello")), completed())
    assert outcome.text == "Helo"
    assert outcome.done.message.text == "Hello"


async def test_two_messages_are_kept_apart_in_text_and_stream():
    outcome = await answer(
        delta("one"), done(message("one")), delta("two", 1), done(message("two"), 1),
        completed(),
    )  # fmt: skip

    assert outcome.text == outcome.done.message.text == "one\n\ntwo"


async def test_strm_10_several_calls_at_once():
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        ids = server.calls(("read", {"path": "a"}), ("read", {"path": "b"}))
        first = (await ask_model(model)).done.message
        server.say("ok")

        assert [call.call_id for call in first.calls] == ids
        await ask_model(
            model,
            UserEntry("hi"),
            first,
            OutputEntry(ids[1], "read", "of b"),
            OutputEntry(ids[0], "read", "of a"),
        )

        outputs = [i for i in server.requests[1].input if "output" in i]
        assert [(o["call_id"], o["output"]) for o in outputs] == [
            (ids[1], "of b"),
            (ids[0], "of a"),
        ]


async def test_equal_call_ids_are_made_different_and_stay_paired():
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        server.calls(
            ("read", {"path": "a"}), ("read", {"path": "b"}), call_ids=["c", "c"]
        )
        server.calls(("read", {"path": "c"}), call_ids=["c"])
        first = (await ask_model(model)).done.message
        second = (await ask_model(model)).done.message
        server.say("ok")

        history = [UserEntry("hi")]
        for message_ in (first, second):
            history.append(message_)
            history += [
                OutputEntry(c.call_id, c.name, f"of {c.arguments}")
                for c in message_.calls
            ]
        await ask_model(model, *history)

        items = server.requests[2].input[1:]
        calls = [i for i in items if i["type"] == "function_call"]
        assert len({c["call_id"] for c in calls}) == 3
        for call in calls:
            (output,) = (
                i for i in items if i["call_id"] == call["call_id"] and i != call
            )
            assert output["output"] == f"of {call['arguments']}"


async def test_strm_11_empty_arguments():
    for text in ("", "  "):
        outcome = await answer(done(function_call("list", text, "c1")), completed())
        assert outcome.calls == [("list", "{}")]


async def test_strm_12_unknown_events():
    outcome = await answer(
        sse({"type": "response.brand_new", "x": 1}),
        sse({"foo": 1}),
        sse("[1]"),
        sse("5"),
        sse({"type": ["odd"]}),
        delta("a"),
        sse({"type": "response.output_item.added", "item": None}),
        sse({"type": "response.output_item.done"}),
        done({**message("a"), "new_field": {"x": 1}}),
        done({"type": "brand_new_item", "id": "n1", "x": 1}, 1),
        completed(),
    )

    assert outcome.done.message.text == "a"
    assert outcome.done.message.native[1] == {
        "type": "brand_new_item", "id": "n1", "x": 1,
    }  # fmt: skip


async def test_an_event_is_read_by_its_name_when_the_json_has_no_type():
    outcome = await answer(
        sse({"delta": "a"}, "response.output_text.delta"),
        sse({"response": {}}, "response.completed"),
    )

    assert outcome.done.message.text == "a"


async def test_turn_7_events_after_the_end_are_dropped():
    outcome = await answer(
        delta("a"),
        completed(),
        delta("late"),
        sse({"type": "error", "message": "late"}),
    )

    assert outcome.text == "a"
    assert outcome.done.message.text == "a"


async def test_args_1_malformed_arguments_pass_through_as_text():
    outcome = await answer(
        done(function_call("read", '{"path": "a', "c1")), completed()
    )

    assert outcome.done.message.calls == (Call("c1", "read", '{"path": "a'),)


async def test_a_call_without_id_gets_one_that_is_used_consistently():
    item = function_call("list", "{}", "x")
    del item["call_id"]
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        server.raw(done(item), completed())
        server.say("ok")
        first = (await ask_model(model)).done.message
        (call,) = first.calls
        await ask_model(
            model, UserEntry("hi"), first, OutputEntry(call.call_id, "list", "out")
        )

        assert call.call_id
        assert {i["call_id"] for i in server.requests[1].input[1:]} == {call.call_id}


async def test_a_call_without_name_is_a_provider_error():
    outcome = await answer(done(function_call("", "{}", "c1")), completed())

    assert isinstance(outcome.failure, ProviderProtocol)


async def test_an_event_that_is_not_json_is_a_provider_error():
    outcome = await answer(delta("a"), b"data: {broken\n\n")

    assert isinstance(outcome.failure, ProviderProtocol)
    assert outcome.text == "a"


async def test_reasoning_is_streamed_and_its_parts_are_kept_apart():
    def part(index, text):
        return sse({"type": "response.reasoning_summary_text.delta", "delta": text,
                    "output_index": 0, "summary_index": index})  # fmt: skip

    begun = {"type": "response.reasoning_summary_part.added", "summary_index": 1}
    outcome = await answer(part(0, "first"), sse(begun), part(1, "second"), completed())

    assert outcome.reasoning == "first\n\nsecond"
    assert outcome.text == ""


async def test_half_characters_from_escapes_never_reach_the_core():
    def escaped(text):
        return (b'data: {"type":"response.output_text.delta","output_index":0,'
                b'"delta":"' + text + b'"}\n\n')  # fmt: skip

    outcome = await answer(
        escaped(rb"\ud83d"), escaped(rb"\ude00"), escaped(rb" \ud83d x"), completed()
    )
    assert outcome.done.message.text == outcome.text == "😀 \ufffd x"

    call = b'data: {"type":"response.output_item.done","output_index":0,"item":' + (
        rb'{"type":"function_call","call_id":"c","name":"b","arguments":"\udc00"}}'
    )
    outcome = await answer(call + b"\n\n", completed())
    outcome.done.message.native[0]["arguments"].encode()
    outcome.done.message.calls[0].arguments.encode()


async def test_a_deeply_nested_event_is_a_provider_error():
    outcome = await answer(b"data: " + b"[" * 100_000 + b"\n\n")

    assert isinstance(outcome.failure, ProviderProtocol)
