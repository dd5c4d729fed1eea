"""Hazards RETRY, HIST.5 and TURN.8: how an endpoint fails, and what is said."""

import email.utils
import ssl
import sys
import threading
import time

import anyio
import pytest

from scv.config.settings import ProviderLimits
from scv.core.history import UserEntry
from scv.core.ports import ModelRequest, RetryScheduled, TextDelta
from scv.errors import ProviderProtocol, ProviderRejected, ProviderUnreachable
from scv.providers import ModelEndpoints
from tests.fakes.model_server import (
    CLOSE,
    HANG,
    RESET,
    ModelServer,
    delta,
)
from tests.providers.asking import ask, ask_model, open_model

pytestmark = pytest.mark.anyio

NO_RETRIES = ProviderLimits(max_retries=0)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_1_retry_after_in_seconds(status):
    async with ModelServer() as server:
        server.fail(status, {"error": "busy"}, headers={"Retry-After": "2"})
        server.say("ok")
        began = time.monotonic()

        outcome = await ask(server)

        assert time.monotonic() - began >= 2
        assert outcome.text == "ok"
        (retry,) = outcome.retries
        assert retry.delay_seconds == 2
        assert str(status) in retry.reason


async def test_retry_1_retry_after_as_a_date():
    date = email.utils.formatdate(time.time() + 3, usegmt=True)
    async with ModelServer() as server:
        server.fail(503, headers={"Retry-After": date})
        server.say("ok")

        outcome = await ask(server)

        assert outcome.text == "ok"
        assert 1 < outcome.retries[0].delay_seconds <= 3


@pytest.mark.parametrize("value", ["nonsense", "nan", "", "-5", "Mon, 99 Foo"])
async def test_retry_1_an_unreadable_retry_after_counts_as_none(value):
    async with ModelServer() as server:
        server.fail(503, headers={"Retry-After": value})
        server.say("ok")

        outcome = await ask(server)

        assert outcome.text == "ok"
        assert outcome.retries[0].delay_seconds < 1


async def test_retry_1_a_long_wait_is_reported_instead_of_slept():
    async with ModelServer() as server:
        server.fail(429, {"error": "busy"}, headers={"Retry-After": "61"})

        outcome = await ask(server)

        assert "61 seconds" in outcome.failure.message
        assert outcome.failure.retry_after_seconds == 61
        assert outcome.failure.retryable
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
async def test_retry_2_overloaded(status):
    async with ModelServer() as server:
        server.fail(status)
        server.fail(status)
        server.say("ok")
        for _ in range(3):
            server.fail(status, {"error": {"message": "overloaded, sorry"}})

        outcome = await ask(server, retry_base_seconds=0.01)
        assert outcome.text == "ok"
        assert [retry.attempt for retry in outcome.retries] == [1, 2]
        first, second = (retry.delay_seconds for retry in outcome.retries)
        assert 0.005 <= first < 0.015
        assert 0.01 <= second < 0.03

        outcome = await ask(server)
        assert outcome.failure.status == status
        assert str(status) in outcome.failure.message
        assert "3 attempts" in outcome.failure.message
        assert "overloaded, sorry" in outcome.failure.message
        assert len(server.requests) == 6


async def test_no_retries_means_one_request():
    async with ModelServer() as server:
        server.fail(503)

        outcome = await ask(server, limits=NO_RETRIES)

        assert outcome.failure.status == 503
        assert len(server.requests) == 1


async def test_waiting_for_a_retry_can_be_cancelled():
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        server.fail(503, headers={"Retry-After": "50"})
        model = open_model(endpoints, server)
        request = ModelRequest("", [UserEntry("hi")], [], "s_1")
        began = time.monotonic()

        with anyio.CancelScope() as scope:
            async for event in model.respond(request):
                assert isinstance(event, RetryScheduled)
                scope.cancel()

        assert scope.cancelled_caught
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "echo",
    [
        "sk-abc…xyz",
        "sk-abc...xyz",
        "sk-abc***xyz",
        "{key}",
        "{head}****{tail}",
        "'{head}'",
    ],
)
async def test_retry_3_authentication(status, echo):
    async with ModelServer() as server:
        echo = echo.format(key=server.key, head=server.key[:9], tail=server.key[-4:])
        text = f"Incorrect API key provided: {echo}. Find yours at https://h/keys."
        server.fail(status, {"error": {"message": text, "code": "invalid_api_key"}})

        outcome = await ask(server)

        message = outcome.failure.message
        assert len(server.requests) == 1
        assert "sign-in problem" in message
        assert "api_key" in message
        assert "OPENAI_API_KEY" in message
        assert "Incorrect API key provided" in message
        assert echo not in message
        for piece in ("sk-", "abc", "xyz", server.key[:6], server.key[-4:]):
            assert piece not in message
        assert outcome.failure.status == status


