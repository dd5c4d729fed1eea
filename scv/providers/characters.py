"""Half characters: JSON escapes can hold a surrogate without its other half.

Nothing that cannot be written as UTF-8 leaves this room.
"""

import json
from typing import Any


def join_halves(text: str) -> tuple[str, str]:
    """Join surrogate pairs that escapes split; lone halves become U+FFFD.

    Returns the text, and a first half at its very end that the next delta may
    complete.
    """
    half = ""
    if "\ud800" <= text[-1:] <= "\udbff":
        text, half = text[:-1], text[-1]
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text, half


def clean_text(text: str) -> str:
    """Make a whole text valid: no half is left, at its end neither."""
    if text.isascii():
        return text
    joined, half = join_halves(text)
    return f"{joined}\ufffd" if half else joined


def clean_item(item: dict[str, Any]) -> dict[str, Any]:
    """Make every string in a JSON object valid; the same object when all are."""
    text = json.dumps(item, ensure_ascii=False)
    cleaned = clean_text(text)
    return item if cleaned == text else dict(json.loads(cleaned))


def utf8_size(text: str) -> int:
    """Count the bytes of a text as UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
