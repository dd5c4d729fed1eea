"""Reads a request's `input`: the last words of the person, and results since.

This is all the state a stand-in has: the same input gives the same answer.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from scv.values import frozen

LAST_WORDS = 240
Json = dict[str, Any]

_FAILED = ("error:", "denied", "interrupted", "not run")


@frozen
class Result:
    """One call since the person's last words, with its output."""

    name: str
    output: str

    @property
    def fields(self) -> Json:
        """The output as a JSON object, empty when it is none."""
        try:
            value = json.loads(self.output)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def is_denied(self) -> bool:
        """A person or the policy said no."""
        return self.output.startswith("denied")

    @property
    def is_failed(self) -> bool:
        """The call did not do what it was asked to."""
        if self.output.startswith(_FAILED):
            return True
        fields = self.fields
        return fields.get("exit_code", 0) != 0 or bool(fields.get("timed_out"))

    @property
    def headline(self) -> str:
        """The first line of the output, cut to a line's length."""
        first = self.output.strip().partition("\n")[0]
        return first if len(first) <= 160 else f"{first[:159]}…"


@frozen
class Conversation:
    """The part of a request that a stand-in looks at."""

    prompt: str
    results: tuple[Result, ...]
    tools: frozenset[str]
    model: str
    earlier: tuple[str, ...] = ()
    """One line for each message before the prompt: who, and its last words."""


def read_conversation(request: Mapping[str, Any]) -> Conversation:
    """Read a Responses request; unknown items are passed over."""
    prompt = ""
    calls: dict[str, str] = {}
    results: list[Result] = []
    lines: list[str] = []
    for item in _dicts(request.get("input")):
        kind = item.get("type")
        if item.get("role") == "user":
            prompt = _text(item.get("content"))
            results.clear()
            lines.append(_line("user", prompt))
        elif item.get("role") == "assistant" or kind == "message":
            lines.append(_line("assistant", _text(item.get("content"))))
        elif kind == "function_call":
            calls[str(item.get("call_id"))] = str(item.get("name"))
        elif kind == "function_call_output":
            name = calls.get(str(item.get("call_id")), "")
            results.append(Result(name, _text(item.get("output"))))
            outcome = "failed" if results[-1].is_failed else "ok"
            lines.append(_line(f"tool {name} {outcome}", results[-1].output))
    tools = frozenset(
        str(tool.get("name"))
        for tool in _dicts(request.get("tools"))
        if tool.get("type") == "function"
    )
    return Conversation(
        prompt,
        tuple(results),
        tools,
        str(request.get("model") or "practice"),
        tuple(lines[:-1]),
    )


def _line(who: str, text: str) -> str:
    return f"{who}: {' '.join(text.split())[-LAST_WORDS:]}"


def _dicts(value: Any) -> Iterator[Json]:
    if isinstance(value, list):
        yield from (v for v in value if isinstance(v, dict))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in _dicts(content))
