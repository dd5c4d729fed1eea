"""The known ways to lose or break a JSON-RPC connection, over real pipes."""

import json
import tracemalloc
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from scv.errors import InvalidParams
from scv.rpc import FrameDecoder, Params, encode_frame
from tests.rpc.ends import serving, talking

pytestmark = pytest.mark.anyio


async def test_rpc_1_lower_case_framing_header() -> None:
    async with serving("pipes") as (_, raw):
        body = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":[]}'
        assert len(body) == 52
        raw.stream.write(b"content-length: 52\r\n\r\n" + body)

        assert await raw.next() == {"jsonrpc": "2.0", "id": 1, "result": []}


@pytest.mark.parametrize("charset", ["utf8", "utf-8", "UTF-8"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_rpc_2_content_type_header(charset: str, is_first: bool) -> None:
    async with serving("pipes") as (_, raw):
        body = '{"jsonrpc":"2.0","id":1,"method":"echo","params":["é"]}'.encode()
        lines = [
            f"Content-Type: application/vscode-jsonrpc; charset={charset}",
            f"Content-Length: {len(body)}",
        ]
        header = "\r\n".join(lines if is_first else lines[::-1]) + "\r\n\r\n"
        raw.stream.write(header.encode() + body)

        assert (await raw.next())["result"] == ["é"]


async def test_rpc_3_length_in_bytes_not_characters() -> None:
    async with serving("pipes") as (desk, raw):
        text = "你好 🍸 é"
        desk.peer.notify("first", {"text": text})
        desk.peer.notify_encoded("second", json.dumps([text]).encode())
        desk.peer.notify("third", [text])
        sent = b""
        while sent.count(b"jsonrpc") < 3:
            sent += await raw.stream.receive()

        for _ in range(3):
            header, _, rest = sent.partition(b"\r\n\r\n")
            length = int(header.removeprefix(b"Content-Length: "))
            assert text in json.dumps(
                json.loads(rest[:length].decode()), ensure_ascii=False
            )
            sent = rest[length:]
        assert sent == b""
        raw.stream.write(
            2
            * encode_frame(
                f'{{"jsonrpc":"2.0","method":"note","params":["{text}"]}}'.encode()
            )
        )
        assert await raw.works()
        assert desk.seen[:2] == [("note", [text])] * 2


async def test_rpc_4_malformed_json_body() -> None:
    async with serving("pipes") as (_, raw):
        raw.stream.write(encode_frame(b'{"jsonrpc":"2.0",'))

        assert await raw.error() == (None, -32700)
        assert await raw.works(4)


async def test_rpc_5_batch_array() -> None:
    async with serving("pipes") as (desk, raw):
        call = {"jsonrpc": "2.0", "method": "echo", "params": []}
        raw.send([{**call, "id": 2}, {**call, "id": 3}])
        raw.send([])

        assert await raw.error() == (None, -32600)
        assert await raw.error() == (None, -32600)
        assert desk.seen == []
        assert await raw.works()


async def test_rpc_6_id_null_and_missing_jsonrpc() -> None:
    async with serving("pipes") as (desk, raw):
        raw.call(None, "echo", [])
        raw.send({"id": 7, "method": "echo"})

        assert await raw.error() == (None, -32600)
        assert await raw.error() == (7, -32600)
        assert desk.seen == []
        assert await raw.works()


@pytest.mark.parametrize("id", [0, ""])
async def test_rpc_7_id_0(id: Any) -> None:
    async with serving("pipes") as (_, raw):
        raw.call(id, "hold", [])
        assert (await raw.next())["method"] == "holding"
        raw.notify("$/cancelRequest", {"id": id})

        assert await raw.error() == (id, -32800)
        assert await raw.works(id)


async def test_rpc_8_unknown_methods_and_notifications() -> None:
    async with serving("pipes") as (desk, raw):
        raw.call(1, "no/such")
        raw.notify("no/such2")
        raw.notify("$/whatever", {"x": 1})
        raw.call(2, "$/whatever")
        raw.call(3, "$/cancelRequest", {"id": 1})

        assert [await raw.error() for _ in range(3)] == [(n, -32601) for n in (1, 2, 3)]
        assert await raw.works()
        assert desk.seen[-1] == "echo"


async def test_rpc_8_both_ends_ignore_unknown_notifications() -> None:
    async with talking("pipes") as (one, other):
        for desk in (one, other):
            desk.peer.notify("no/such")
            desk.peer.notify("$/whatever")

        assert await one.peer.request("echo", [1]) == [1]
        assert await other.peer.request("echo", [2]) == [2]


@pytest.mark.parametrize("transport", ["pipes", "unix"])
async def test_rpc_9_huge_declared_length(transport: str) -> None:
    async with serving(transport) as (_, bystander):
        async with serving(transport) as (desk, raw):
            tracemalloc.start()
            raw.stream.write(b"Content-Length: 99999999999\r\n\r\n")

            assert await raw.error() == (None, 4261)
            assert await raw.next() is None
            assert tracemalloc.get_traced_memory()[1] < 5_000_000
            tracemalloc.stop()
            assert desk.peer.is_closed
        assert await bystander.works()


async def test_rpc_12_params_of_the_wrong_shape() -> None:
    async with serving("pipes") as (desk, raw):

        async def measure(params: Params) -> Any:
            if not isinstance(params, dict) or type(params.get("n")) is not int:
                raise InvalidParams(
                    "n must be a number",
                    data={"code": "params.invalid", "path": "n", "retryable": False},
                )
            return params["n"]

        desk.services["measure"] = measure
        for id, params in enumerate([[1, 2], None, {"n": "1"}, {}]):
            raw.call(id, "measure", params)
            answer = await raw.next()
            assert (answer["id"], answer["error"]["code"]) == (id, -32602)
            assert answer["error"]["data"]["path"] == "n"
            assert answer["error"]["data"]["retryable"] is False
        raw.call(9, "measure", {"n": 3, "extra": {}})
        assert (await raw.next())["result"] == 3
        raw.call(10, "measure", 5)
        assert await raw.error() == (10, -32600)


async def test_a_key_jsonrpc_inside_params_is_only_a_key() -> None:
    async with serving("pipes") as (_, raw):
        params = {
            "jsonrpc": "1.0",
            "nested": {"jsonrpc": "2.0", "id": 9, "method": "x"},
        }
        raw.call(1, "echo", params)

        assert (await raw.next())["result"] == params


async def test_input_cut_inside_a_frame_ends_the_peer() -> None:
    frame = encode_frame(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":[]}')
    for cut in range(len(frame)):
        async with serving("memory") as (desk, raw):
            raw.stream.write(frame[:cut])
            await raw.stream.aclose()
            with anyio.fail_after(10):
                while not desk.peer.is_closed:
                    await anyio.lowlevel.checkpoint()
            assert desk.seen == []


def test_a_decoder_that_refused_keeps_nothing() -> None:
    decoder = FrameDecoder(10)
    decoder.feed(b"Content-Length: 11\r\n\r\n")
    assert decoder.feed(b"x" * 100_000) == []
