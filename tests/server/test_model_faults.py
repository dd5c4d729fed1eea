"""What a failing, odd or cut model answer becomes in events and transcript."""

import json

import pytest

from tests.fakes.model_server import (
    RESET,
    USAGE,
    Json,
    completed,
    delta,
    done,
    function_call,
    message,
    sse,
)
from tests.server.kit import ALLOW, DENY, Place

pytestmark = pytest.mark.anyio

PAGE = (
    "<html><head><title>502</title></head><body>cloudflare ray id 8f00ba12cd"
    " 203.0.113.77 " + "x" * 6000 + "</body></html>"
)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([{"type": "error", "error": {"message": "quota exceeded"}}], "quota exceeded"),
        (
            [
                {
                    "type": "response.failed",
                    "response": {
                        "error": {"code": "server_error", "message": "went x"}
                    },
                }
            ],
            "went x",
        ),
    ],
)
async def test_strm_1_failure_events(
    place: Place, events: list[Json], text: str
) -> None:
    place.configure("[provider_limits]\nmax_retries = 0")
    place.model.events(*events)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert text in turn["error"]["message"]
        assert session.texts() == []
        await session.works(place.model)


async def test_strm_2_closed_before_completed(place: Place) -> None:
    place.model.raw(*[delta(piece) for piece in ("one ", "two ", "three")])

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert len(place.model.requests) == 1
        (item,) = session.items("assistant_message")
        assert (item["text"], item["partial"]) == ("one two three", True)
        assert item["status"] == "failed"
        assert "incomplete" in turn["error"]["message"] or (
            "end" in turn["error"]["message"]
        )
        await session.works(place.model)


def incomplete(reason: str) -> bytes:
    details = {"reason": reason}
    response = {"status": "incomplete", "incomplete_details": details, "usage": USAGE}
    return sse({"type": "response.incomplete", "response": response})


async def test_strm_3_cut_by_the_output_limit(place: Place) -> None:
    cut = '{"path": "a.txt", "mode": "create", "content": "half of'
    place.model.raw(
        delta("I write"),
        done(message("I write")),
        done(function_call("bash", {"command": "touch ran"}, "call_a"), 1),
        done(function_call("write", cut, "call_b"), 2),
        incomplete("max_output_tokens"),
    )
    place.model.say("then smaller")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        assert scv.questions == []
        assert session.items("tool_call") == []
        assert any("output limit" in notice for notice in session.notices())
        await session.works(place.model)
    assert list(place.workspace.iterdir()) == []
    told = [
        item["output"]
        for item in place.model.requests[1].input
        if item.get("type") == "function_call_output"
    ]
    assert len(told) >= 1
    assert all("output limit" in text for text in told)


async def test_strm_3_text_alone_cut_by_the_output_limit(place: Place) -> None:
    place.model.raw(
        delta("as I said"), done(message("as I said")), incomplete("max_output_tokens")
    )

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert (turn["status"], turn["stopReason"]) == ("limited", "output_limit")
        assert session.items("assistant_message")[0]["partial"] is True
        await session.works(place.model)
    assert "cut at the output limit" in json.dumps(place.model.requests[1].input)


async def test_strm_4_content_filter(place: Place) -> None:
    place.model.raw(
        delta("well, "), done(message("well, ")), incomplete("content_filter")
    )

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert (turn["status"], turn["stopReason"]) == ("refused", "content_filter")
        (item,) = session.items("assistant_message")
        assert (item["text"], item["partial"]) == ("well, ", True)
        assert any("content filter" in notice for notice in session.notices())
        await session.works(place.model)


async def test_strm_10_several_calls_at_once(place: Place) -> None:
    (place.workspace / "b.txt").write_text("beta\n")
    wait = "until test -e go; do sleep 0.02; done; echo alpha"
    ids = place.model.calls(("bash", {"command": wait}), ("read", {"path": "b.txt"}))
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.start()
        await scv.until(
            lambda: any(
                item["status"] == "in_progress" for item in session.items("tool_call")
            )
        )
        assert len(session.items("tool_call")) == 1, "one after the other"
        (place.workspace / "go").touch()
        await session.end(turn)

        assert [item["callId"] for item in session.items("tool_call")] == ids
    outputs = {
        item["call_id"]: item["output"]
        for item in place.model.requests[1].input
        if item.get("type") == "function_call_output"
    }
    assert "alpha" in outputs[ids[0]]
    assert "beta" in outputs[ids[1]]


