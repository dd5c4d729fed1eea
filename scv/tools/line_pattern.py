"""Regular expressions that are matched against one line at a time.

The grammar is that of Python's `re`, with `\\w \\d \\s \\b` meaning ASCII. What
Python's own parser makes of a pattern is written out again with explicit
character sets only, in a form that Python and ripgrep read alike. A pattern
with anything else in it (look-around, back references, …) is for Python alone.
"""

import importlib
import re
import warnings
from dataclasses import replace
from typing import Any

from scv.errors import BadArguments
from scv.tools.arguments import encode
from scv.values import frozen

_LONGEST_PATTERN = 2000
_MOST_REPEATS = 1000
_LARGEST_FOLDED_RANGE = 2000
_TOP = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_NEWLINE = (10, 10)
_CATEGORIES = {
    "CATEGORY_DIGIT": [(48, 57)],
    "CATEGORY_SPACE": [(9, 13), (32, 32)],
    "CATEGORY_WORD": [(48, 57), (65, 90), (95, 95), (97, 122)],
}
_AT = {
    "AT_BEGINNING": ("^", "^"),
    "AT_BEGINNING_STRING": ("^", "^"),
    "AT_END": ("$", "$"),
    "AT_END_STRING": ("$", "$"),
    "AT_BOUNDARY": (r"\b", r"(?-u:\b)"),
    "AT_NON_BOUNDARY": (r"\B", r"(?-u:\B)"),
}

Ranges = list[tuple[int, int]]


@frozen
class LinePattern:
    """A pattern as the two engines take it.

    `python` cannot match a line end when `whole_text`, else it is for single
    lines. `python_loose` is the same for text with undecodable bytes (as lone
    surrogates), which no set contains. `ripgrep` is None when it reads it otherwise.
    `needle` is text every match contains, in lower case when `ignore_case`;
    `only_needle` means it is all there is. In a `whole_text` pattern the sets take
    care of letter case themselves.
    """

    python: str
    python_loose: str
    ripgrep: str | None
    whole_text: bool
    needle: str
    only_needle: bool
    as_bytes: bool
    ignore_case: bool
    ascii_only: bool


class _PythonOnly(Exception):
    """The pattern has a part that only Python reads."""


@frozen
class _Place:
    """Where in a pattern a part stands, and what holds there."""

    fold: bool
    repeats: int = 1
    at_start: bool = True
    at_end: bool = True

    def part(self, *, is_first: bool, is_last: bool) -> "_Place":
        """Give the place of a part of what stands here."""
        return replace(
            self,
            at_start=self.at_start and is_first,
            at_end=self.at_end and is_last,
        )


def read_pattern(pattern: str, *, ignore_case: bool) -> LinePattern:
    """Understand a pattern.

    Raises:
        BadArguments: It is empty, too long, or no regular expression.
    """
    if not pattern:
        raise BadArguments("`pattern` is empty", field="pattern")
    if not pattern.isascii():
        encode(pattern, "pattern")
    if len(pattern) > _LONGEST_PATTERN:
        raise BadArguments(
            f"`pattern` has {len(pattern)} characters; at most {_LONGEST_PATTERN}",
            field="pattern",
        )
    if re.search(r"\[\^?\[:\w+:\]", pattern):
        raise BadArguments(
            "`pattern`: classes such as [[:alpha:]] are not understood; "
            "write them out, such as [A-Za-z]",
            field="pattern",
        )
    tree = _parse(pattern)
    ignore_case = ignore_case or bool(tree.state.flags & re.IGNORECASE)
    needle = _needle(tree, fold=ignore_case)
    try:
        writers = [
            _Writer(ripgrep=ripgrep, loose=loose)
            for ripgrep, loose in ((False, False), (False, True), (True, False))
        ]
        python, loose, ripgrep = (
            writer.sequence(tree, _Place(ignore_case)) for writer in writers
        )
    except _PythonOnly:
        return LinePattern(
            python=pattern,
            python_loose=pattern,
            ripgrep=None,
            whole_text=False,
            # Beyond ASCII, letter case is Python's own matter.
            needle=needle if pattern.isascii() or not ignore_case else "",
            only_needle=False,
            as_bytes=False,
            ignore_case=ignore_case,
            ascii_only=pattern.isascii(),
        )
    return LinePattern(
        python=python,
        python_loose=loose,
        ripgrep=ripgrep,
        whole_text=True,
        needle=needle,
        only_needle=needle != "" and len(tree) == len(needle),
        as_bytes=python.isascii() and not writers[0].open_sets,
        ignore_case=ignore_case,
        ascii_only=True,
    )


