"""Context selection against a plain model of its rules."""

import random

import pytest

from scv.config.settings import ContextSettings
from scv.core.context import (
    ContextLimit,
    Scale,
    select,
    static_tokens,
    text_tokens,
    tokens_of,
    trim_history,
)
from scv.core.history import (
    AssistantEntry,
    Call,
    Entry,
    NoteEntry,
    OutputEntry,
    UserEntry,
)
from scv.core.ports import ToolSpec


def settings(**values: int) -> ContextSettings:
    return ContextSettings(**values)


def group(source: random.Random, number: int) -> list[Entry]:
    """Make a prompt with what follows it."""
    entries: list[Entry] = [
        UserEntry(f"prompt {number} " + "u" * source.randrange(300))
    ]
    for step in range(source.randrange(3)):
        call = Call(f"c{number}.{step}", "bash", "{}")
        entries += [
            AssistantEntry("a" * source.randrange(200), (call,)),
            OutputEntry(call.call_id, "bash", "o" * source.randrange(400)),
        ]
    entries.append(AssistantEntry(f"answer {number} " + "ü" * source.randrange(200)))
    return entries


def history(source: random.Random) -> list[Entry]:
    entries: list[Entry] = []
    if source.random() < 0.2:
        entries.append(NoteEntry("3 earlier messages are left out"))
    for number in range(source.randrange(1, 7)):
        entries += group(source, number)
    return entries


def groups_of(entries: list[Entry]) -> list[int]:
    return [i for i, entry in enumerate(entries) if isinstance(entry, UserEntry)]


def test_selection_keeps_its_promises(seed: int) -> None:
    source = random.Random(seed)
    outcomes = {"all": 0, "part": 0, "none": 0}
    for _ in range(1500):
        entries = history(source)
        before = list(entries)
        config = settings(
            max_tokens=source.randrange(60, 1200),
            bytes_per_token=source.choice([1, 3, 4]),
            summary_max_chars=source.choice([1, 40, 6000]),
        )
        static = source.randrange(50)
        budget = config.max_tokens - static
        scale = Scale()
        sizes = tokens_of(scale.sizes(entries), config.bytes_per_token)
        starts = groups_of(entries)
        newest = sum(sizes[starts[-1] :])
        try:
            chosen = select(entries, static=static, settings=config, scale=scale)
        except ContextLimit:
            # the newest group does not fit, or not with even a word about the rest
            has_older = starts[-1] > 0
            assert newest > budget or (has_older and newest + 15 > budget), seed
            outcomes["none"] += 1
            continue
        finally:
            assert entries == before, "the history is never changed"
        assert chosen.after_tokens <= config.max_tokens
        assert chosen.before_tokens == static + sum(sizes)
        if chosen.removed == 0:
            assert list(chosen.entries) == entries
            assert sum(sizes) <= budget
            outcomes["all"] += 1
            continue
        outcomes["part"] += 1
        assert sum(sizes) > budget
        assert chosen.removed in starts[1:] or starts[0] == chosen.removed
        note, *kept = chosen.entries
        assert kept == entries[chosen.removed :], "one contiguous end of whole groups"
        assert isinstance(note, NoteEntry)
        assert len(note.text) <= config.summary_max_chars
        first = f"{chosen.removed} earlier messages are left out"
        assert note.text.startswith(first[: len(note.text)])
        again = select(entries, static=static, settings=config, scale=scale)
        assert again == chosen, "deterministic"
        # no older group would have fitted without the note
        older = [start for start in starts if 0 < start < chosen.removed]
        for start in older:
            room = budget - sum(sizes[start:])
            assert room < text_tokens(note_of(entries[:start], config), 1) + 14 or (
                room < 0
            )
    assert all(outcomes.values()), outcomes


def note_of(left_out: list[Entry], config: ContextSettings) -> str:
    """Bound the note from above: a label and the last 240 characters of each."""
    return ("x" * (80 + 300 * len(left_out)))[: config.summary_max_chars]


def test_the_note_names_speakers_and_last_words() -> None:
    entries: list[Entry] = [
        UserEntry("look\nat  this"),
        AssistantEntry("I look", (Call("c", "read", "{}"),)),
        OutputEntry("c", "read", "x" * 500 + "THE END", is_error=True),
        UserEntry("new"),
    ]
    config = settings(max_tokens=200, bytes_per_token=3)
    scale = Scale()
    chosen = select(entries, static=0, settings=config, scale=scale)

    note = chosen.entries[0]
    assert isinstance(note, NoteEntry)
    first, *lines = note.text.split("\n")
    assert first == "3 earlier messages are left out; their last words:"
    assert lines[0] == "user: look at this"
    assert lines[1] == "assistant: I look [calls read]"
    assert lines[2].startswith("tool read failed: xxx")
    assert lines[2].endswith("THE END")
    assert len(lines[2]) == len("tool read failed: ") + 240


def test_estimates() -> None:
    assert text_tokens("", 3) == 0
    assert text_tokens("abcd", 3) == 2
    assert text_tokens("é", 1) == 2
    spec = ToolSpec("t", "d", {"type": "object"})
    config = settings(reserve_output_tokens=7, safety_margin_tokens=5)
    empty = static_tokens("", [], config)
    assert static_tokens("x" * 30, [], config) == empty + 10
    assert static_tokens("", [spec], config) > empty >= 12


def test_no_room_at_all_names_the_settings() -> None:
    config = settings(max_tokens=10)
    with pytest.raises(ContextLimit, match=r"context\.max_tokens"):
        select([UserEntry("x")], static=10, settings=config, scale=Scale())


def test_trimming_drops_whole_groups_from_the_old_end(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(500):
        entries = history(source)
        before = list(entries)
        most, size = source.randrange(1, 30), source.randrange(100, 6000)
        starts = groups_of(entries)
        scale = Scale()
        try:
            kept, removed = trim_history(
                entries,
                max_messages=most,
                max_bytes=size,
                note_chars=300,
                scale=scale,
            )
        except ContextLimit:
            newest = entries[starts[-1] :]
            assert len(newest) > most or _bytes(newest) > size
            continue
        finally:
            assert entries == before
        if removed == 0:
            assert kept == entries
            continue
        note, *rest = kept
        assert isinstance(note, NoteEntry)
        assert len(note.text) <= 300
        assert rest == entries[removed:]
        assert removed in starts
        assert len(rest) <= most


def _bytes(entries: list[Entry]) -> int:
    return sum(Scale().sizes(entries))