async def test_strm_10_approvals_of_several_calls_are_separate(place: Place) -> None:
    place.model.calls(*[("bash", {"command": f"touch {n}"}) for n in "ab"])
    place.model.say("ok")

    async with place.server(DENY) as scv:
        session = await scv.create()
        await session.prompt()

        first, second = (question.approval for question in scv.questions)
        assert first["approvalId"] != second["approvalId"]
        kinds = [
            event["type"]
            for event in session.follower.events
            if event["type"].startswith("approval.")
        ]
        assert kinds == ["approval.requested", "approval.resolved"] * 2


@pytest.mark.parametrize("part", ["text", "arguments"])
async def test_sse_9_cut_in_the_middle(place: Place, part: str) -> None:
    if part == "text":
        place.model.raw(delta("half "), delta("of it")[:40], RESET)
    else:
        call = function_call("bash", "", "call_a")
        place.model.raw(
            delta("half "),
            sse(
                {"type": "response.output_item.added", "output_index": 1, "item": call}
            ),
            sse(
                {
                    "type": "response.function_call_arguments.delta",
                    "output_index": 1,
                    "item_id": call["id"],
                    "delta": '{"command": "touch ran"}',
                }
            ),
            RESET,
        )

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        (item,) = session.items("assistant_message")
        assert (item["text"], item["partial"]) == ("half ", True)
        assert session.items("tool_call") == []
        assert scv.questions == []
        await session.works(place.model)
    assert not (place.workspace / "ran").exists()


async def test_sse_1_and_3_odd_characters_reach_the_transcript(place: Place) -> None:
    text = "你好 🍸 é a\u2028b"
    raw = delta(text)
    steps = [raw[index : index + 1] for index in range(len(raw))]
    place.model.raw(*steps, done(message(text)), completed(USAGE))

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()

        assert session.texts() == [text]


async def test_retry_1_retry_after_in_seconds(place: Place) -> None:
    place.model.fail(429, headers={"retry-after": "2"})
    place.model.say("now")

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        (retry,) = session.follower.of_type("retry.scheduled")
        assert retry["delayMs"] >= 2000
        assert retry["attempt"] == 1
        assert "429" in retry["reason"]
        assert turn["durationMs"] >= 2000
        states = [data["state"] for data in session.follower.of_type("turn.state")]
        assert states == ["preparing", "model", "retry_wait", "model"]
        assert session.texts() == ["now"]


async def test_retry_2_overloaded_for_ever(place: Place) -> None:
    for _ in range(3):
        place.model.fail(503)

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert turn["error"]["providerStatus"] == 503
        assert turn["error"]["retryable"] is True
        assert "503" in turn["error"]["message"]
        waits = [d["delayMs"] for d in session.follower.of_type("retry.scheduled")]
        assert len(waits) == 2
        assert len(place.model.requests) == 3
        await session.works(place.model)


async def test_retry_3_authentication(place: Place) -> None:
    key = place.model.key
    place.model.fail(401, {"error": {"message": f"Incorrect API key provided: {key}"}})

    async with place.server(environment={"SCV_LOG": "debug"}) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert turn["error"]["providerStatus"] == 401
        assert turn["error"]["retryable"] is False
        assert "key" in turn["error"]["message"]
        assert len(place.model.requests) == 1
        seen = json.dumps([session.follower.events, await session.history()])
        for part in (key, key[:12], key[-8:]):
            assert part not in seen
        await session.works(place.model)
    for part in (key, key[:12], key[-8:]):
        assert part not in place.said
    for path in place.home.rglob("state/**/*"):
        assert path.is_dir() or key.encode() not in path.read_bytes()


