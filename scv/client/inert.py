"""Text from outside, made harmless for a terminal.

The server has already written out every hidden character of approval texts. This
is for all the rest (answers, results, titles, paths): nothing in it may move the
cursor, change a title or reorder what is read. Joiners and variation selectors stay,
because emoji and several scripts need them and a terminal does nothing with them.
"""

import re

_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # all controls but tab and line feed
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line ends, direction
    "\ud800-\udfff\ufeff\U000e0000-\U000e007f]"  # half pairs, marks, tags
)


def inert(text: str) -> str:
    """Write every character that a terminal could act on as an escape like `\\x1b`.

    Line feeds and tabs stay; CR LF becomes a line feed.
    """
    if text.isascii() and text.isprintable():
        return text
    return _ACTIVE.sub(_escape, text.replace("\r\n", "\n"))


def inert_line(text: str, limit: int) -> str:
    """Flatten to one harmless line of at most `limit` characters."""
    line = inert(" ".join(text[: limit * 8].split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\r":
        return "\\r"
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
