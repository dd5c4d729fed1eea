"""Context selection over long histories: the choice of the plain rules, soon."""

import random
import time
import weakref

import pytest

from scv.config.settings import ContextSettings
from scv.core.context import ContextLimit, Scale, select, text_tokens, tokens_of
from scv.core.history import (
    AssistantEntry,
    Call,
    Entry,
    NoteEntry,
    OutputEntry,
    UserEntry,
)

SELECTION_SECONDS = 0.02 * 5
"""Five times the 20 ms that 95 of 100 selections over 10,000 messages stay under."""


def history(source: random.Random) -> list[Entry]:
    """Make groups of every shape, some of them long and mostly blank."""
    entries: list[Entry] = []
    if source.random() < 0.2:
        entries.append(NoteEntry("3 earlier messages are left out"))
    for number in range(source.randrange(1, 7)):
        blank = " \n" * source.choice([1, 1, 1, 4000])
        entries.append(UserEntry(f"prompt{blank}{number}{blank}" + "ü " * 150))
        for step in range(source.randrange(3)):
            call = Call(f"c{number}.{step}", "bash", "{}")
            output = "o" * source.randrange(900)
            is_error = source.random() < 0.5
            entries += [
                AssistantEntry("a" * source.randrange(200), (call,)),
                OutputEntry(call.call_id, "bash", output, is_error),
            ]
        entries.append(AssistantEntry(f"answer {number} " + "é" * source.randrange(99)))
    return entries


def plain_select(
    entries: list[Entry], *, static: int, config: ContextSettings
) -> tuple[list[Entry], int] | None:
    """Select by the rules as they are written, however long it takes."""
    sizes = tokens_of(Scale().sizes(entries), config.bytes_per_token)
    budget = config.max_tokens - static
    if sum(sizes) <= budget:
        return entries, 0
    starts = [
        i for i, entry in enumerate(entries) if i and isinstance(entry, UserEntry)
    ]
    fitting = [start for start in starts if sum(sizes[start:]) <= budget]
    for start in fitting:
        room = budget - sum(sizes[start:])
        note = plain_note(entries[:start])[: config.summary_max_chars]
        if note_tokens(note, config) > room and start == fitting[-1]:
            most = max(0, (room - 14) * config.bytes_per_token)
            note = note.encode()[:most].decode("utf-8", "ignore")
        if note and note_tokens(note, config) <= room:
            return [NoteEntry(note), *entries[start:]], start
    return None


def note_tokens(note: str, config: ContextSettings) -> int:
    return text_tokens(note, config.bytes_per_token) + 14


def plain_note(entries: list[Entry]) -> str:
    lines = [f"{len(entries)} earlier messages are left out; their last words:"]
    for entry in entries:
        if isinstance(entry, OutputEntry):
            state = "failed" if entry.is_error else "ok"
            label, body = f"tool {entry.name} {state}", entry.content
        elif isinstance(entry, AssistantEntry):
            calls = [f"[calls {call.name}]" for call in entry.calls]
            label, body = "assistant", " ".join([entry.text, *calls])
        else:
            label = "user" if isinstance(entry, UserEntry) else "earlier"
            body = entry.text
        lines.append(f"{label}: {' '.join(body.split())[-240:]}")
    return "\n".join(lines)


def test_selection_is_that_of_the_plain_rules(seed: int) -> None:
    source = random.Random(seed)
    outcomes = {"all": 0, "part": 0, "none": 0}
    for _ in range(400):
        entries = history(source)
        config = ContextSettings(
            max_tokens=source.choice([300, 1000, 3000, 12_000, 60_000]),
            bytes_per_token=source.choice([1, 2, 3]),
            summary_max_chars=source.choice([1, 60, 400, 6000]),
        )

        wanted = plain_select(entries, static=9, config=config)

        if wanted is None:
            outcomes["none"] += 1
            with pytest.raises(ContextLimit):
                select(entries, static=9, settings=config, scale=Scale())
            continue
        chosen = select(entries, static=9, settings=config, scale=Scale())
        assert (list(chosen.entries), chosen.removed) == wanted
        outcomes["part" if chosen.removed else "all"] += 1
    assert all(outcomes.values()), outcomes


@pytest.mark.parametrize("size", [40, 1400])
def test_selecting_from_ten_thousand_messages_is_quick(size: int) -> None:
    entries: list[Entry] = []
    for number in range(5000):
        entries.append(UserEntry(f"prompt {number} " + "p" * size))
        entries.append(AssistantEntry(f"answer {number} " + "word " * (size // 5)))
    for max_tokens in (20_000, 100_000):
        config = ContextSettings(max_tokens=max_tokens)
        scale = Scale()
        scale.sizes(entries)  # what was there before has been weighed
        taken = []
        for _ in range(20):
            entries.append(UserEntry("one more"))
            start = time.perf_counter()
            chosen = select(entries, static=500, settings=config, scale=scale)
            taken.append(time.perf_counter() - start)
            assert chosen.removed > 0
        assert sorted(taken)[18] < SELECTION_SECONDS, taken


def test_the_scale_follows_a_history_that_was_trimmed(seed: int) -> None:
    source = random.Random(seed)
    scale = Scale()
    entries = history(source)
    for _ in range(50):
        entries = [*entries[source.randrange(len(entries)) :], *history(source)]
        if source.random() < 0.3:
            entries.insert(0, NoteEntry("some are left out"))
        assert scale.sizes(entries) == Scale().sizes(entries)


class Text(str):
    """A text whose end can be watched."""


def test_what_left_the_history_is_not_kept() -> None:
    scale = Scale()
    entries: list[Entry] = [UserEntry("x" * size) for size in range(100)]
    text = Text("y" * 10_000)
    gone = weakref.ref(text)
    scale.sizes([UserEntry(text), *entries])
    del text
    assert gone() is not None

    scale.sizes(entries)
    assert gone() is None


def test_other_settings_count_at_once() -> None:
    entries: list[Entry] = [UserEntry("x" * 300)]
    scale = Scale()
    for divisor in (1, 3, 1):
        config = ContextSettings(max_tokens=10_000, bytes_per_token=divisor)
        chosen = select(entries, static=0, settings=config, scale=scale)
        assert chosen.before_tokens == tokens_of(scale.sizes(entries), divisor)[0]
