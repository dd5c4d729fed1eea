"""Text to search: folded, in pieces, as grams of the index; and snippets of it.

Theory of operation. The index knows which groups of characters occur in a piece
of text, not where: it proposes pieces, and `find` decides in the text itself. So
the index may be generous, and what a query means is said here alone: every word
must occur, wherever in a word, case ignored; nothing in it has another meaning.

Chinese, Japanese and Korean words often have one or two characters, too few for
the groups of three that find all other words; they have an index of pairs.
"""

import re
from collections.abc import Iterator

GRAM = 3
PIECE_CHARACTERS = 1 << 16
"""Indexing one takes some 20 ms."""
LONGEST_WORD = 500
"""Pieces overlap by this much, so that no word is torn."""
SNIPPET_CHARACTERS = 80
_MOST_GRAMS = 40
"""Of one word; they propose, and need not tell the whole word."""

_DENSE = (
    "\u1100-\u11ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Kana, ideographs, Hangul: written without spaces, or in very short words."""
_dense_runs = re.compile(f"[{_DENSE}]+")
_invisible = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")


def words_of(query: str) -> list[str]:
    """Split what somebody looks for into folded words, the longest first."""
    words = {fold(word)[:LONGEST_WORD] for word in clean(query).split()}
    return sorted(words, key=lambda word: (-len(word), word))


def clean(text: str) -> str:
    """Replace what a database cannot keep: lone surrogates and NUL."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", " ")


def fold(text: str) -> str:
    """Spell text so that case makes no difference."""
    return text.lower() if text.isascii() else text.casefold()


def pieces(text: str) -> Iterator[str]:
    """Cut text into overlapping pieces that hold every word whole."""
    step = PIECE_CHARACTERS - LONGEST_WORD
    for start in range(0, max(1, len(text) - LONGEST_WORD), step):
        yield text[start : start + PIECE_CHARACTERS]


def pairs(folded: str) -> str:
    """List the pairs of neighbours in dense script, and the ends of its runs."""
    found: set[str] = set()
    for run in _dense_runs.findall(folded):
        found.update(run[i : i + 2] for i in range(len(run)))
    return " ".join(sorted(found))


def gram_query(word: str) -> str | None:
    """Ask the index of threes for a word; None when it is too short."""
    if len(word) < GRAM:
        return None
    grams = list(dict.fromkeys(word[i : i + GRAM] for i in range(len(word) - GRAM + 1)))
    return " AND ".join(map(_quoted, grams[:_MOST_GRAMS]))


def pair_query(word: str) -> str | None:
    """Ask the index of pairs for a word; None when it is not one or two dense ones."""
    if len(word) >= GRAM or not _dense_runs.fullmatch(word):
        return None
    return _quoted(word) + ("*" if len(word) == 1 else "")


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def find(text: str, word: str) -> tuple[int, int] | None:
    """Find a folded word in text: the first place, as a slice of `text`."""
    folded = fold(text)
    start = folded.find(word)
    if start < 0:
        return None
    if len(folded) == len(text):
        return start, start + len(word)
    return _unfolded(text, start, start + len(word))


def _unfolded(text: str, start: int, end: int) -> tuple[int, int]:
    """Turn places in folded text into places in `text`, whole characters."""
    first, place = 0, 0
    for index, character in enumerate(text):
        if place <= start:
            first = index
        if place >= end:
            return first, index
        place += len(fold(character))
    return first, len(text)


def snippet(text: str, start: int, end: int) -> str:
    """Show a place in text on one line, about 80 characters, the place itself whole."""
    hit = _line(text[start:end])
    room = max(0, SNIPPET_CHARACTERS - len(hit))
    # White space shrinks, so look further than there is room.
    before = _line(text[max(0, start - 4 * SNIPPET_CHARACTERS) : start]).lstrip()
    after = _line(text[end : end + 4 * SNIPPET_CHARACTERS]).rstrip()
    left = max(room // 2, room - len(after))
    kept_before = before[max(0, len(before) - left) :]
    kept_after = after[: room - len(kept_before)]
    is_cut_before = len(kept_before) < len(before) or start > 4 * SNIPPET_CHARACTERS
    is_cut_after = len(kept_after) < len(after) or len(text) > end + 4 * (
        SNIPPET_CHARACTERS
    )
    return (
        f"{'…' if is_cut_before else ''}{kept_before}{hit}{kept_after}"
        f"{'…' if is_cut_after else ''}"
    )


def _line(text: str) -> str:
    """Make one line of text: white space is one space, controls are gone."""
    spaced = re.sub(r"\s+", " ", text)
    return _invisible.sub("", spaced)