async def test_retry_4_html_error_page():
    page = (
        b"<!DOCTYPE html><html><body>" + b"10.1.2.3 ray 7f00 " * 350 + b"</body></html>"
    )
    async with ModelServer() as server:
        for _ in range(3):
            server.raw(
                page,
                status=502,
                headers={"content-type": "text/html"},
                framing="length",
            )

        outcome = await ask(server)

    message = outcome.failure.message
    assert "502" in message
    assert f"127.0.0.1:{server.port}" in message
    assert len(message) < 200
    assert "10.1.2.3" not in message
    assert "ray" not in message
    assert not any("10.1.2.3" in retry.reason for retry in outcome.retries)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"<html>sign in to the hotel</html>", {"content-type": "text/html"}),
        (b"<html>no type</html>", {}),
        (b'{"hello": 1}', {"content-type": "application/json"}),
        (b'{"hello": 1, "x": "' + b"y" * 10_000 + b'"}', {}),
    ],
)
async def test_a_page_or_document_instead_of_a_stream_is_one_clear_error(body, headers):
    async with ModelServer() as server:
        server.raw(body, headers=headers, framing="length")

        outcome = await ask(server)

        assert isinstance(outcome.failure, ProviderProtocol)
        assert "base_url" in outcome.failure.message
        assert "hotel" not in outcome.failure.message
        assert len(server.requests) == 1


async def test_a_bare_json_error_instead_of_a_stream():
    async with ModelServer() as server:
        for prefix in (b"", b"\n ", b"data: "):
            body = prefix + b'{"error": {"message": "no credit", "code": "c1"}}'
            server.raw(body, framing="length")

            outcome = await ask(server)

            assert isinstance(outcome.failure, ProviderRejected)
            assert "no credit [c1]" in outcome.failure.message
        assert len(server.requests) == 3


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
async def test_an_empty_200_is_an_incomplete_answer(framing):
    async with ModelServer() as server:
        for _ in range(3):
            server.raw(framing=framing)

        outcome = await ask(server)

        assert isinstance(outcome.failure, ProviderProtocol)
        assert "empty answer" in outcome.failure.message
        assert "3 attempts" in outcome.failure.message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_says_what_to_do(status):
    async with ModelServer() as server:
        server.fail(status, headers={"location": f"{server.url}/elsewhere"})

        outcome = await ask(server)

        assert "redirects" in outcome.failure.message
        assert "base_url" in outcome.failure.message
        assert len(server.requests) == 1


async def test_retry_5_break_after_visible_text():
    gate = threading.Event()
    async with ModelServer() as server, ModelEndpoints() as endpoints:
        server.raw(delta("one "), delta("two "), delta("three"), gate, RESET)
        server.say("would succeed")
        model = open_model(endpoints, server)
        shown, caught = "", None
        request = ModelRequest("", [UserEntry("hi")], [], "s_1")
        try:
            async for event in model.respond(request):
                assert isinstance(event, TextDelta)
                shown += event.text
                if shown == "one two three":
                    gate.set()
        except ProviderProtocol as error:
            caught = error

        assert shown == "one two three"
        assert caught is not None
        assert "not tried again" in caught.message
        assert len(server.requests) == 1


async def test_retry_6_cannot_connect():
    messages = []
    async with ModelServer() as closed:
        port = closed.port
    async with ModelServer() as server:
        outcome = await ask(server, base_url=f"http://127.0.0.1:{port}/v1")
        assert isinstance(outcome.failure, ProviderUnreachable)
        assert "refuses" in outcome.failure.message
        assert len(outcome.retries) == 2
        messages.append(outcome.failure.message)

        outcome = await ask(server, base_url="http://no-such-host.invalid/v1")
        assert isinstance(outcome.failure, ProviderUnreachable)
        assert "resolved" in outcome.failure.message
        assert len(outcome.retries) == 2
        messages.append(outcome.failure.message)

        outcome = await ask(server, base_url=f"https://127.0.0.1:{server.port}/v1")
        assert "secure" in outcome.failure.message
        messages.append(outcome.failure.message)

    assert len(set(messages)) == 3