async def test_retry_4_html_error_page(place: Place) -> None:
    place.configure("[provider_limits]\nmax_retries = 0")
    place.model.fail(502, PAGE.encode(), headers={"content-type": "text/html"})

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        said = turn["error"]["message"]
        assert "502" in said
        assert "127.0.0.1" in said
        assert len(said) < 300
        seen = json.dumps([session.follower.events, await session.history()])
        for part in ("<html", "8f00ba12cd", "203.0.113.77"):
            assert part not in seen
        await session.works(place.model)
    assert "8f00ba12cd" not in json.dumps(place.model.requests[-1].input)


async def test_retry_5_break_after_visible_text(place: Place) -> None:
    place.model.raw(*[delta(piece) for piece in "abc"], RESET)
    place.model.say("abcdef")

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "failed"
        assert session.texts() == ["abc"]
        assert len(place.model.requests) == 1
        assert session.follower.of_type("retry.scheduled") == []
        await session.prompt("again")
        assert session.texts() == ["abc", "abcdef"]
    sent = json.dumps(place.model.requests[1].input)
    assert sent.count("abc") == 1


@pytest.mark.parametrize("tool", ["read", "write", "edit", "list", "search", "bash"])
async def test_args_1_not_json(place: Place, tool: str) -> None:
    (place.workspace / "a").write_text("a\n")
    place.model.call(tool, '{"path": "a')
    place.model.call(tool, '["a"]')
    place.model.call(tool, '{"path": NaN}')
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        assert scv.questions == []
        assert {i["status"] for i in session.items("tool_call")} == {"failed"}
        assert "not valid JSON" in session.results()[0]
        assert "not an object" in session.results()[1]
        assert "JSON" in session.results()[2]
    assert "not valid JSON" in place.model.requests[1].input[-1]["output"]


async def test_args_2_numbers_as_text(place: Place) -> None:
    (place.workspace / "a").write_text("a\n")
    place.model.calls(
        ("read", {"path": "a", "limit": "10"}),
        ("bash", {"command": "touch ran", "timeout_seconds": "10"}),
        ("search", {"pattern": "a", "context": "1"}),
        ("search", {"pattern": "a", "ignore_case": "true"}),
        ("edit", {"path": "a", "edits": [{"old": 1, "new": "x"}]}),
        ("write", {"path": "b", "content": 1, "mode": "create"}),
    )
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await session.prompt()

        assert scv.questions == []
        assert {i["status"] for i in session.items("tool_call")} == {"failed"}
        for text, field, kind in zip(
            session.results(),
            ("limit", "timeout_seconds", "context", "ignore_case", "edits", "content"),
            ("integer", "integer", "integer", "true or false", "text", "text"),
            strict=True,
        ):
            assert field in text
            assert kind in text
    assert [path.name for path in place.workspace.iterdir()] == ["a"]


async def test_args_3_unknown_tool(place: Place) -> None:
    place.model.call("search_files", {})
    place.model.call("ba\x1bsh\n", {"command": "touch ran"})
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        for text in session.results():
            assert "bash, edit, list, read, search, write" in text
        assert session.items("tool_call")[1]["name"] == r"ba\x1bsh"
        assert scv.questions == []
    assert list(place.workspace.iterdir()) == []


async def test_args_4_extra_fields(place: Place) -> None:
    (place.workspace / "a").write_text("a\n")
    place.model.calls(
        ("read", {"path": "a", "encoding": "utf8"}),
        ("list", {"encoding": "utf8"}),
        ("search", {"pattern": "a", "encoding": "utf8"}),
        ("bash", {"command": "touch ran", "encoding": "utf8"}),
        ("write", {"path": "b", "content": "", "mode": "create", "encoding": "x"}),
        ("edit", {"path": "a", "edits": [{"old": "a", "new": "b", "encoding": 1}]}),
    )
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await session.prompt()

        assert scv.questions == []
        for text in session.results():
            assert "unknown field" in text
            assert "encoding" in text
    assert (place.workspace / "a").read_text() == "a\n"
    assert [path.name for path in place.workspace.iterdir()] == ["a"]
