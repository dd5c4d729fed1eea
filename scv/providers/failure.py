"""What went wrong at an endpoint, in one short line that holds no secret.

Every foreign exception, status, body and error event becomes a `ProviderError`
here. The line names the host, keeps the endpoint's own short message, and is
never a page.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from scv.errors import (
    ProviderError,
    ProviderProtocol,
    ProviderRejected,
    ProviderUnreachable,
)

BODY_BYTES = 4096
"""How much of an error body is read: more than any error object needs."""

MESSAGE_CHARACTERS = 300
MAX_WAIT_SECONDS = 60.0
"""A longer wait than this is reported instead of slept."""

_TRANSIENT = ("overload", "unavailable", "rate_limit", "server_error", "timeout")
_CONTEXT = ("context_length", "context_window", "context length", "context window")
_PHRASES = {
    400: "bad request",
    404: "not found",
    408: "request time-out",
    413: "too large",
    429: "too many requests",
    500: "server error",
    502: "bad gateway",
    503: "unavailable",
    504: "gateway time-out",
    529: "overloaded",
}


def one_line(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """Flatten control and format characters to single blanks and cut at `limit`."""
    flat = "".join(c if c.isprintable() else " " for c in text[: limit * 8])
    flat = " ".join(flat.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def read_retry_after(value: str | None) -> float | None:
    """Read a Retry-After header, seconds or HTTP date, as seconds from now."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        from email.utils import parsedate_to_datetime
        from time import time

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if seconds == seconds else None