async def test_retry_6_a_wrong_certificate_is_not_tried_again(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with ModelServer(tls=context) as server:
        outcome = await ask(server)

        assert isinstance(outcome.failure, ProviderUnreachable)
        assert "certificate" in outcome.failure.message
        assert outcome.retries == []
        assert server.connections == 1
        assert server.requests == []


@pytest.mark.skipif(
    sys.platform == "darwin", reason="macOS trusts its keychain, not SSL_CERT_FILE"
)
async def test_https_works_with_a_certificate_the_system_trusts(
    certificate, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with ModelServer(tls=context) as server, ModelEndpoints() as endpoints:
        model = open_model(endpoints, server)
        for _ in range(2):
            server.say("secret ", "answer")
            assert (await ask_model(model)).text == "secret answer"
        assert server.connections == 1


@pytest.mark.parametrize("end", [RESET, CLOSE])
async def test_a_connection_lost_before_the_answer_is_tried_again(end):
    async with ModelServer() as server:
        server.raw(end, framing="close", headers={})
        server.say("ok")

        outcome = await ask(server)

        assert outcome.text == "ok"
        assert len(outcome.retries) == 1


@pytest.mark.parametrize("steps", [[HANG], [delta("a"), HANG]])
async def test_the_deadline_of_a_request_is_final(steps):
    async with ModelServer() as server:
        server.raw(*steps)

        outcome = await ask(server, timeout_seconds=0.2)

        assert isinstance(outcome.failure, ProviderUnreachable)
        assert "0.2 seconds" in outcome.failure.message
        assert outcome.retries == []


async def test_a_server_that_never_answers_meets_the_deadline_too():
    hold = threading.Event()

    def wait(request):
        hold.wait(30)

    async with ModelServer(on_request=wait) as server:
        server.say("late")

        outcome = await ask(server, timeout_seconds=0.2)

        hold.set()
        assert "0.2 seconds" in outcome.failure.message
        assert outcome.retries == []


async def test_turn_8_context_too_long():
    shapes = [
        {"error": {"message": "too many tokens", "code": "context_length_exceeded"}},
        {"error": {"message": "This model's maximum context length is 8192 tokens"}},
    ]
    for body in shapes:
        async with ModelServer() as server:
            server.fail(400, body)

            outcome = await ask(server)

            assert len(server.requests) == 1
            assert outcome.failure.code == "context_limit"
            assert "too long" in outcome.failure.message
            assert not outcome.failure.retryable


async def test_turn_8_context_too_long_inside_a_stream():
    error = {"code": "context_length_exceeded", "message": "x"}
    async with ModelServer() as server:
        server.events({"type": "response.failed", "response": {"error": error}})

        outcome = await ask(server)

        assert outcome.failure.code == "context_limit"
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"detail": "x"}, ": x"),
        ({"detail": [{"msg": "x", "loc": ["body"]}]}, ": x"),
        ({"message": "x"}, ": x"),
        ({"error": "x"}, ": x"),
        ({"error": {"message": None, "code": "c"}}, "[c]"),
        ({"error": {"message": "x", "code": "c", "type": "t"}}, ": x [c, t]"),
        ({"errors": [{"message": "x"}]}, ": x"),
        ({"error": {"code": 4003, "message": "x"}}, ": x [4003]"),
        ([], ""),
        ([{"error": {"message": "x"}}], ": x"),
        ("x", ": x"),
        (None, ""),
        (b"plain text", ": plain text"),
        (b"two\nlines\x1b[31m\x00 end", ": two lines [31m end"),
        (b"\xff\xfe broken", "broken"),
        (b"", ""),
        (b"[" * 5000, "["),
    ],
)
async def test_hist_5_shapes_of_error_bodies(body, expected):
    async with ModelServer() as server:
        server.fail(418, body)

        outcome = await ask(server)

        assert isinstance(outcome.failure, ProviderRejected)
        assert outcome.failure.status == 418
        assert "answered 418" in outcome.failure.message
        assert expected in outcome.failure.message
        assert outcome.failure.message.isprintable()
        assert len(server.requests) == 1


async def test_a_long_message_is_cut_and_a_long_body_is_not_read():
    async with ModelServer() as server:
        server.fail(418, {"error": {"message": "word " * 200}})
        server.raw(b"x" * 5000, HANG, status=418, headers={})

        outcome = await ask(server)
        assert len(outcome.failure.message) < 300 + 60
        assert outcome.failure.message.endswith("…")

        outcome = await ask(server)
        assert outcome.failure.status == 418


async def test_the_request_id_of_a_failure_is_kept():
    async with ModelServer() as server:
        server.fail(418, headers={"X-Request-Id": "req_123"})

        assert (await ask(server)).failure.request_id == "req_123"
