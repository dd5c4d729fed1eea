"""Every exception SCV raises on purpose.

    ScvError
      ProtocolError            the peer broke the wire rules, or a request is refused
        InvalidMessage, InvalidParams, UnknownMethod, NotInitialized, FrameTooLarge
        RequestRefused         a well-formed request the server will not carry out
      ConnectionLost           the peer is gone; ends what waited on it
      ConfigError              carries file, key and remedy; one line, exit 2
      ToolError                the call failed: a failed tool result, the turn goes on
        BadArguments, Refused, LimitExceeded, NotFound, Stale
      ProviderError            carries status, `retryable`; the turn ends as failed
        ProviderUnreachable, ProviderRejected, ProviderProtocol, ResponseLimit
      StoreError               the session store cannot be used; path and remedy
      AlreadyServed            another process listens on this home's socket

Exceptions carry fields; the sentence is for people. Tests check class and fields.
"""

from typing import Any


class ScvError(Exception):
    """Anything SCV reports in its own words: `message` is safe to show to a person."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ProtocolError(ScvError):
    """A message cannot be served; becomes a JSON-RPC error with `code` and `data`."""

    code = -32600

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.data = data or {}


class InvalidMessage(ProtocolError):
    """The envelope is not JSON-RPC 2.0 (code -32600), or not JSON at all (-32700)."""


class InvalidParams(ProtocolError):
    """Params have the wrong shape; `data["path"]` names the first bad field."""

    code = -32602


class UnknownMethod(ProtocolError):
    """No handler for a request's method."""

    code = -32601


class NotInitialized(ProtocolError):
    """A request came before `initialize`."""

    code = -32002


class FrameTooLarge(ProtocolError):
    """A frame is longer than the limit; `data["maxBytes"]` names it."""

    code = 4261


class RequestRefused(ProtocolError):
    """A well-formed request that cannot be carried out; codes in `scv.wire.errors`."""


class ConnectionLost(ScvError):
    """The peer closed the connection, or answers no more."""


class ConfigError(ScvError):
    """Configuration cannot be used.

    `file` and `line` say where (a layer's name when it is no file), `key` is the
    dotted name, `remedy` says what to do. Never carries the offending content.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        remedy: str | None = None,
    ) -> None:
        where = ": ".join(
            part
            for part in (f"{file}:{line}" if file and line else file, key)
            if part is not None
        )
        text = f"{where}: {message}" if where else message
        super().__init__(f"{text} {remedy}" if remedy else text)
        self.file, self.line, self.key, self.remedy = file, line, key, remedy


class ToolError(ScvError):
    """A tool call failed; the message goes to the model as a failed result."""


class BadArguments(ToolError):
    """The model's arguments do not fit the tool; `field` is the dotted name."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Refused(ToolError):
    """The call asks for what SCV never does (outside the workspace, a device)."""


class LimitExceeded(ToolError):
    """The call is over a limit; the message names the limit and its size."""


class NotFound(ToolError):
    """The thing the call names does not exist."""


class Stale(ToolError):
    """The file is not what the caller last saw; `found` is its SHA-256 now, if any."""

    def __init__(self, message: str, *, found: str | None = None) -> None:
        super().__init__(message)
        self.found = found


class ProviderError(ScvError):
    """A model endpoint failed; the message holds no credential and no raw page.

    `code` is the stable name that `turn.ended` carries, `status` the HTTP status.
    """

    code = "provider_error"

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = False,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.status = status
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds


class ProviderUnreachable(ProviderError):
    """No response: connection, name, TLS or time-out."""


class ProviderRejected(ProviderError):
    """The endpoint answered with an error, by status or inside the stream."""


class ProviderProtocol(ProviderError):
    """The answer is not what the API promises (cut, malformed, wrong type)."""


class ResponseLimit(ProviderError):
    """A cap on the response was violated; `code`: `response_limit`, `tool_limit`."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class StoreError(ScvError):
    """The session store cannot be used; the message names path and remedy."""


class AlreadyServed(ScvError):
    """Another process listens on the socket of this home; `pid` names it, if known."""

    def __init__(self, home: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{who} already serves {home}; nothing was started.")
        self.pid = pid
