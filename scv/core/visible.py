"""Make text inert for people: what cannot be seen is written out.

Every text an approver reads passes here once, on the server.
"""

import re

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, fillers
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, line ends, bidi
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)
_NAMED = {"\r": "\\r", "\x00": "\\0", "\x08": "\\b", "\x0c": "\\f", "\x0b": "\\v"}


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character in _NAMED:
        return _NAMED[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def show_hidden(text: str) -> str:
    """Write control, bidi and zero-width characters as escapes such as `\\x1b`.

    Line feeds and tabs stay.
    """
    return _HIDDEN.sub(_escape, text)


def one_line(text: str, limit: int) -> str:
    """Flatten to one inert line of at most `limit` characters."""
    flat = show_hidden(" ".join(text.split()))
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def shorten(text: str, *, limit: int, max_lines: int) -> str:
    """Cut the middle out of inert text, saying how much is hidden.

    Head and tail stay, so nothing dangerous hides at the end of a long text.

    Args:
        text: Already inert text.
        limit: Most characters to keep, 200 or more.
        max_lines: Most lines to keep, 4 or more; blank lines count.
    """
    lines = text.split("\n")
    if len(text) <= limit and len(lines) <= max_lines:
        return text
    half = limit // 2
    head = "\n".join(lines[: max_lines // 2])[:half]
    tail_lines = lines[-(max_lines // 2) :] if len(lines) > max_lines // 2 else lines
    tail = "\n".join(tail_lines)[-half:]
    tail = tail[max(0, len(head) + len(tail) - len(text)) :]
    hidden = text[len(head) : len(text) - len(tail)]
    if not hidden:
        return text
    blank = " (all blank)" if not hidden.strip() else ""
    return (
        f"{head}\n[… {len(hidden)} characters, {hidden.count(chr(10))} line ends"
        f" hidden here{blank}; {len(text)} characters,"
        f" {len(lines)} lines in all …]\n{tail}"
    )
