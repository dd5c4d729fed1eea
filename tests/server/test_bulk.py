"""Much of everything: long outputs, long answers, long histories, a slow reader."""

import base64
import json
from threading import Event
from typing import Any

import anyio
import pytest

from tests.fakes.model_server import USAGE, completed, delta
from tests.server.kit import ALLOW, Json, Place, Scv

pytestmark = pytest.mark.anyio

KIB = 1024
ITEM_TEXT_BYTES = 192 * KIB


async def read_blob(scv: Scv, blob_id: str) -> bytes:
    data = b""
    while True:
        part = await scv.call("blob/read", blobId=blob_id, offset=len(data))
        data += base64.b64decode(part["data"])
        if part["eof"]:
            assert len(data) == part["totalBytes"]
            return data


async def test_a_long_output_is_cut_and_can_be_read_whole(place: Place) -> None:
    whole = "".join(f"line {number}\n" for number in range(30_000))
    (place.workspace / "numbers").write_text(whole)
    place.model.call("bash", {"command": "cat numbers"})
    place.model.say("I shall look")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        await session.prompt()
        (item,) = session.items("tool_call")
        result = item["result"]

        assert result["truncated"] is True
        assert result["totalBytes"] == len(whole)
        assert len(result["output"].encode()) < 100 * KIB
        told = json.loads(result["output"])
        assert told["output"].startswith("line 0\n")
        assert told["output"].endswith("line 29999\n")
        handle = told["handle"]
        assert handle == result["blobId"]
        assert await read_blob(scv, handle) == whole.encode()

        place.model.call(
            "read", {"handle": handle, "start_line": 20_001, "line_count": 2}
        )
        place.model.call("read", {"handle": "b_absent"})
        place.model.say("read")
        await session.prompt("look")
        assert "line 20000\\nline 20001\\n" in session.results()[1]
        assert session.items("tool_call")[2]["status"] == "failed"
    async with place.server(ALLOW) as scv:  # and after a restart
        session, _ = await scv.attach(session.id)
        place.model.call("read", {"handle": handle, "start_line": 30_000})
        place.model.say("read")
        await session.prompt("once more")
        assert "line 29999" in session.results()[-1]


async def test_a_long_answer_is_whole_in_a_blob(place: Place) -> None:
    text = "".join(f"é{number} " for number in range(40_000))
    pieces = [text[start : start + 8000] for start in range(0, len(text), 8000)]
    place.model.say(*pieces)
    place.model.say("short")

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        (item,) = session.items("assistant_message")
        assert len(item["text"].encode()) < ITEM_TEXT_BYTES + 200
        assert item["text"].startswith("é0 é1 ")
        assert item["text"].endswith("é39999 ")
        assert "bytes left out" in item["text"]
        assert await read_blob(scv, item["blobId"]) == text.encode()
        # the deltas told everything, in order
        told = "".join(
            data["append"] for data in session.follower.of_type("item.delta")
        )
        assert told == text
        await session.prompt("and?")
    assert text in json.dumps(place.model.requests[1].input, ensure_ascii=False)


async def test_a_text_at_the_limit_stays_whole(place: Place) -> None:
    text = "x" * ITEM_TEXT_BYTES
    place.model.say(text)

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt()

        (item,) = session.items("assistant_message")
        assert item["text"] == text
        assert "blobId" not in item


async def test_long_changes_fit_into_events(place: Place) -> None:
    content = "".join(f"{number} {'y' * 70}\n" for number in range(10_000))
    place.model.call(
        "write", {"path": "big", "content": content[:250_000], "mode": "create"}
    )
    place.model.say("ok")

    async with place.server(ALLOW) as scv:
        session = await scv.create()
        turn = await session.prompt()

        assert turn["status"] == "completed"
        (approval,) = (question.approval for question in scv.questions)
        (file,) = approval["subject"]["files"]
        assert len(file["patch"]) < 60 * KIB
        assert b"3000 yyy" in await read_blob(scv, file["blobId"])
        assert max(len(json.dumps(e)) for e in session.follower.events) < 512 * KIB
    assert (place.workspace / "big").read_text() == content[:250_000]


