"""What events can carry: head and tail of what is long, and the words between."""

import json
import random

import pytest

from scv.core.excerpt import (
    ARGUMENTS_BYTES,
    encoded_bytes,
    excerpt,
    shown_arguments,
)

ALPHABETS = ["x", "\x00", '"\\', "é", "漢", "\U0001f600", 'a"\n\x1b漢']


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_an_excerpt_keeps_both_ends_within_the_limit(alphabet: str, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(60):
        limit = source.randrange(200, 5000)
        text = "".join(source.choices(alphabet, k=source.randrange(6000)))

        short = excerpt(text, limit)

        assert encoded_bytes(short) <= limit
        if encoded_bytes(text) <= limit:
            assert short == text
            continue
        head, middle, tail = short.partition("\n[… ")
        count, _, tail = tail.partition(" characters left out …]\n")
        assert middle
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)


def test_short_arguments_are_shown_as_they_are() -> None:
    arguments = {"path": "a", "content": "x" * 60_000, "n": [1, None, True]}

    assert shown_arguments(arguments) is arguments
    assert shown_arguments("{not json") == "{not json"


def test_long_texts_inside_arguments_are_cut() -> None:
    arguments = {"path": "src/a.py", "content": "x" * 250_000, "mode": "create"}

    shown = shown_arguments(arguments)

    assert encoded_bytes(shown) <= ARGUMENTS_BYTES
    assert shown["path"] == "src/a.py"
    assert shown["mode"] == "create"
    assert shown["content"].startswith("xxx")
    assert "characters left out" in shown["content"]
    assert len(arguments["content"]) == 250_000


def test_arguments_of_many_short_texts_become_one_cut_text() -> None:
    arguments = {"edits": [{"old": f"{n}", "new": "\x00"} for n in range(20_000)]}

    shown = shown_arguments(arguments)

    assert encoded_bytes(shown) <= ARGUMENTS_BYTES
    assert isinstance(shown, str)
    assert shown.startswith('{"edits":[{"old":"0"')
    assert shown.endswith("]}")
    assert encoded_bytes(shown_arguments("\x00" * 300_000)) <= ARGUMENTS_BYTES
    assert json.dumps(shown)
