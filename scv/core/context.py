"""What part of the history a request carries: deterministic, from the newest back.

A group is a user message and all that follows until the next one; groups are
never split. What is left out becomes one note in front. Selection reads the
whole history every time, so notes are never summarised again.

Source: docs/architecture.md, "Context".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import is_
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
from scv.values import frozen

if TYPE_CHECKING:
    from scv.config.settings import ContextSettings

MESSAGE_OVERHEAD_TOKENS = 4
LAST_WORDS = 240
"""Characters of a message that the note about it keeps."""


class ContextLimit(ScvError):
    """The newest prompt does not fit the model's context even alone."""


@frozen
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


class Scale:
    """Weighs the entries of a history that grows at its end, each of them once."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._sizes: list[int] = []

    def sizes(self, history: Sequence[Entry]) -> Sequence[int]:
        """Size every entry in bytes of its serialised form, about."""
        if not self._continues(history):
            # entries stay in the lists until all is weighed, so ids stay theirs
            known = dict(zip(map(id, self._entries), self._sizes, strict=True))
            sizes = [known.get(id(entry)) or _size_bytes(entry) for entry in history]
            self._entries, self._sizes = list(history), sizes
        new = history[len(self._entries) :]
        self._sizes.extend(map(_size_bytes, new))
        self._entries.extend(new)
        return self._sizes

    def _continues(self, history: Sequence[Entry]) -> bool:
        known = self._entries
        return len(known) <= len(history) and all(map(is_, known, history))


def tokens_of(sizes: Sequence[int], bytes_per_token: int) -> list[int]:
    """Estimate tokens of entries of these sizes."""
    overhead = MESSAGE_OVERHEAD_TOKENS
    return [-(-size // bytes_per_token) + overhead for size in sizes]


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
    return f"{label}: {_last_words(body)}"


def _last_words(text: str) -> str:
    near_end = text[-20 * LAST_WORDS :]
    words = " ".join(near_end.split())
    if len(words) < LAST_WORDS and len(near_end) < len(text):  # mostly blank
        words = " ".join(text.split())
    return words[-LAST_WORDS:]


class _Notes:
    """Notes about ever longer beginnings of a history.

    A line is written once, and only as many lines as a note can hold.
    """

    def __init__(self, history: Sequence[Entry], limit: int) -> None:
        self._history = history
        self._limit = limit
        self._lines: list[str] = []
        self._length = 0

    def about(self, count: int) -> str:
        """Write the note about the first `count` entries, which never shrink."""
        lines = self._lines
        while len(lines) < count and self._length < self._limit:
            line = _line(self._history[len(lines)])
            lines.append(line)
            self._length += len(line) + 1
        first = f"{count} earlier messages are left out; their last words:"
        return "\n".join([first, *lines])[: self._limit]


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
    scale: Scale,
) -> Selection:
    """Choose the newest groups that fit and note what is left out.

    Raises:
        ContextLimit: The newest group alone is over the budget.
    """
    budget = settings.max_tokens - static
    sizes = tokens_of(scale.sizes(history), settings.bytes_per_token)
    total = sum(sizes)
    if budget <= 0:
        raise ContextLimit(
            "system prompt and tools leave no room in the context; raise"
            " context.max_tokens or lower context.reserve_output_tokens"
        )
    if total <= budget:
        return Selection(history, static + total, static + total, 0)
    fitting: list[tuple[int, int]] = []
    """Where the kept part may begin, and its tokens; the newest first."""
    kept = 0
    for start in range(len(history) - 1, 0, -1):
        kept += sizes[start]
        if kept > budget:
            break
        if isinstance(history[start], UserEntry):
            fitting.append((start, kept))
    notes = _Notes(history, settings.summary_max_chars)
    for start, kept in reversed(fitting):
        note = notes.about(start)
        cost = _note_tokens(note, settings)
        room = budget - kept
        if cost > room and start == fitting[0][0]:
            note = _fit(note, room, settings)
            cost = _note_tokens(note, settings)
        if note and cost <= room:
            entries = [NoteEntry(note), *history[start:]]
            return Selection(entries, static + total, static + kept + cost, start)
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
    history: list[Entry],
    *,
    max_messages: int,
    max_bytes: int,
    note_chars: int,
    scale: Scale,
) -> tuple[list[Entry], int]:
    """Drop the oldest groups until the history is within its limits.

    Returns:
        The history, headed by a note when something was dropped, and how many
        entries went.

    Raises:
        ContextLimit: The newest group alone is over a limit.
    """
    removed = 0
    sizes = scale.sizes(history)
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
    note = _Notes(history, note_chars).about(start)
    return [NoteEntry(note), *history[start:]], removed