async def test_old_groups_leave_the_request_and_a_note_takes_their_place(
    place: Place,
) -> None:
    place.configure(
        "[context]\nmax_tokens = 4500\nreserve_output_tokens = 100\n"
        "safety_margin_tokens = 100\nsummary_max_chars = 500"
    )
    for number in range(4):
        place.model.say(f"answer {number} " + "x" * 3000)

    async with place.server() as scv:
        session = await scv.create()
        for number in range(4):
            turn = await session.prompt(f"prompt {number}")
            assert turn["status"] == "completed"
        assert any("left out" in notice for notice in session.notices())
        stored = await session.history()
        assert len([i for i in stored if i["kind"] == "user_message"]) == 4
    last = json.dumps(place.model.requests[-1].input)
    assert "prompt 3" in last
    assert "earlier messages are left out" in last
    assert "answer 0 xxx" not in last


async def test_a_prompt_that_alone_is_too_long_fails_and_the_session_goes_on(
    place: Place,
) -> None:
    place.configure(
        "[context]\nmax_tokens = 6000\nreserve_output_tokens = 100\n"
        "safety_margin_tokens = 100"
    )

    async with place.server() as scv:
        session = await scv.create()
        turn = await session.prompt("y" * 30_000)

        assert turn["status"] == "failed"
        assert turn["error"]["code"] == "context_limit"
        assert place.model.requests == []
        await session.works(place.model)


async def test_history_over_its_limits_is_trimmed_with_a_notice(place: Place) -> None:
    place.configure("[session]\nmax_messages = 6")
    for number in range(6):
        place.model.say(f"answer {number}")

    async with place.server() as scv:
        session = await scv.create()
        for number in range(5):
            await session.prompt(f"prompt {number}")
        assert any("left the model's history" in text for text in session.notices())
    last = json.dumps(place.model.requests[-1].input)
    assert "prompt 4" in last
    async with place.server() as scv:  # what is stored is whole
        session, _ = await scv.attach(session.id)
        await session.prompt("prompt 5")
        stored = await session.history()
        prompts = [i["parts"][0]["text"] for i in stored if i["kind"] == "user_message"]
        assert prompts == [f"prompt {number}" for number in range(6)]
    last = json.dumps(place.model.requests[-1].input)
    assert "prompt 5" in last
    assert "prompt 4" in last


async def test_history_limit_in_bytes(place: Place) -> None:
    place.configure("[session]\nmax_history_bytes = 5000")
    place.model.say("z" * 4000)
    place.model.say("short")

    async with place.server() as scv:
        session = await scv.create()
        await session.prompt("one")
        await session.prompt("two")
        turn = await session.prompt("w" * 6000)  # more than the limit alone

        assert turn["status"] == "failed"
        assert turn["error"]["code"] == "history_limit"
        assert "session.max_history_bytes" in turn["error"]["message"]
        await session.works(place.model)
    last = json.dumps(place.model.requests[-1].input)
    assert "z" * 300 not in last  # its last words are in the note
    assert "w" * 300 not in last


class Reached(Event):
    """A gate that tells when the endpoint has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached = Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_reached.set()
        return super().wait(timeout)


async def test_a_reader_that_lags_loses_nothing(place: Place) -> None:
    place.configure(
        "[provider_limits]\nmax_response_bytes = 100000000\n"
        "max_assistant_bytes = 50000000"
    )
    piece = "".join(f"{number:07} " for number in range(4000))
    steps = [delta(piece) for _ in range(420)]  # 13 MB: more than sockets may hold
    gate = Reached()
    place.model.raw(*steps, gate, completed(USAGE))

    async with place.server() as scv:
        session = await scv.create()
        other = await scv.create()
        await scv.until(lambda: session.follower.epoch and other.follower.epoch)
        turn = await session.start()
        scv.stream.reading = anyio.Event()
        await anyio.to_thread.run_sync(gate.is_reached.wait, 60)
        scv.stream.reading.set()

        def lagged() -> Json | None:
            return next(
                (params for name, params in scv.notifications if "lagged" in name), None
            )

        notice = await scv.until(lagged)
        assert notice["sessionId"] == session.id
        assert notice["lastSent"] == session.follower.last
        await catch_up(scv, session.follower)
        gate.set()
        await session.end(turn)

        await other.works(place.model)
        await session.works(place.model)


async def catch_up(scv: Scv, follower: Any) -> None:
    """Fetch what a lagging stream has left out, as a client does."""
    page: Json = {"complete": False}
    while not page["complete"]:
        page = await scv.call(
            "session/replay",
            sessionId=follower.session_id,
            epoch=follower.epoch,
            after=follower.last,
        )
        if page["to"] > follower.last:
            follower.take(page)
