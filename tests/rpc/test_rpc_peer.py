"""The peer: one answer to every request, order, cancellation, bounds, endings."""

import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from scv.errors import ConnectionLost, FrameTooLarge, InvalidParams
from scv.rpc import Limits, Params, Peer, RemoteError, encode_frame, memory_pair
from tests.rpc.ends import TRANSPORTS, Desk, Raw, connected, serving, talking

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_both_ends_ask_and_answer_at_once(transport: str) -> None:
    async with talking(transport) as (one, other):
        answers: dict[tuple[Desk, int], Any] = {}

        async def ask(desk: Desk, n: int) -> None:
            answers[desk, n] = await desk.peer.request("echo", {"n": n, "text": "é🍸"})

        async with anyio.create_task_group() as tasks:
            for n in range(50):
                tasks.start_soon(ask, one, n)
                tasks.start_soon(ask, other, n)

        assert answers == {
            (desk, n): {"n": n, "text": "é🍸"}
            for desk in (one, other)
            for n in range(50)
        }


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_message_of_the_largest_size_arrives_whole(transport: str) -> None:
    async with talking(transport) as (one, _):
        text = "é" * (4 * 1024 * 1024 - 100)

        assert await one.peer.request("echo", [text]) == [text]


async def test_an_error_of_the_remote_keeps_code_message_and_data() -> None:
    async with talking() as (one, other):

        async def refuse(params: Params) -> Any:
            raise InvalidParams("a number belongs here", data={"path": "a.b"})

        other.services["refuse"] = refuse
        with pytest.raises(RemoteError) as caught:
            await one.peer.request("refuse")

        assert caught.value.code == -32602
        assert caught.value.message == "a number belongs here"
        assert caught.value.data == {"path": "a.b"}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"error": {"code": 5, "message": "m", "data": [1]}}, 5),
        ({"error": {"code": "x"}}, -32600),
        ({"error": "text"}, -32600),
        ({"result": {"decision": "allow"}, "error": {"code": 6}}, 6),
        ({"error": None}, -32600),
        ({}, -32600),
        ({"result": 1, "jsonrpc": "1.0"}, -32600),
    ],
)
async def test_a_strange_answer_is_an_error_and_never_a_result(
    answer: dict[str, Any], code: int
) -> None:
    async with serving() as (desk, raw), anyio.create_task_group() as tasks:
        caught: list[int] = []

        async def ask() -> None:
            try:
                await desk.peer.request("approve")
            except RemoteError as error:
                caught.append(error.code)

        tasks.start_soon(ask)
        question = await raw.next()
        raw.send({"jsonrpc": "2.0", "id": question["id"], **answer})

        assert await raw.works()
        assert caught == [code]


async def test_a_null_error_beside_a_result_is_a_result() -> None:
    async with serving() as (desk, raw), anyio.create_task_group() as tasks:
        results: list[Any] = []

        async def ask() -> None:
            results.append(await desk.peer.request("approve"))

        tasks.start_soon(ask)
        question = await raw.next()
        answer = {"id": question["id"], "result": None, "error": None}
        raw.send({"jsonrpc": "2.0", **answer})

        assert await raw.works()
        assert results == [None]


async def test_answers_to_nothing_are_ignored() -> None:
    async with serving() as (_, raw):
        for id in (99, "99", None):
            raw.send({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "m"}})
        raw.send({"jsonrpc": "2.0", "id": 99, "result": 1})
        raw.send({"jsonrpc": "2.0", "id": 1.0, "result": 1})
        raw.send({"id": 1, "result": 1})

        assert await raw.works()


async def test_an_id_without_anything_else_gets_an_answer() -> None:
    async with serving() as (_, raw):
        raw.send({"jsonrpc": "2.0", "id": 5})
        raw.send({"jsonrpc": "2.0"})

        assert await raw.error() == (5, -32600)
        assert await raw.error() == (None, -32600)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_cancel_from_the_remote_ends_the_handler_then_answers(
    transport: str,
) -> None:
    async with serving(transport) as (desk, raw):
        raw.call("a", "hold", {"who": "a"})
        assert (await raw.next())["method"] == "holding"

        raw.notify("$/cancelRequest", {"id": "a"})

        assert await raw.error() == ("a", -32800)
        assert desk.cleaned_up.is_set()
        raw.notify("$/cancelRequest", {"id": "a"})  # late: hits nothing
        assert await raw.works("a")


