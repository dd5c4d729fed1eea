"""Plays responses from a file, one for each request, in order.

The file is JSON (`{"responses": [...], "loop": false}` or a bare list) or JSON
Lines. A response has any of:

    text               text, or a list of its pieces
    deltas             {"count": 20000, "text": "tok "} instead of `text`
    reasoning          text of a reasoning item before it
    calls              [{"call": "read", "arguments": {...}}]; text is sent as it is
    delay_ms           time between two pieces; or rate_per_second
    stop               end, refusal, max_output_tokens, content_filter
    usage              counts, or null for none
    status, headers    of the HTTP answer
    body               text or JSON instead of a stream
    raw                text of a stream, sent as it is
    cut_after_bytes    end the body there; `fault` says how (default: close)
    fault              reset, close or hang, at the end of the body

Strings in `text` and `arguments` may take from earlier results:
`{{result:N}}` is the N-th result since the person's last message (negative:
from the end), `{{result:N:/REGEX/:GROUP}}` a piece of it; with `:int` at its
end, a string that is nothing else becomes a number.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scv.errors import ConfigError
from scv.providers.practice.answer import (
    Fault,
    ModelAnswer,
    Move,
    Reply,
    ToolCall,
    split_text,
    stream,
)
from scv.providers.practice.conversation import Conversation, Result

Json = dict[str, Any]

_TEMPLATE = re.compile(r"\{\{result:(-?\d+)(?::/(.*?)/:(\d+))?(:int)?\}\}", re.DOTALL)
STREAM_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store"}


class Script:
    """A list of responses with a position.

    Args:
        responses: Response objects as in the module's text.
        loop: Start again after the last.
    """

    def __init__(self, responses: Sequence[Json], *, loop: bool = False) -> None:
        self._responses = list(responses)
        self._loop = loop
        self._position = 0

    @classmethod
    def load(cls, path: Path) -> "Script":
        """Read a script file.

        Raises:
            ConfigError: It cannot be read, or is not a script.
        """
        try:
            text = path.read_text()
        except (OSError, ValueError) as error:
            raise ConfigError("cannot be read as text.", file=str(path)) from error
        try:
            value = json.loads(text)
        except ValueError:
            value = _lines(text, path)
        loop = False
        if isinstance(value, dict) and isinstance(value.get("responses"), list):
            loop, value = bool(value.get("loop")), value["responses"]
        elif isinstance(value, dict):
            value = [value]
        if not (isinstance(value, list) and all(isinstance(v, dict) for v in value)):
            raise ConfigError("is not a list of responses.", file=str(path))
        return cls(value, loop=loop)

    def reply(self, conversation: Conversation) -> Reply:
        """Give the next response, filled in from the conversation's results."""
        number = self._position
        self._position += 1
        if self._loop and self._responses:
            number %= len(self._responses)
        if number >= len(self._responses):
            over = ModelAnswer(split_text("The script has no further response."))
            return Reply(200, STREAM_HEADERS, stream(over, number=number, model=""))
        response = self._responses[number]
        try:
            return _reply(response, conversation, self._position)
        except (LookupError, ValueError, TypeError, re.error) as error:
            problem = ModelAnswer(split_text(f"script error: {error}"))
            return Reply(200, STREAM_HEADERS, stream(problem, number=number, model=""))


def _lines(text: str, path: Path) -> list[Any]:
    values: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError:
                raise ConfigError("is not JSON.", file=str(path), line=number) from None
    return values


def _reply(response: Json, conversation: Conversation, number: int) -> Reply:
    status = int(response.get("status", 200))
    headers = {str(k): str(v) for k, v in response.get("headers", {}).items()}
    fault = response.get("fault")
    cut = response.get("cut_after_bytes")
    body: bytes | Iterator[Move]
    if "body" in response:
        given = response["body"]
        body = (given if isinstance(given, str) else json.dumps(given)).encode()
    elif "raw" in response:
        body = iter([str(response["raw"]).encode()])
        headers = {**STREAM_HEADERS, **headers}
    else:
        answer = _answer(response, conversation.results)
        body = stream(answer, number=number, model=conversation.model)
        headers = {**STREAM_HEADERS, **headers}
    if cut is not None or fault is not None:
        moves = iter([body]) if isinstance(body, bytes) else body
        body = _broken(moves, cut, Fault(fault or "close"))
    return Reply(status, headers, body)


def _broken(moves: Iterator[Move], cut: int | None, fault: Fault) -> Iterator[Move]:
    left = cut
    for move in moves:
        if isinstance(move, bytes) and left is not None:
            if len(move) >= left:
                yield move[:left]
                break
            left -= len(move)
        yield move
    yield fault


def _answer(response: Json, results: Sequence[Result]) -> ModelAnswer:
    repeat = 1
    text = response.get("text", [])
    if "deltas" in response:
        repeat = int(response["deltas"]["count"])
        text = [str(response["deltas"]["text"])]
    elif isinstance(text, str):
        text = split_text(str(fill(text, results)))
    else:
        text = [str(fill(piece, results)) for piece in text]
    interval = float(response.get("delay_ms", 0)) / 1000
    if "rate_per_second" in response:
        interval = 1 / float(response["rate_per_second"])
    return ModelAnswer(
        text=text,
        calls=[
            ToolCall(str(call["call"]), fill(call.get("arguments", {}), results))
            for call in response.get("calls", [])
        ],
        reasoning=str(response.get("reasoning", "")),
        repeat=repeat,
        interval_seconds=interval,
        stop=str(response.get("stop", "end")),
        usage=response.get("usage", {}),
    )


def fill(value: Any, results: Sequence[Result]) -> Any:
    """Replace templates in every string of a JSON value.

    Raises:
        LookupError: There is no such result, or its text does not match.
    """
    if isinstance(value, dict):
        return {key: fill(inner, results) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill(inner, results) for inner in value]
    if not isinstance(value, str):
        return value
    whole = _TEMPLATE.fullmatch(value)
    if whole and whole[4]:
        return int(_take(whole, results))
    return _TEMPLATE.sub(lambda match: _take(match, results), value)


def _take(match: re.Match[str], results: Sequence[Result]) -> str:
    number = int(match[1])
    index = number - 1 if number > 0 else len(results) + number
    if number == 0 or not 0 <= index < len(results):
        raise LookupError(f"there is no result {number}, only {len(results)}")
    output = results[index].output
    if match[2] is None:
        return output
    found = re.search(match[2], output)
    if found is None:
        raise LookupError(f"/{match[2]}/ does not occur in result {number}")
    return found[int(match[3])]