class Failures:
    """Builds the errors of one endpoint.

    Args:
        host: What messages call the endpoint, for example `api.example.com:8080`.
        redact: Takes secrets out of the endpoint's own words.
        key_hint: What to check when the endpoint refuses the key.
    """

    def __init__(
        self, host: str, *, redact: Callable[[str], str], key_hint: str
    ) -> None:
        self.host = host
        self._redact = redact
        self._key_hint = key_hint

    def clean(self, text: str) -> str:
        """Redact the endpoint's words and make them one bounded line."""
        # Redaction comes first: flattening must not join pieces into new words.
        return one_line(self._redact(text[: BODY_BYTES * 2]))

    def status(
        self,
        status: int,
        body: bytes,
        *,
        retry_after: str | None = None,
        request_id: str | None = None,
    ) -> ProviderError:
        """Read an error status with the head of its body."""
        phrase = _PHRASES.get(status)
        said = f"{self.host} answered {status}" + (f" ({phrase})" if phrase else "")
        if 300 <= status < 400:
            return ProviderRejected(
                f"{said}: it redirects, which SCV does not follow; set base_url to"
                " the address the API really has",
                status=status,
            )
        message, labels = read_error_body(body)
        detail = self._detail(message, labels)
        if status in (401, 403):
            said = f"sign-in problem: {said}{detail}; check {self._key_hint}"
        else:
            said += detail
        return self._rejected(
            said,
            message,
            labels,
            retryable=status == 429 or status >= 500,
            status=status,
            request_id=one_line(request_id, 128) if request_id else None,
            retry_after_seconds=read_retry_after(retry_after),
        )

    def event(self, value: Any, *, status: int | None = None) -> ProviderError:
        """Read an error that came inside a stream, or instead of one."""
        message, labels = _read_error(value)
        retryable = "overloaded" in message.lower() or any(
            word in label.lower() for label in labels for word in _TRANSIENT
        )
        said = f"{self.host} reported an error"
        detail = self._detail(message, labels) or ": it gave no reason"
        return self._rejected(
            said + detail, message, labels, retryable=retryable, status=status
        )

    def malformed(self, what: str) -> ProviderProtocol:
        """The answer breaks its own API; trying again would break it again."""
        return ProviderProtocol(f"{self.host}: {what}")

    def ended_early(self, what: str) -> ProviderProtocol:
        """The answer stopped before its end mark."""
        return ProviderProtocol(
            f"incomplete answer: {self.host} {what}", retryable=True
        )

    def timed_out(self, seconds: float) -> ProviderUnreachable:
        """The request reached its own deadline; never tried again."""
        return ProviderUnreachable(
            f"{self.host} gave no complete answer within {seconds:g} seconds"
            " (timeout_seconds)"
        )

    def unreachable(self, error: BaseException) -> ProviderUnreachable:
        """Say which step failed before there was a status."""
        import socket
        import ssl

        kinds = list(_causes(error))
        for cause in kinds:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return ProviderUnreachable(
                    f"the certificate of {self.host} is not trusted:"
                    f" {self.clean(cause.verify_message)}"
                )
        for cause in kinds:
            if isinstance(cause, ssl.SSLError):
                reason = one_line(str(cause.reason or "TLS error"), 80)
                return ProviderUnreachable(
                    f"no secure connection to {self.host}: {reason}"
                )
            if isinstance(cause, socket.gaierror):
                return ProviderUnreachable(
                    f"the name of {self.host} cannot be resolved"
                    f" ({one_line(cause.strerror or 'no address', 80)})",
                    retryable=True,
                )
            if isinstance(cause, ConnectionRefusedError):
                return ProviderUnreachable(
                    f"{self.host} refuses connections: is the server running?",
                    retryable=True,
                )
        if any("Timeout" in type(cause).__name__ for cause in kinds):
            return ProviderUnreachable(f"connecting to {self.host} took too long")
        return ProviderUnreachable(
            f"the connection to {self.host} failed"
            f" ({type(error).__name__}) before it answered",
            retryable=True,
        )

    def proxy(self, proxy: str, reason: str) -> ProviderUnreachable:
        """The proxy in between will not pass the request on."""
        return ProviderUnreachable(
            f"the proxy {self.clean(proxy)} does not connect to {self.host}:"
            f" {self.clean(reason)}"
        )

    def _detail(self, message: str, labels: list[str]) -> str:
        text = self.clean(message)
        marks = [m for m in (self.clean(label) for label in labels) if m not in text]
        detail = " ".join(
            filter(None, (text, f"[{', '.join(marks)}]" if marks else ""))
        )
        return f": {one_line(detail)}" if detail else ""

    def _rejected(
        self,
        said: str,
        message: str,
        labels: list[str],
        *,
        retryable: bool,
        status: int | None,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> ProviderRejected:
        words = " ".join([message, *labels]).lower()
        too_long = any(mark in words for mark in _CONTEXT)
        if too_long:
            said = f"the conversation is too long for this model: {said}"
        error = ProviderRejected(
            said,
            retryable=retryable and not too_long,
            status=status,
            request_id=request_id,
            retry_after_seconds=retry_after_seconds,
        )
        if too_long:
            error.code = "context_limit"
        return error


def read_error_body(body: bytes) -> tuple[str, list[str]]:
    """Return the best short message of an error body, and its code and type labels.

    A page of markup gives no message at all: only its status is worth a line.
    """
    text = body[:BODY_BYTES].decode("utf-8", "replace").strip()
    text = text.removeprefix("data:").strip()
    if text.startswith("<") or "<html" in text[:1024].lower():
        return "an HTML page instead of an API answer", []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text, []
    return _read_error(value)


def _read_error(value: Any) -> tuple[str, list[str]]:
    if isinstance(value, str):
        return value, []
    if isinstance(value, list):
        return _read_error(value[0]) if value else ("", [])
    if not isinstance(value, dict):
        return "", []
    labels = [
        str(value[key])
        for key in ("code", "type")
        if isinstance(value.get(key), str | int) and value[key] not in ("", "error")
    ]
    for key in ("message", "error", "detail", "msg", "errors", "title"):
        inner = value.get(key)
        if inner:
            message, more = _read_error(inner)
            if message or more:
                return message, [*more, *(m for m in labels if m not in more)]
    return "", labels


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk an exception, what caused it, and what groups hold."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting.extend(c for c in (cause.__cause__, cause.__context__) if c is not None)
        if isinstance(cause, BaseExceptionGroup):
            waiting.extend(cause.exceptions)
