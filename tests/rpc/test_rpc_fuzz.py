"""Random traffic: every request gets one answer, and nothing stops the peer.

The seed is printed; SCV_SEED repeats a run.
"""

import json
import random
from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from scv.rpc import encode_frame
from tests.rpc.ends import TRANSPORTS, serving

pytestmark = pytest.mark.anyio

SCRAPS: list[Any] = [
    *(None, True, 0, -1, 2**40, 1.5, "", "x", "\ud800", "🍸", [], {}, [[]], [1, 2]),
    *({"id": 1}, {"jsonrpc": "2.0"}, "echo", "hold", "raise", "$/cancelRequest", "2.0"),
]


def any_message(rng: random.Random, next_id: int) -> tuple[Any, bool]:
    """Make a message; tell whether it is a request that must be answered by id."""
    kind = rng.random()
    if kind < 0.4:
        method = rng.choice(["echo", "hold", "no/such", "$/no"])
        message = {"jsonrpc": "2.0", "id": next_id, "method": method}
        if rng.random() < 0.7:
            message["params"] = rng.choice([[], {}, [rng.choice(SCRAPS)]])
        return message, True
    if kind < 0.6:
        params = {"id": rng.choice([next_id - rng.randrange(9), rng.choice(SCRAPS)])}
        return {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": params}, False
    fields = ["jsonrpc", "id", "method", "params", "result", "error"]
    message = {
        field: rng.choice(SCRAPS) for field in rng.sample(fields, rng.randrange(7))
    }
    if rng.random() < 0.7:
        message["jsonrpc"] = "2.0"
    if type(message.get("id")) is int and "method" in message:
        message["id"] = None  # numbers are the counted requests
    return message, False


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_random_messages_are_answered_once_each(
    transport: str, seed: int
) -> None:
    rng = random.Random(seed)
    async with serving(transport) as (desk, raw):
        sent, answers = set(), Counter[Any]()

        async def read() -> None:
            while True:
                message = await raw.next()
                if "method" not in message:
                    answers[message["id"]] += 1
                    if message["id"] == "last":
                        return

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            stream = b""
            for n in range(100, 1100):
                message, is_counted = any_message(rng, n)
                if is_counted:
                    sent.add(n)
                stream += encode_frame(json.dumps(message).encode())
            while stream:
                size = rng.choice([1, 10, 1000, 10000])
                raw.stream.write(stream[:size])
                stream = stream[size:]
                if rng.random() < 0.3:
                    await anyio.lowlevel.checkpoint()
            raw.notify("open")
            while not desk.opened.is_set():
                await anyio.lowlevel.checkpoint()
            raw.call("last", "echo")

        assert {id: answers[id] for id in sent} == dict.fromkeys(sent, 1)
        assert await raw.works()


async def test_random_bytes_never_raise_out_of_the_peer(seed: int) -> None:
    rng = random.Random(seed)
    good = encode_frame(
        b'{"jsonrpc":"2.0","id":1,"method":"echo","params":["\\u00e9"]}'
    )
    for _ in range(300):
        async with serving() as (desk, raw):
            data = bytearray(good * 3)
            for _ in range(rng.randrange(1, 6)):
                at = rng.randrange(len(data))
                data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
            raw.stream.write(bytes(data))
            await raw.stream.aclose()
            while not desk.peer.is_closed:
                await anyio.lowlevel.checkpoint()
