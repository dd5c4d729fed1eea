"""Cut what a model or a command wrote to what an event can carry."""

import json
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

ARGUMENTS_BYTES = 64 * 1024
"""JSON of a call's arguments as front ends see them."""
ARGUMENT_BYTES = 8 * 1024
"""JSON of one long text inside arguments that are above their limit."""


def encoded_bytes(value: Any) -> int:
    """Count the bytes of a value's JSON."""
    return len(_encode(value).encode("utf-8", "replace"))


def excerpt(text: str, limit_bytes: int) -> str:
    """Keep head and tail of a text whose JSON is above a limit, and say so between.

    Args:
        text: Any text.
        limit_bytes: Most bytes of JSON, 200 or more.
    """
    if len(text) <= limit_bytes // 6 or encoded_bytes(text) <= limit_bytes:
        return text
    room = limit_bytes - 100  # for the words between
    length = min(room, len(text)) // 2
    while True:
        head, tail = text[:length], text[-length:]
        if encoded_bytes(head) + encoded_bytes(tail) <= room:
            left_out = len(text) - 2 * length
            return f"{head}\n[… {left_out} characters left out …]\n{tail}"
        length = length * 3 // 4


def shown_arguments(arguments: Any) -> Any:
    """Cut long texts inside arguments that are too long, or the whole as one text."""
    if isinstance(arguments, str):
        return excerpt(arguments, ARGUMENTS_BYTES)
    text = _encode(arguments)
    if len(text.encode("utf-8", "replace")) <= ARGUMENTS_BYTES:
        return arguments
    shorter = _with_short_texts(arguments)
    if encoded_bytes(shorter) <= ARGUMENTS_BYTES:
        return shorter
    return excerpt(text, ARGUMENTS_BYTES)


def _with_short_texts(value: Any) -> Any:
    if isinstance(value, str):
        return excerpt(value, ARGUMENT_BYTES)
    if isinstance(value, list | tuple):
        return [_with_short_texts(part) for part in value]
    if isinstance(value, dict):
        return {key: _with_short_texts(part) for key, part in value.items()}
    return value
