"""What part of the history a request carries: deterministic, from the newest back.

A group is a user message and all that follows until the next one; groups are
never split. What is left out becomes one note in front. Selection reads the
whole history every time, so notes are never summarised again.

Source: docs/architecture.md, "Context".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scv.core.history import (
    AssistantEntry,
    Entry,
    NoteEntry,
    OutputEntry,
    SummaryEntry,
    UserEntry,
)
from scv.core.ports import ToolSpec
from scv.errors import ScvError

if TYPE_CHECKING:
    from scv.config.settings import ContextSettings

MESSAGE_OVERHEAD_TOKENS = 4


class ContextLimit(ScvError):
    """The newest prompt does not fit the model's context even alone."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The entries to send, and token estimates before and after the selection."""

    entries: Sequence[Entry]
    before_tokens: int
    after_tokens: int
    removed: int


def text_tokens(text: str, bytes_per_token: int) -> int:
    """Estimate tokens of text: UTF-8 bytes over a divisor, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // bytes_per_token)


def _size_bytes(entry: Entry) -> int:
    match entry:
        case UserEntry(text) | NoteEntry(text) | SummaryEntry(text):
            return len(text.encode("utf-8", "replace")) + 30
        case AssistantEntry(text, calls, native):
            if native:
                return len(json.dumps(native, ensure_ascii=False).encode()) + 10
            size = len(text.encode("utf-8", "replace")) + 30
            for call in calls:
                size += len(call.arguments.encode()) + len(call.name) + 80
            return size
        case OutputEntry(_, _, content):
            return len(content.encode("utf-8", "replace")) + 70


class Estimator:
    """Token estimates of history entries, remembered while the entry lives."""

    def __init__(self, bytes_per_token: int) -> None:
        self._divisor = bytes_per_token
        self._known: dict[int, tuple[Entry, int]] = {}

    def tokens(self, entry: Entry) -> int:
        """Estimate one entry."""
        known = self._known.get(id(entry))
        if known is not None and known[0] is entry:
            return known[1]
        tokens = -(-_size_bytes(entry) // self._divisor) + MESSAGE_OVERHEAD_TOKENS
        self._known[id(entry)] = (entry, tokens)
        return tokens


def _line(entry: Entry) -> str:
    match entry:
        case UserEntry(text):
            label, body = "user", text
        case AssistantEntry(text, calls):
            label = "assistant"
            body = " ".join([text, *(f"[calls {call.name}]" for call in calls)])
        case OutputEntry(_, name, content, is_error):
            label, body = f"tool {name} {'failed' if is_error else 'ok'}", content
        case NoteEntry(text) | SummaryEntry(text):
            label, body = "earlier", text
    return f"{label}: {' '.join(body.split())[-240:]}"


def _note(entries: Sequence[Entry], limit: int) -> str:
    first = f"{len(entries)} earlier messages are left out; their last words:"
    return "\n".join([first, *map(_line, entries)])[:limit]


def static_tokens(
    instructions: str, tools: Sequence[ToolSpec], settings: ContextSettings
) -> int:
    """Estimate what every request carries, with reserve and margin."""
    specs = json.dumps(
        [[spec.name, spec.description, spec.parameters] for spec in tools],
        ensure_ascii=False,
    )
    return (
        text_tokens(instructions, settings.bytes_per_token)
        + text_tokens(specs, settings.bytes_per_token)
        + settings.reserve_output_tokens
        + settings.safety_margin_tokens
    )


def select(
    history: Sequence[Entry],
    *,
    static: int,
    settings: ContextSettings,
    estimator: Estimator,
) -> Selection:
    """Choose the newest groups that fit and note what is left out.

    Raises:
        ContextLimit: The newest group alone is over the budget.
    """
    budget = settings.max_tokens - static
    sizes = [estimator.tokens(entry) for entry in history]
    total = sum(sizes)
    if budget <= 0:
        raise ContextLimit(
            "system prompt and tools leave no room in the context; raise"
            " context.max_tokens or lower context.reserve_output_tokens"
        )
    if total <= budget:
        return Selection(history, static + total, static + total, 0)
    starts = [
        index for index, entry in enumerate(history) if isinstance(entry, UserEntry)
    ]
    cuts = [start for start in starts if start > 0]
    kept = {start: sum(sizes[start:]) for start in cuts}
    fitting = [start for start in cuts if kept[start] <= budget]
    for start in fitting:
        note = _note(history[:start], settings.summary_max_chars)
        cost = _note_tokens(note, settings)
        room = budget - kept[start]
        if cost > room and start == fitting[-1]:
            note = _fit(note, room, settings)
            cost = _note_tokens(note, settings)
        if note and cost <= room:
            entries = [NoteEntry(note), *history[start:]]
            return Selection(
                entries, static + total, static + kept[start] + cost, start
            )
    raise ContextLimit(
        "the newest prompt and what followed it do not fit the model's context"
        f" of {settings.max_tokens} tokens; start a new session or send less"
    )


def _note_tokens(note: str, settings: ContextSettings) -> int:
    return text_tokens(note, settings.bytes_per_token) + MESSAGE_OVERHEAD_TOKENS + 10


def _fit(note: str, room: int, settings: ContextSettings) -> str:
    room_bytes = (room - MESSAGE_OVERHEAD_TOKENS - 10) * settings.bytes_per_token
    if room_bytes <= 0:
        return ""
    return note.encode()[:room_bytes].decode("utf-8", "ignore")


def trim_history(
    history: list[Entry], *, max_messages: int, max_bytes: int, note_chars: int
) -> tuple[list[Entry], int]:
    """Drop the oldest groups until the history is within its limits.

    Returns:
        The history, headed by a note when something was dropped, and how many
        entries went.

    Raises:
        ContextLimit: The newest group alone is over a limit.
    """
    removed = 0
    sizes = [_size_bytes(entry) for entry in history]
    total = sum(sizes)
    start = 0
    while len(history) - start > max_messages or total > max_bytes:
        following = next(
            (
                index
                for index in range(start + 1, len(history))
                if isinstance(history[index], UserEntry)
            ),
            None,
        )
        if following is None:
            raise ContextLimit(
                "this turn alone is over session.max_history_bytes or"
                " session.max_messages"
            )
        total -= sum(sizes[start:following])
        removed += following - start
        start = following
    if not removed:
        return history, 0
    return [NoteEntry(_note(history[:start], note_chars)), *history[start:]], removed
