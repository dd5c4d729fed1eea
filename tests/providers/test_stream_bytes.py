"""Hazards SSE: the bytes of a provider's stream, over HTTP."""

import gzip
import threading
import zlib

import pytest

from scv.core.history import UserEntry
from scv.core.ports import ModelRequest, TextDelta
from scv.errors import ProviderProtocol
from scv.providers import ModelEndpoints
from tests.fakes.model_server import (
    CLOSE,
    RESET,
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


def reply(text: str) -> bytes:
    return delta(text) + done(message(text)) + completed()


async def first_text_opens(server, gate, *, then=1, **options):
    """Ask; open the gate when the first delta is there, so that it cannot wait."""
    seen = []
    async with ModelEndpoints() as endpoints:
        model = open_model(endpoints, server, **options)
        request = ModelRequest("", [UserEntry("hi")], [], "s_1")
        async for event in model.respond(request):
            if isinstance(event, TextDelta):
                seen.append(event.text)
                if len(seen) == then:
                    gate.set()
    return seen


async def test_sse_1_character_split_over_two_chunks():
    stream = reply("你好")
    middle = stream.index("你".encode()) + 1
    gate = threading.Event()
    async with ModelServer() as server:
        server.raw(delta("a") + stream[:middle], gate, stream[middle:])

        seen = await first_text_opens(server, gate)

    assert "".join(seen) == "a你好"


async def test_sse_2_crlf_and_missing_blank():
    stream = reply("hello").replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    async with ModelServer() as server:
        server.raw(stream)
        server.raw(*(stream[i : i + 1] for i in range(len(stream))))

        for _ in range(2):
            outcome = await ask(server)
            assert outcome.text == "hello"
            assert outcome.done.stop == "end"


async def test_sse_3_line_separators_inside_json():
    text = "a\u2028b\u2029c\x85d"
    async with ModelServer() as server:
        server.raw(reply(text))

        outcome = await ask(server)

    assert outcome.text == text
    assert outcome.done.message.text == text


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_sse_4_no_content_type(framing):
    async with ModelServer() as server:
        server.raw(reply("hello"), headers={}, framing=framing)

        outcome = await ask(server)

    assert outcome.done.message.text == "hello"


async def test_sse_5_comments_and_empty_events():
    noise = b': ping\n\nevent: ping\ndata: {}\n\ndata:\n\ndata: {"type":"ping"}\n\n'
    async with ModelServer() as server:
        server.raw(
            noise, delta("a"), noise, done(message("a")), noise, completed(), noise
        )

        outcome = await ask(server)

    assert outcome.done.message.text == "a"


@pytest.mark.parametrize("mark", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b""])
async def test_sse_6_done_mark_is_optional(mark):
    async with ModelServer() as server:
        server.raw(reply("a") + mark, framing="close")
        server.raw(reply("b"), mark, CLOSE)

        assert (await ask(server)).done.message.text == "a"
        assert (await ask(server)).done.message.text == "b"


async def test_sse_6_done_mark_alone_is_not_an_end():
    async with ModelServer() as server:
        server.raw(delta("a") + b"data: [DONE]\n\n" + completed())

        outcome = await ask(server)

    assert outcome.text == "a"
    assert isinstance(outcome.failure, ProviderProtocol)


async def test_sse_7_byte_order_mark_first():
    mark = b"\xef\xbb\xbf"
    async with ModelServer() as server:
        server.raw(mark + reply("hello"))
        server.raw(mark[:1], mark[1:], reply("hello"))

        for _ in range(2):
            assert (await ask(server)).text == "hello"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_sse_8_compressed_stream(coding):
    packer = zlib.compressobj(wbits=31 if coding == "gzip" else 15)
    parts = [
        packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
        for part in (delta("one "), delta("two"), done(message("one two")), completed())
    ]
    gate = threading.Event()
    async with ModelServer() as server:
        server.raw(
            parts[0],
            gate,
            *parts[1:],
            packer.flush(),
            headers={"content-encoding": coding},
        )

        seen = await first_text_opens(server, gate)

        assert seen == ["one ", "two"]
        offered = server.requests[0].headers["accept-encoding"]
        assert set(offered.split(", ")) <= {"identity", "gzip", "deflate"}


async def test_sse_8_unknown_and_damaged_packing_are_errors():
    async with ModelServer() as server:
        server.raw(reply("a"), headers={"content-encoding": "br"})
        server.raw(b"not gzip", headers={"content-encoding": "gzip"})

        for _ in range(2):
            outcome = await ask(server)
            assert isinstance(outcome.failure, ProviderProtocol)
            assert not outcome.retries


async def test_sse_8_a_bomb_is_stopped_by_the_response_limit():
    bomb = gzip.compress(b": " + b"x" * 50_000_000 + b"\n\n")
    async with ModelServer() as server:
        server.raw(bomb, headers={"content-encoding": "gzip"})

        outcome = await ask(server)

    assert outcome.failure.code == "response_limit"


@pytest.mark.parametrize("end", [RESET, CLOSE])
@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_sse_9_cut_in_the_middle(end, framing):
    half = delta("never seen whole")
    call = sse({"type": "response.output_item.added", "output_index": 1,
                "item": function_call("bash", "", "c1")})  # fmt: skip
    arguments = sse({"type": "response.function_call_arguments.delta",
                     "output_index": 1, "delta": '{"command": "rm'})  # fmt: skip
    gate = threading.Event()
    async with ModelServer() as server:
        server.raw(delta("part"), half[: len(half) // 2], gate, end, framing=framing)
        server.raw(delta("part"), call, arguments, gate, end, framing=framing)

        for _ in range(2):
            gate.clear()
            async with ModelEndpoints() as endpoints:
                model = open_model(endpoints, server)
                events, caught = [], None
                request = ModelRequest("", [UserEntry("hi")], [], "s_1")
                try:
                    async for event in model.respond(request):
                        events.append(event)
                        gate.set()
                except ProviderProtocol as error:
                    caught = error

            assert events == [TextDelta("part")]
            assert caught is not None
            assert "incomplete" in caught.message
        assert len(server.requests) == 2


async def test_a_broken_chunk_frame_is_an_error_not_text():
    async with ModelServer() as server:
        server.raw(
            b"zz\r\nrubbish\r\n",
            headers={"transfer-encoding": "chunked"},
            framing="close",
        )

        outcome = await ask(server)

    assert isinstance(outcome.failure, ProviderProtocol)
    assert "framing" in outcome.failure.message


async def test_deltas_of_one_read_arrive_as_one_event():
    async with ModelServer() as server:
        server.raw(b"".join(delta(f"{i} ") for i in range(100)) + completed())

        outcome = await ask(server)

    texts = [e for e in outcome.events if isinstance(e, TextDelta)]
    assert outcome.text == "".join(f"{i} " for i in range(100))
    assert len(texts) <= 3  # 100 where nothing was merged


async def test_a_connection_is_used_again_after_a_whole_answer():
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        for number in range(5):
            server.say(f"answer {number}")
            assert (await ask_model(model)).text == f"answer {number}"

        assert server.connections == 1
