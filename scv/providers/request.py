"""History into the body of a Responses request.

Every call goes out with exactly one output, whatever the history lacks; call
ids are unique in the whole request; arguments are always valid JSON, because
some servers parse them again and would refuse every later request.

Source: the Responses API reference, "input" items.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from scv.core.history import AssistantEntry, Entry, NoteEntry, OutputEntry
from scv.core.ports import ModelRequest

Json = dict[str, Any]

NO_OUTPUT = "error: interrupted; this call has no result"


def encode_request(request: ModelRequest, *, wire: str, model: str) -> bytes:
    """Build the request's JSON; native items return only to the same wire and model."""
    body: Json = {
        "model": model,
        "instructions": request.instructions,
        "input": list(_Input(wire, model).items(request.history)),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


class _Input:
    def __init__(self, wire: str, model: str) -> None:
        self._origin = (wire, model)
        self._used: set[str] = set()
        # Calls without an output yet: the id the history knows, the id sent.
        self._open: dict[str, str] = {}

    def items(self, history: Sequence[Entry]) -> Iterator[Json]:
        held: list[Json] = []  # notes that came between calls and their outputs
        for entry in history:
            if isinstance(entry, OutputEntry):
                yield from self._output(entry)
                if not self._open:
                    yield from held
                    held.clear()
            elif isinstance(entry, AssistantEntry):
                yield from self._close()
                yield from held
                held.clear()
                yield from self._assistant(entry)
            elif self._open and isinstance(entry, NoteEntry):
                held.append({"role": "user", "content": entry.text})
            else:
                yield from self._close()
                yield from held
                held.clear()
                yield {"role": "user", "content": entry.text}
        yield from self._close()
        yield from held

    def _assistant(self, entry: AssistantEntry) -> Iterator[Json]:
        if entry.native and (entry.wire, entry.model) == self._origin:
            yield from self._native(entry)
            return
        if entry.text:
            yield {"role": "assistant", "content": entry.text}
        for call in entry.calls:
            yield _call(self._send_as(call.call_id), call.name, call.arguments)

    def _native(self, entry: AssistantEntry) -> Iterator[Json]:
        left = {call.call_id: call for call in entry.calls}
        for item in entry.native:
            if item.get("type") == "function_call":
                call = left.pop(str(item.get("call_id")), None)
                if call is None:
                    continue  # nothing would answer it
                sent = self._send_as(call.call_id)
                arguments = _valid(call.arguments)
                if sent != item["call_id"] or arguments != item.get("arguments"):
                    item = {**item, "call_id": sent, "arguments": arguments}
            yield item
        for call in left.values():
            yield _call(self._send_as(call.call_id), call.name, call.arguments)

    def _output(self, entry: OutputEntry) -> Iterator[Json]:
        sent = self._open.pop(entry.call_id, None)
        if sent is None:
            sent = self._unique(entry.call_id)
            yield _call(sent, entry.name, "{}")
        yield _result(sent, entry.content)

    def _close(self) -> Iterator[Json]:
        for sent in self._open.values():
            yield _result(sent, NO_OUTPUT)
        self._open.clear()

    def _send_as(self, call_id: str) -> str:
        sent = self._unique(call_id)
        self._open[call_id] = sent
        return sent

    def _unique(self, call_id: str) -> str:
        sent, count = call_id, 1
        while sent in self._used:
            count += 1
            sent = f"{call_id}_{count}"
        self._used.add(sent)
        return sent


def _call(call_id: str, name: str, arguments: str) -> Json:
    return {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": _valid(arguments),
    }


def _result(call_id: str, output: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _valid(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    if is_object:
        return arguments
    return json.dumps({"malformed_arguments": arguments}, ensure_ascii=False)