async def test_a_cancel_right_behind_its_request_hits_it() -> None:
    async with serving() as (_, raw):
        raw.call(1, "hold", [])
        raw.notify("$/cancelRequest", {"id": 1})

        assert (await raw.next())["method"] == "holding"  # it had started
        assert await raw.error() == (1, -32800)


async def test_a_cancel_never_touches_our_own_request_of_the_same_id() -> None:
    async with serving() as (desk, raw), anyio.create_task_group() as tasks:
        results: list[Any] = []

        async def ask() -> None:
            results.append(await desk.peer.request("approve"))

        tasks.start_soon(ask)
        question = await raw.next()
        for params in ({"id": question["id"]}, {"id": None}, {"id": []}, [1], {}):
            raw.notify("$/cancelRequest", params)
        assert await raw.works()
        raw.send({"jsonrpc": "2.0", "id": question["id"], "result": "yes"})
        assert await raw.works()

        assert results == ["yes"]


async def test_a_request_that_ends_its_work_despite_a_cancel_gives_its_result() -> None:
    async with serving() as (desk, raw):

        async def commit(params: Params) -> str:
            with anyio.CancelScope(shield=True):
                desk.peer.notify("committing")
                await desk.opened.wait()
            return "committed"

        desk.services["commit"] = commit
        raw.call(1, "commit")
        assert (await raw.next())["method"] == "committing"
        raw.notify("$/cancelRequest", {"id": 1})
        raw.notify("open")

        assert (await raw.next())["result"] == "committed"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_leaving_a_wait_withdraws_the_request(transport: str) -> None:
    async with talking(transport) as (one, other), anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def ask() -> None:
            with scope:
                await one.peer.request("hold", {})

        tasks.start_soon(ask)
        while "hold" not in other.seen:
            await one.peer.request("echo")
        scope.cancel()
        await other.cleaned_up.wait()

        # The answer -32800 to it is ignored and the connection goes on.
        assert await one.peer.request("echo", [1]) == [1]


async def test_leaving_after_the_answer_came_withdraws_nothing() -> None:
    async with serving() as (desk, raw):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.peer.request, "a")
                question = await raw.next()
                raw.send({"jsonrpc": "2.0", "id": question["id"], "result": 1})
                raw.notify("arrived")
                while ("arrived", None) not in desk.seen:
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

        assert await raw.works()


async def test_an_answer_may_cross_the_withdrawal_of_its_request() -> None:
    async with serving() as (desk, raw):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.peer.request, "a")
                question = await raw.next()
                raw.send({"jsonrpc": "2.0", "id": question["id"], "result": 1})
                scope.cancel()

        assert await raw.works()


async def test_messages_are_acted_on_in_the_order_of_their_frames() -> None:
    async with serving() as (desk, raw):
        for n in range(20):
            raw.call(n, "echo", [n])
            raw.notify("note", [n])
        answers = [await raw.next() for _ in range(20)]

        assert [answer["id"] for answer in answers] == list(range(20))
        while ("note", [19]) not in desk.seen:
            await anyio.lowlevel.checkpoint()
        assert desk.seen == [
            seen for n in range(20) for seen in ("echo", ("note", [n]))
        ]


async def test_an_answer_comes_behind_what_its_handler_sent() -> None:
    async with serving("pipes") as (desk, raw):

        async def work(params: Params) -> str:
            for n in range(300):
                desk.peer.notify_encoded(
                    "event", b'{"n":%d,"t":"%b"}' % (n, b"x" * 900)
                )
            return "done"

        desk.services["work"] = work
        raw.call(1, "work")
        messages = [await raw.next() for _ in range(301)]

        assert [m["params"]["n"] for m in messages[:-1]] == list(range(300))
        assert messages[-1] == {"jsonrpc": "2.0", "id": 1, "result": "done"}


