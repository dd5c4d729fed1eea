"""What a stand-in model answers, and its form on the Responses wire.

A body is a sequence of moves: bytes go out as one chunk, a number is the moment
to wait for (seconds since the body began), a `Fault` breaks the connection.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any

from scv.values import frozen

Json = dict[str, Any]


class Fault(Enum):
    """How a body ends badly."""

    RESET = "reset"
    CLOSE = "close"
    HANG = "hang"


Move = bytes | float | Fault


@frozen
class Reply:
    """One HTTP answer; a body given as `bytes` is sent with its length."""

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterator[Move]


@frozen
class ToolCall:
    """One call to make."""

    name: str
    arguments: Json | str


@frozen
class ModelAnswer:
    """One response of the stand-in, before it becomes events.

    `repeat` sends the one text piece that often. `interval_seconds` is the time
    between two pieces. `stop` is `end`, `refusal`, or an incomplete reason.
    """

    text: Sequence[str] = ()
    calls: Sequence[ToolCall] = ()
    reasoning: str = ""
    repeat: int = 1
    interval_seconds: float = 0.0
    stop: str = "end"
    usage: Json | None = field(default_factory=lambda: {})


def split_text(text: str) -> list[str]:
    """Split text into pieces of about a word, as models stream them."""
    return re.findall(r"\s*\S+\s?|\s+", text)


def event(kind: str, **fields: Any) -> bytes:
    """Encode one stream event."""
    data = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {data}\n\n".encode()


def stream(answer: ModelAnswer, *, number: int, model: str) -> Iterator[Move]:
    """Give the moves of a whole response; `number` makes its ids unique."""
    items: list[Json] = []
    response: Json = {"id": f"resp_{number}", "object": "response", "model": model}
    yield event("response.created", response={**response, "status": "in_progress"})
    if answer.reasoning:
        yield from _reasoning(answer.reasoning, number, items)
    if answer.text:
        yield from _message(answer, number, items)
    for position, call in enumerate(answer.calls):
        yield from _call(call, f"{number}_{position}", items)
    whole = answer.stop in ("end", "refusal")
    status = "completed" if whole else "incomplete"
    response |= {"status": status, "output": items}
    if answer.usage is not None:
        response["usage"] = {
            "input_tokens": 0,
            "output_tokens": len(answer.text) * answer.repeat,
            **answer.usage,
        }
    if not whole:
        response["incomplete_details"] = {"reason": answer.stop}
    yield event(f"response.{status}", response=response)


def _reasoning(text: str, number: int, items: list[Json]) -> Iterator[Move]:
    index = len(items)
    item = {
        "id": f"rs_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": f"practice-{number}",
    }
    yield event(
        "response.output_item.added", output_index=index, item={**item, "summary": []}
    )
    for piece in split_text(text):
        yield event(
            "response.reasoning_summary_text.delta",
            item_id=item["id"],
            output_index=index,
            summary_index=0,
            delta=piece,
        )
    yield event("response.output_item.done", output_index=index, item=item)
    items.append(item)


def _message(answer: ModelAnswer, number: int, items: list[Json]) -> Iterator[Move]:
    index = len(items)
    refused = answer.stop == "refusal"
    item: Json = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed" if answer.stop in ("end", "refusal") else "incomplete",
        "content": [],
    }
    yield event("response.output_item.added", output_index=index, item=item)
    kind = "response.refusal.delta" if refused else "response.output_text.delta"
    encoded = [
        event(
            kind, item_id=item["id"], output_index=index, content_index=0, delta=piece
        )
        for piece in answer.text
    ]
    moment = 0.0
    for _ in range(answer.repeat):
        for piece in encoded:
            if answer.interval_seconds:
                yield moment
                moment += answer.interval_seconds
            yield piece
    text = "".join(answer.text) * answer.repeat
    part = (
        {"type": "refusal", "refusal": text}
        if refused
        else {"type": "output_text", "text": text, "annotations": []}
    )
    item = {**item, "content": [part]}
    yield event("response.output_item.done", output_index=index, item=item)
    items.append(item)


def _call(call: ToolCall, suffix: str, items: list[Json]) -> Iterator[Move]:
    index = len(items)
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    item = {
        "id": f"fc_{suffix}",
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{suffix}",
        "name": call.name,
        "arguments": arguments,
    }
    yield event(
        "response.output_item.added",
        output_index=index,
        item={**item, "arguments": "", "status": "in_progress"},
    )
    for start in range(0, len(arguments), 4096):
        yield event(
            "response.function_call_arguments.delta",
            item_id=item["id"],
            output_index=index,
            delta=arguments[start : start + 4096],
        )
    yield event("response.output_item.done", output_index=index, item=item)
    items.append(item)