def _parse(pattern: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = importlib.import_module("re._parser").parse(pattern)
            # Some mistakes, such as a look-behind of no fixed width, show only later.
            re.compile(pattern)
            return parsed
    except re.error as error:
        where = f" at character {error.pos}" if error.pos is not None else ""
        raise BadArguments(
            f"`pattern` is not a regular expression: {error.msg}{where}. "
            "To search for such characters as they are, put a backslash before each.",
            field="pattern",
        ) from None
    except (RecursionError, OverflowError):
        raise BadArguments(
            "`pattern` is nested too deeply, or repeats too often", field="pattern"
        ) from None


class _Writer:
    """Write a parsed pattern for one engine."""

    def __init__(self, *, ripgrep: bool, loose: bool) -> None:
        self._ripgrep, self._loose = ripgrep, loose
        self.open_sets = False  # is there a set that takes characters beyond ASCII?

    def sequence(self, tree: Any, place: _Place) -> str:
        last = len(tree) - 1
        return "".join(
            [
                self._one(op, value, place.part(is_first=i == 0, is_last=i == last))
                for i, (op, value) in enumerate(tree)
            ]
        )

    def _one(self, op: Any, value: Any, place: _Place) -> str:
        match str(op):
            case "LITERAL":
                return self._literal(value, place.fold)
            case "NOT_LITERAL":
                return self._set([(value, value)], place.fold, negated=True)
            case "ANY":
                self.open_sets = True
                return self._write_set([], negated=True) if self._loose else "."
            case "IN":
                return self._in(value, place.fold)
            case "BRANCH":
                parts = [self.sequence(part, place) for part in value[1]]
                return f"(?:{'|'.join(parts)})"
            case "SUBPATTERN":
                _, added, removed, inner = value
                if (added | removed) & ~re.IGNORECASE:
                    raise _PythonOnly
                if (added | removed) & re.IGNORECASE:
                    place = replace(place, fold=bool(added & re.IGNORECASE))
                return f"(?:{self.sequence(inner, place)})"
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value, place)
            case "AT":
                return self._at(str(value), place)
        raise _PythonOnly

    def _repeat(self, value: Any, place: _Place) -> str:
        least, most, inner = value
        endless = str(most) == "MAXREPEAT"
        repeats = place.repeats * max(1, least if endless else most)
        if repeats > _MOST_REPEATS:
            raise _PythonOnly
        inside = _Place(place.fold, repeats, at_start=False, at_end=False)
        body = f"(?:{self.sequence(inner, inside)})"
        if endless:
            return body + {0: "*", 1: "+"}.get(least, f"{{{least},}}")
        return body + f"{{{least},{most}}}"

    def _at(self, name: str, place: _Place) -> str:
        """Write an anchor; one in the midst of a pattern is a matter of opinion."""
        if name not in _AT:
            raise _PythonOnly
        if name.startswith("AT_BEGINNING") and not place.at_start:
            raise _PythonOnly
        if name.startswith("AT_END") and not place.at_end:
            raise _PythonOnly
        return _AT[name][self._ripgrep]

    def _literal(self, code: int, fold: bool) -> str:
        if code == 10 or _SURROGATES[0] <= code <= _SURROGATES[1]:
            raise _PythonOnly
        variants = _case_variants(code) if fold else {code}
        if len(variants) > 1:
            return self._write_set([(c, c) for c in variants], negated=False)
        return _character(code)

    def _in(self, items: Any, fold: bool) -> str:
        negated = str(items[0][0]) == "NEGATE"
        ranges: Ranges = []
        folded: Ranges = []
        for op, value in items[1:] if negated else items:
            match str(op):
                case "LITERAL":
                    folded.append((value, value))
                case "RANGE":
                    folded.append(value)
                case "CATEGORY":
                    name = str(value)
                    positive = _CATEGORIES.get(name.replace("_NOT_", "_"))
                    if positive is None:
                        raise _PythonOnly
                    ranges += _complement(positive) if "_NOT_" in name else positive
                case _:
                    raise _PythonOnly
        return self._set(folded, fold, negated=negated, more=ranges)

    def _set(
        self, ranges: Ranges, fold: bool, *, negated: bool, more: Ranges | None = None
    ) -> str:
        if fold:
            if any(b - a > _LARGEST_FOLDED_RANGE for a, b in ranges):
                raise _PythonOnly
            ranges = [
                (c, c)
                for a, b in ranges
                for code in range(a, b + 1)
                for c in _case_variants(code)
            ]
        return self._write_set(ranges + (more or []), negated=negated)

    def _write_set(self, ranges: Ranges, *, negated: bool) -> str:
        """Write a set that holds neither a line end nor an undecodable byte."""
        ranges = _without(ranges, _SURROGATES)
        if negated:
            self.open_sets = True
            ranges = _merged([*ranges, _NEWLINE])
            if self._loose:
                ranges = _merged([*ranges, _SURROGATES])
        else:
            ranges = _merged(_without(ranges, _NEWLINE))
            if not ranges:
                raise _PythonOnly
            self.open_sets = self.open_sets or ranges[-1][1] > 127
        body = "".join(
            _character(a) if a == b else f"{_character(a)}-{_character(b)}"
            for a, b in ranges
        )
        return f"[{'^' if negated else ''}{body}]"


def _needle(tree: Any, *, fold: bool) -> str:
    """Find the longest run of plain characters at the top of a pattern.

    Where letter case does not matter, only ASCII counts: it keeps its length.
    """
    runs = [""]
    for op, value in tree:
        if str(op) == "LITERAL" and value < (128 if fold else _SURROGATES[0]):
            runs[-1] += chr(value).lower() if fold else chr(value)
        else:
            runs.append("")
    return max(runs, key=len)


def _character(code: int) -> str:
    """Write one character so that it is plain to both engines, inside a set or not."""
    char = chr(code)
    if code < 128 and not (char.isalnum() or char == "_"):
        return f"\\x{code:02x}"
    return f"\\U{code:08x}" if 0xD800 <= code <= 0xDFFF else char


def _case_variants(code: int) -> set[int]:
    char = chr(code)
    variants = {char, char.lower(), char.upper()}
    return {ord(variant) for variant in variants if len(variant) == 1}


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for a, b in sorted(ranges):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return merged


def _complement(ranges: Ranges) -> Ranges:
    found: Ranges = []
    start = 0
    for a, b in _merged(ranges):
        if a > start:
            found.append((start, a - 1))
        start = b + 1
    return [*found, (start, _TOP)] if start <= _TOP else found


def _without(ranges: Ranges, hole: tuple[int, int]) -> Ranges:
    found: Ranges = []
    for a, b in ranges:
        if b < hole[0] or a > hole[1]:
            found.append((a, b))
            continue
        if a < hole[0]:
            found.append((a, hole[0] - 1))
        if b > hole[1]:
            found.append((hole[1] + 1, b))
    return found