async def test_a_bug_in_a_handler_is_answered_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (desk, raw):

        async def fail(params: Params) -> Any:
            raise KeyError("s3cret")

        async def fail_in_a_group(params: Params) -> Any:
            async with anyio.create_task_group():
                raise KeyError("s3cret")

        async def no_json(params: Params) -> Any:
            return {"at": object()}

        async def no_number(params: Params) -> Any:
            return float("nan")

        async def endless(params: Params) -> Any:
            knot: list[Any] = []
            knot.append(knot)
            return knot

        async def cancelled(params: Params) -> Any:
            raise anyio.get_cancelled_exc_class()("s3cret")

        cases = {fail, fail_in_a_group, no_json, no_number, endless, cancelled}
        with caplog.at_level(logging.DEBUG):
            for handler in cases:
                desk.services["bug"] = handler
                raw.call(handler.__name__, "bug", {"token": "s3cret"})
                answer = await raw.next()
                assert answer["id"] == handler.__name__
                code = -32800 if handler is cancelled else -32603
                assert answer["error"]["code"] == code
                assert "s3cret" not in str(answer)
                assert "Traceback" not in str(answer)
        raw.notify("raise", {"token": "s3cret"})

        assert await raw.works()
        assert "s3cret" not in caplog.text
        assert "'fail'" in caplog.text
        assert "KeyError" in caplog.text


async def test_an_error_that_the_remote_gave_a_handler_is_not_passed_on_as_ours() -> (
    None
):
    async with serving() as (desk, raw):

        async def ask_back(params: Params) -> Any:
            return await desk.peer.request("unknown to you")

        desk.services["ask back"] = ask_back
        raw.call(1, "ask back")
        question = await raw.next()
        error = {"code": -32601, "message": "no"}
        raw.send({"jsonrpc": "2.0", "id": question["id"], "error": error})

        assert await raw.error() == (1, -32603)


async def test_a_request_with_the_id_of_an_open_one_is_refused() -> None:
    async with serving() as (desk, raw):
        raw.call(1, "hold", [])
        raw.call(1, "echo", [])
        raw.call("1", "echo", [])

        assert (await raw.next())["method"] == "holding"
        assert await raw.error() == (1, -32600)
        assert (await raw.next())["id"] == "1"
        raw.notify("open")
        assert (await raw.next())["result"] == "released"
        assert desk.seen == ["hold", "echo", ("open", None)]


async def test_open_requests_of_the_remote_are_bounded() -> None:
    async with serving() as (_, raw):
        for n in range(66):
            raw.call(n, "hold", [])
        messages = [await raw.next() for _ in range(66)]

        refused = [m for m in messages if "error" in m]
        assert [m["id"] for m in refused] == [64, 65]
        assert refused[0]["error"]["code"] == 4262
        assert refused[0]["error"]["data"]["code"] == "limit.count"
        raw.notify("$/cancelRequest", {"id": 3})
        assert await raw.error() == (3, -32800)
        raw.notify("open")
        assert [(await raw.next())["result"] for _ in range(63)] == ["released"] * 63
        assert await raw.works()


async def test_our_open_requests_are_bounded_and_the_next_waits_for_a_slot() -> None:
    async with serving() as (desk, raw):
        async with anyio.create_task_group() as tasks:
            for n in range(40):
                tasks.start_soon(desk.peer.request, "ask", [n])
            asked = [await raw.next() for _ in range(32)]
            assert await raw.works()  # nothing more came before this

            for question in asked[:8]:
                raw.send({"jsonrpc": "2.0", "id": question["id"], "result": 1})
            asked += [await raw.next() for _ in range(8)]
            assert sorted(question["params"][0] for question in asked) == [*range(40)]
            for question in asked[8:]:
                raw.send({"jsonrpc": "2.0", "id": question["id"], "result": 1})


