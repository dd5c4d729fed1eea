"""Turns through a real server: one end each, whatever happens inside."""

import json
from contextlib import suppress
from threading import Event

import pytest
from anyio import create_task_group, fail_after

from scv.rpc import RemoteError
from tests.fakes.model_server import (
    CLOSE,
    HANG,
    RESET,
    USAGE,
    Json,
    Request,
    completed,
    delta,
    done,
    message,
    sse,
)
from tests.server.kit import HOLD, Place, Session

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_answered(place: Place) -> None:
    place.model.say("Hel", "lo")

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt("hi")

        assert turn["status"] == "completed"
        assert turn["stopReason"] == "end"
        assert turn["usage"]["inputTokens"] == USAGE["input_tokens"]
        assert session.texts() == ["Hello"]
        states = [data["state"] for data in session.follower.of_type("turn.state")]
        assert states == ["preparing", "model"]
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert snapshot["session"]["state"] == "idle"
        assert snapshot["session"]["title"] == "hi"
        assert snapshot["turn"]["status"] == "completed"


async def test_every_part_of_a_prompt_reaches_the_model(place: Place) -> None:
    place.model.say("ok")
    parts = [
        {"type": "text", "text": "look"},
        {"type": "file", "uri": "file:///srv/a%20b.py"},
        {"type": "selection", "uri": "file:///srv/c.py", "text": "one = 1"},
        {"type": "buffer", "label": "*scratch*", "text": "```\nfence"},
    ]

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt(input=parts)

        (told,) = session.items("user_message")
        assert told["parts"] == parts
    text = place.model.requests[0].input[-1]["content"]
    for piece in ("look", "/srv/a b.py", "one = 1", "*scratch*", "````\n```\nfence"):
        assert piece in text


async def test_turn_1_second_prompt_while_a_turn_runs(place: Place) -> None:
    place.model.call("bash", {"command": "until test -e go; do sleep 0.02; done"})
    place.model.say("first is done")

    async with place.server() as scv:
        session = await scv.create()
        first = await session.start("one")
        await session.state(first, "tools")

        error = await scv.refused(
            "turn/start",
            sessionId=session.id,
            input=[{"type": "text", "text": "two"}],
        )
        (place.workspace / "go").touch()
        ended = await session.end(first)

        assert error.code == 4241
        assert error.data["code"] == "session.busy"
        assert error.data["turnId"] == first
        assert ended["status"] == "completed"
        assert session.texts() == ["first is done"]
        assert len(session.items("user_message")) == 1
        await session.works(place.model)


async def test_turn_2_cancel_while_an_approval_waits(place: Place) -> None:
    place.model.call("bash", {"command": "touch ran"})

    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await session.start()
        question = await scv.question()
        with fail_after(10):  # five times the stated 2 s
            receipt = await session.cancel(turn)
            ended = await session.end(turn)
        await scv.until(lambda: question.withdrawn)

        assert receipt["receipt"]["approvals"] == [question.approval["approvalId"]]
        assert ended["status"] == "cancelled"
        (resolved,) = session.follower.of_type("approval.resolved")
        assert resolved["decision"] == "cancelled"
        assert not (place.workspace / "ran").exists()
        listed = await scv.call("approval/list")
        assert listed["approvals"] == []
        await session.works(place.model)


@pytest.mark.parametrize("ending", ["normal", "crash", "tool", "cancelled twice"])
async def test_turn_3_exactly_one_end_per_turn(place: Place, ending: str) -> None:
    expected = "completed"
    match ending:
        case "normal":
            place.model.say("ok")
        case "crash":
            place.model.raw(delta("half"), RESET)
            expected = "failed"
        case "tool":
            place.model.call("read", {"path": "is/not/there"})
            place.model.say("I see")
        case _:
            place.model.raw(delta("half"), HANG)
            expected = "cancelled"

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        if expected == "cancelled":
            await scv.until(lambda: session.texts() == ["half"])
            async with create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(cancel_if_running, session, turn)
        ended = await session.end(turn)

        assert ended["status"] == expected
        # The follower refuses any event of a turn after its end.
        await session.works(place.model)
        ends = [
            event["turnId"]
            for event in session.follower.events
            if event["type"] == "turn.ended"
        ]
        assert ends.count(turn) == 1


async def test_turn_4_client_gone_while_approval_waits(place: Place) -> None:
    place.model.call("bash", {"command": "touch ran"})

    async with place.server(HOLD) as scv:
        session = await scv.create()
        turn = await session.start()
        question = await scv.question()
        scv.peer.close()
        await scv.closed.wait()

    assert not (place.workspace / "ran").exists()
    async with place.server() as scv:
        session, attached = await scv.attach(session.id, history="full")
        view = await scv.call("turn/get", sessionId=session.id, turnId=turn)
        late = await scv.refused(
            "approval/answer",
            approvalId=question.approval["approvalId"],
            digest=question.approval["digest"],
            optionId="once",
        )

        assert view["turn"]["status"] == "cancelled"
        assert view["turn"]["stopReason"] == "client_gone"
        assert attached["pending"]["approvals"] == []
        assert late.code == 4245
        assert late.data["decision"] == "cancelled"
        await session.works(place.model)
    assert not (place.workspace / "ran").exists()


async def cancel_if_running(session: Session, turn: str) -> None:
    with suppress(RemoteError):  # 4243 when the first one has ended it already
        await session.cancel(turn)


def refuse_unpaired(request: Request) -> None:
    """Fail like a strict endpoint: each call has one output, after it."""
    calls: dict[str, int] = {}
    for item in request.input:
        if item.get("type") == "function_call":
            calls[item["call_id"]] = 0
        if item.get("type") == "function_call_output":
            assert isinstance(item["output"], str)
            calls[item["call_id"]] += 1
    assert all(outputs == 1 for outputs in calls.values()), calls


