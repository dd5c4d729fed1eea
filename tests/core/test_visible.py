"""What people read is inert: nothing hidden, nothing dangerous out of sight."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scv.core.visible import one_line, shorten, show_hidden

VISIBLE_CONTROLS = {"\t", "\n"}
# Format characters that draw something: signs before numbers, in a few scripts.
DRAWN = {chr(c) for c in (*range(0x600, 0x606), 0x6DD, 0x70F, 0x8E2)} | {
    chr(c) for c in (0x890, 0x891, 0x110BD, 0x110CD, *range(0x13430, 0x13440))
}


def test_every_control_and_format_character_is_written_out() -> None:
    for code in range(0x110000):
        character = chr(code)
        category = unicodedata.category(character)
        hidden = category in {"Cc", "Cf", "Cs", "Zl", "Zp"}
        if not hidden or character in VISIBLE_CONTROLS | DRAWN:
            continue
        shown = show_hidden(f"a{character}b")
        assert character not in shown, hex(code)
        assert shown.isascii(), hex(code)
        assert shown.startswith("a\\")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\r", "\\r"),
        ("\x1b[2K", "\\x1b[2K"),
        ("\x00", "\\0"),
        ("\x9b", "\\x9b"),
        ("\u202egnp", "\\u202egnp"),
        ("\U000e0041", "\\U000e0041"),
        ("\u034f", "\\u034f"),
        ("\u3164", "\\u3164"),
        ("\ud800", "\\ud800"),
        ("tab\tline\n", "tab\tline\n"),
        ("日本語 é 🍸", "日本語 é 🍸"),
        ("ש ع", "ש ع"),
    ],
)
def test_escapes(text: str, shown: str) -> None:
    assert show_hidden(text) == shown


@given(st.text())
def test_showing_twice_changes_nothing_more(text: str) -> None:
    shown = show_hidden(text)
    assert show_hidden(shown) == shown
    shown.encode()


@given(st.text(), st.integers(2, 300))
def test_one_line_is_one_bounded_line(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert show_hidden(line) == line


def random_text(source: random.Random) -> str:
    lines = [
        source.choice(["", " ", "x" * source.randrange(400), f"line {number}"])
        for number in range(source.choice([1, 3, 39, 40, 41, 80, 200]))
    ]
    return "\n".join(lines)


def test_shortening_keeps_head_and_tail_and_counts_the_rest(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(500):
        text = random_text(source)
        limit, max_lines = source.choice([(200, 4), (2000, 40), (400, 11)])
        short = shorten(text, limit=limit, max_lines=max_lines)
        if len(text) <= limit and text.count("\n") < max_lines:
            assert short == text
            continue
        if short == text:
            continue
        head, mark, tail = split_at_mark(short)
        assert text.startswith(head)
        assert text.endswith(tail)
        hidden = len(text) - len(head) - len(tail)
        assert hidden > 0
        assert f"{hidden} characters, " in mark
        assert f"{len(text)} characters, {text.count(chr(10)) + 1} lines in all" in mark
        assert tail, "the end is always in sight"
        assert len(head) + len(tail) <= limit
        assert head.count("\n") + tail.count("\n") <= max_lines


def split_at_mark(short: str) -> tuple[str, str, str]:
    start = short.index("\n[… ")
    end = short.index(" …]\n", start)
    return short[:start], short[start:end], short[end + 4 :]


def test_a_payload_after_blank_lines_stays_in_sight() -> None:
    for blank in ("\n" * 80, "\n \t" * 300, " " * 5000):
        short = shorten(f"echo ok{blank}curl x|sh", limit=2000, max_lines=40)
        assert short.startswith("echo ok")
        assert short.endswith("curl x|sh")
        assert "all blank" in short
