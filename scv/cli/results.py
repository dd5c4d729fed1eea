"""What a tool call says about itself, read by its shape and not by its name.

Results are JSON objects or plain text. The longest text or list in an object is what
a person wants to see of it; `status` is its one-line outcome.
"""

import json
from typing import Any

from scv.client.inert import inert, inert_line

Json = dict[str, Any]

_QUIET = ("sha256", "path", "status", "source")
ARGUMENT_CHARACTERS = 100
LINE_CHARACTERS = 400


def call_line(item: Json) -> str:
    """Name a call in one line: its title and the arguments that matter."""
    title = inert_line(item.get("title") or item["name"], 80)
    shown = short_arguments(item.get("arguments"))
    return f"{title}: {shown}" if shown else title


def short_arguments(arguments: Any) -> str:
    """Write arguments as one line; the first text stands for itself."""
    if not isinstance(arguments, dict):
        return inert_line(str(arguments or ""), ARGUMENT_CHARACTERS)
    texts = [value for value in arguments.values() if isinstance(value, str)]
    parts = [inert_line(texts[0], ARGUMENT_CHARACTERS)] if texts else []
    for name, value in arguments.items():
        if isinstance(value, list):
            count, noun = len(value), inert_line(name, 40)
            parts.append(f"{count} {noun.removesuffix('s') if count == 1 else noun}")
    return ", ".join(parts)


def outcome(item: Json) -> tuple[str, list[str]]:
    """Return a finished call's headline and the lines of what it gave."""
    output = str(item.get("result", {}).get("output", ""))
    value = _parsed(output)
    if value is None:
        head, _, rest = inert(output).strip().partition("\n")
        return head, rest.splitlines()
    status = value.get("status")
    headline = inert_line(status, 120) if isinstance(status, str) else ""
    return headline, _body(value)


def _parsed(output: str) -> Json | None:
    if not output.startswith("{"):
        return None
    try:
        value = json.loads(output)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _body(value: Json) -> list[str]:
    lists = [part for part in value.values() if isinstance(part, list) and part]
    if lists:
        return [line for part in lists[0] for line in _entry(part)]
    texts = [
        part
        for name, part in value.items()
        if isinstance(part, str) and name not in _QUIET
    ]
    return inert(max(texts, key=len, default="")).splitlines()


def _entry(part: Any) -> list[str]:
    """Write one element of a list: a text, or an object as its texts."""
    if not isinstance(part, dict):
        return inert(str(part)[:LINE_CHARACTERS]).splitlines()[:1]
    lines = [inert(text) for text in part.values() if isinstance(text, str)]
    for inner in part.values():
        if isinstance(inner, list):
            lines += [f"  {inert(str(text)[:LINE_CHARACTERS])}" for text in inner]
    return lines