@pytest.mark.parametrize("calls", [1, 3])
async def test_turn_5_interrupted_call_leaves_history_valid(
    place: Place, calls: int
) -> None:
    place.model.on_request = refuse_unpaired  # type: ignore[assignment]
    command = {"command": "touch started; sleep 600"}
    place.model.calls(*[("bash", command)] * calls)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(
            lambda: any(
                item["status"] == "in_progress" for item in session.items("tool_call")
            )
        )
        await session.cancel(turn)
        ended = await session.end(turn)

        assert ended["status"] == "cancelled"
        assert [item["status"] for item in session.items("tool_call")] == ["cancelled"]
        await session.works(place.model)

    outputs = [
        item["output"]
        for item in place.model.requests[-1].input
        if item.get("type") == "function_call_output"
    ]
    assert len(outputs) == calls
    assert all("interrupted" in output for output in outputs)


async def test_turn_7_late_events_after_the_end(place: Place) -> None:
    late = [delta("late text"), done(message("later"), 1), completed(USAGE)]
    place.model.raw(delta("a"), done(message("a")), completed(USAGE), *late)
    place.model.call("bash", {"command": "trap '' TERM; echo on; sleep 600"})

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt("one")
        assert session.texts() == ["a"]

        second = await session.start("two")
        await scv.until(
            lambda: any(
                item["status"] == "in_progress" for item in session.items("tool_call")
            )
        )
        await session.cancel(second)
        await session.end(second)
        assert [item["turnId"] for item in session.items("tool_call")] == [second]

        # The follower refuses late events of an ended turn; none under the next.
        await session.works(place.model)
        third = session.items("user_message")[-1]["turnId"]
        kinds = [
            item["kind"]
            for item in session.follower.items.values()
            if item["turnId"] == third
        ]
        assert kinds == ["user_message", "assistant_message"]
        assert "late" not in "".join(session.texts())


async def test_turn_8_context_too_long(place: Place) -> None:
    body = {"error": {"code": "context_length_exceeded", "message": "too many tokens"}}
    place.model.fail(400, body)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt("much")

        assert turn["status"] == "failed"
        assert turn["error"]["retryable"] is False
        assert "too many tokens" in turn["error"]["message"]
        assert len(place.model.requests) == 1
        snapshot = await scv.call("session/get", sessionId=session.id)
        assert snapshot["session"]["state"] == "failed"
        assert len(await session.history()) == 1
        await session.works(place.model)


async def test_the_step_limit_ends_the_turn_as_limited(place: Place) -> None:
    place.configure("[agent]\nmax_steps = 2")
    for _ in range(2):
        place.model.call("list", {})

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "limited"
        assert turn["stopReason"] == "step_limit"
        assert turn["error"]["message"].startswith("2 steps")
        assert len(place.model.requests) == 2
        await session.works(place.model)


@pytest.mark.parametrize(
    ("limit", "stop"),
    [
        ("max_tool_calls = 2", "tool_limit"),
        ("max_tool_arguments_bytes = 30", "tool_limit"),
        ("max_assistant_bytes = 10", "response_limit"),
        ("max_response_bytes = 400", "response_limit"),
        ("max_sse_event_bytes = 100", "response_limit"),
    ],
)
async def test_a_violated_cap_fails_the_turn_and_runs_nothing(
    place: Place, limit: str, stop: str
) -> None:
    place.configure(f"[provider_limits]\n{limit}")
    ran = place.workspace / "ran"
    place.model.calls(
        *[("bash", {"command": f"echo {n} >> ran; true true"}) for n in range(3)],
        text="here is a long text",
    )

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert turn["error"]["code"] == stop, turn
        assert session.items("tool_call") == []
        assert scv.questions == []
        assert not ran.exists()
        place.configure()  # the next server has no such cap
    async with place.server() as scv:
        session, _ = await scv.attach(session.id)
        await session.works(place.model)


async def test_text_and_calls_of_a_long_turn_stay_in_order(place: Place) -> None:
    place.model.call("list", {}, text="first I look")
    place.model.call("bash", {"command": "echo 1"}, text="then I run")
    place.model.say("done")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()
        kinds = [item["kind"] for item in session.follower.items.values()]

        assert kinds == [
            "user_message",
            *("assistant_message", "tool_call") * 2,
            "assistant_message",
        ]
        assert session.texts() == ["first I look", "then I run", "done"]
        stored = [item["id"] for item in await session.history()]
        assert stored == list(session.follower.items)


async def test_reasoning_is_an_item_of_its_own(place: Place) -> None:
    thought = "I think"
    reasoning: Json = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": thought}],
    }
    place.model.raw(
        sse(
            {
                "type": "response.reasoning_summary_text.delta",
                "output_index": 0,
                "delta": thought,
            }
        ),
        done(reasoning, 0),
        delta("so", 1),
        done(message("so"), 1),
        completed(USAGE),
    )

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()

        assert [item["text"] for item in session.items("reasoning")] == [thought]
        assert session.texts() == ["so"]
        await session.works(place.model)
    assert json.dumps(reasoning["summary"]) in json.dumps(
        place.model.requests[1].json["input"]
    )


async def test_a_stream_that_is_still_open_shows_what_came(place: Place) -> None:
    gate = Event()
    place.model.say("one ", "two", gate=gate)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(lambda: session.texts() == ["one "])
        gate.set()
        await session.end(turn)

        assert session.texts() == ["one two"]


async def test_an_endpoint_that_closes_without_a_word_fails_the_turn(
    place: Place,
) -> None:
    place.configure("[provider_limits]\nmax_retries = 0")
    place.model.raw(CLOSE)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        await session.works(place.model)
