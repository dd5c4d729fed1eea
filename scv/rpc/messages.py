"""The JSON-RPC 2.0 envelope: bodies to checked messages and back.

A message is the dict that travels. What `parse_message` returns is safe to
hand on: no deep nesting, no number that is not JSON, no text that cannot be
written as UTF-8 again.
"""

import json
import math
from typing import Any, NoReturn

from scv.errors import InvalidMessage, ProtocolError
from scv.wire.limits import JSON_DEPTH

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

CANCEL_METHOD = "$/cancelRequest"

ID_LIMIT_CHARACTERS = 256
"""An id is echoed in every answer, so it is bounded; clients use at most 36."""

_ID_LIMIT = 2**63


class BadMessage(InvalidMessage):
    """The body is no usable message.

    `id` is the message's own id where that much could be read. `is_answer` is
    true for something meant as a response, which must never be answered.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        id: str | int | None = None,
        is_answer: bool = False,
    ) -> None:
        super().__init__(message, code=code)
        self.id = id
        self.is_answer = is_answer


class RemoteError(ProtocolError):
    """The remote answered a request with an error; `code` and `data` are its own.

    `data` that is no object is found under the key `value`.
    """

    def __init__(self, error: Any) -> None:
        fields = error if isinstance(error, dict) else {}
        code, data = fields.get("code"), fields.get("data")
        super().__init__(
            str(fields.get("message", "the answer is not usable")),
            code=code if type(code) is int else INVALID_REQUEST,
            data=data if isinstance(data, dict) or data is None else {"value": data},
        )


def parse_message(body: bytes) -> dict[str, Any]:
    """Decode and check one body.

    Returns:
        With `method` a request (it has an `id`) or a notification (it has none);
        without `method` an answer, which may lack both `result` and `error`.
        Lone surrogates in any string have become U+FFFD.

    Raises:
        BadMessage: Code -32700 for what is not JSON in UTF-8, else -32600.
    """
    message = _decode(body)
    if type(message) is not dict:
        raise BadMessage("a message must be one JSON object; batches are not taken")
    is_answer = "method" not in message and ("result" in message or "error" in message)
    request_id = message.get("id")
    if not (
        type(request_id) is str and len(request_id) <= ID_LIMIT_CHARACTERS
    ) and not (type(request_id) is int and -_ID_LIMIT <= request_id < _ID_LIMIT):
        if "id" in message and not (is_answer and request_id is None):
            raise BadMessage(
                "id must be an integer or a short string", is_answer=is_answer
            )
        request_id = None
    if message.get("jsonrpc") != "2.0":
        raise BadMessage('jsonrpc must be "2.0"', id=request_id, is_answer=is_answer)
    if "method" not in message:
        if "id" not in message:
            raise BadMessage("a message needs a method or an id", is_answer=is_answer)
    elif type(message["method"]) is not str:
        raise BadMessage("method must be a string", id=request_id)
    elif "params" in message and type(message["params"]) not in (dict, list):
        raise BadMessage("params must be an object or an array", id=request_id)
    return message


def encode_json(value: Any) -> bytes:
    """Write a value as compact JSON in UTF-8; lone surrogates become U+FFFD.

    Raises:
        TypeError, ValueError, RecursionError: The value is no JSON.
    """
    text = _encoder.encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _without_surrogates(text).encode()


def describe_error(error: ProtocolError) -> dict[str, Any]:
    """Build the `error` member of an answer."""
    described: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data:
        described["data"] = error.data
    return described


def _decode(body: bytes) -> Any:
    try:
        text = body.decode()
        value = _decoder.decode(text)
    except RecursionError:
        raise BadMessage(_TOO_DEEP) from None
    except ValueError:  # bad UTF-8 and bad JSON; its text could quote the body
        raise BadMessage("the body is not JSON in UTF-8", code=PARSE_ERROR) from None
    # So few brackets cannot nest too deep: nearly every message stops here.
    if body.count(b"[") + body.count(b"{") > JSON_DEPTH:
        _check_depth(value)
    if "\\ud" in text or "\\uD" in text:  # valid UTF-8 holds surrogates only escaped
        value = _decoder.decode(_without_surrogates(_encoder.encode(value)))
    return value


_TOO_DEEP = f"JSON must not nest deeper than {JSON_DEPTH}"


def _check_depth(value: Any) -> None:
    """Walk a value level by level, so that no nesting can exhaust the stack."""
    level = [value] if type(value) in (dict, list) else []
    depth = 0
    while level:
        depth += 1
        if depth > JSON_DEPTH:
            raise BadMessage(_TOO_DEEP)
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError("number out of range")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
_encoder = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False
)