async def test_what_is_too_large_to_send_is_refused_where_it_was_made() -> None:
    limits = Limits(frame_out_bytes=1000)
    async with serving(limits=limits) as (desk, raw):
        desk.services["big"] = lambda params: desk.echo(["é" * 500])

        raw.call(1, "big")
        answer = await raw.next()
        assert (answer["id"], answer["error"]["code"]) == (1, 4261)
        assert answer["error"]["data"]["maxBytes"] == 1000
        with pytest.raises(FrameTooLarge):
            desk.peer.notify("event", ["x" * 1000])
        with pytest.raises(FrameTooLarge):
            desk.peer.notify_encoded("event", b'"%b"' % (b"x" * 1000))
        with pytest.raises(FrameTooLarge):
            await desk.peer.request("event", ["x" * 1000])
        assert await raw.works()


async def test_three_bodies_in_a_row_that_are_no_json_end_the_connection() -> None:
    async with serving("socketpair") as (desk, raw):
        bad = b"Content-Length: 1\r\n\r\n{"
        raw.stream.write(bad + bad)
        raw.call(1, "echo", [])
        raw.stream.write(bad + bad + bad)
        raw.call(2, "echo", [])

        assert [await raw.error() for _ in range(2)] == [(None, -32700)] * 2
        assert (await raw.next())["id"] == 1
        assert [await raw.error() for _ in range(3)] == [(None, -32700)] * 3
        assert await raw.next() is None
        assert desk.seen == ["echo"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_closing_fails_what_waits_and_cancels_what_is_served(
    transport: str,
) -> None:
    async with talking(transport) as (one, other):
        outcomes: list[str] = []

        async def ask() -> None:
            try:
                await one.peer.request("hold", [])
            except ConnectionLost:
                outcomes.append("lost")

        async with anyio.create_task_group() as tasks:
            for _ in range(40):  # more than there are slots
                tasks.start_soon(ask)
            while other.seen.count("hold") < 32:
                await anyio.lowlevel.checkpoint()
            one.peer.close()

        assert outcomes == ["lost"] * 40
        await other.cleaned_up.wait()
        with pytest.raises(ConnectionLost):
            await one.peer.request("echo")
        one.peer.notify("goes nowhere")
        assert one.peer.is_closed


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_end_of_input_in_the_middle_of_a_request_ends_its_handler(
    transport: str,
) -> None:
    async with serving(transport) as (desk, raw):
        raw.call(1, "hold", [])
        assert (await raw.next())["method"] == "holding"

        raw.stream.write(b'Content-Length: 100\r\n\r\n{"jsonrpc":')
        await raw.stream.aclose()

        await desk.cleaned_up.wait()
        await desk.peer.drained()


async def test_requests_open_at_the_end_are_answered_as_cancelled() -> None:
    async with serving("socketpair") as (desk, raw):
        raw.call(1, "hold", [])
        assert (await raw.next())["method"] == "holding"

        desk.peer.close()

        assert await raw.error() == (1, -32800)
        assert await raw.next() is None


async def test_nothing_behind_the_message_that_closes_is_acted_on() -> None:
    async with serving() as (desk, raw):
        body = b'{"jsonrpc":"2.0","method":"%b","params":[]}'
        raw.stream.write(encode_frame(body % b"exit") + encode_frame(body % b"note"))

        assert await raw.next() is None
        assert desk.seen == [("exit", [])]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_cancelling_the_owner_answers_and_hangs_up(transport: str) -> None:
    with anyio.fail_after(60):
        async with connected(transport) as (here, there):
            desk, raw = Desk(), Raw(there)
            desk.peer = Peer(here, desk)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(desk.peer.run)
                raw.call(1, "hold", [])
                assert (await raw.next())["method"] == "holding"
                tasks.cancel_scope.cancel()

            assert desk.cleaned_up.is_set()
            assert await raw.error() == (1, -32800)
            assert await raw.next() is None


async def test_a_peer_that_was_closed_before_it_ran_ends_at_once() -> None:
    desk = Desk()
    here, there = memory_pair()
    desk.peer = Peer(here, desk)
    desk.peer.close()
    with anyio.fail_after(10):
        await desk.peer.run()
        assert await there.receive() == b""
