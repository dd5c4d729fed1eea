"""Turn the parts of a prompt into the text a model reads."""

from typing import Any
from urllib.parse import unquote, urlsplit

from scv.errors import InvalidParams
from scv.wire.errors import refuse
from scv.wire.limits import PROMPT_TEXT_BYTES


def prompt_text(parts: list[dict[str, Any]]) -> str:
    """Join the parts; attached text is fenced and named.

    Raises:
        InvalidParams: Blank.
        RequestRefused: 4261, above 256 KiB.
    """
    pieces: list[str] = []
    for part in parts:
        match part["type"]:
            case "text":
                pieces.append(part["text"])
            case "file" if "text" in part:
                pieces.append(_fenced(f"File {shown_path(part['uri'])}", part["text"]))
            case "file":
                pieces.append(f"File: {shown_path(part['uri'])}")
            case "selection":
                pieces.append(
                    _fenced(f"Selection in {shown_path(part['uri'])}", part["text"])
                )
            case "buffer":
                pieces.append(_fenced(f"Buffer {part['label']}", part["text"]))
    text = "\n\n".join(pieces)
    if not text.strip():
        raise InvalidParams(
            "params.input: the prompt is blank",
            data={"code": "params.invalid", "retryable": False, "path": "input"},
        )
    size = len(text.encode("utf-8", "replace"))
    if size > PROMPT_TEXT_BYTES:
        raise refuse(
            "limit.message",
            f"params.input: {size} bytes of text, the limit is {PROMPT_TEXT_BYTES};"
            " put the rest in a file",
            maxBytes=PROMPT_TEXT_BYTES,
            path="input",
        )
    return text


def shown_path(uri: str) -> str:
    """Spell a `file:` URI as a path; leave anything else."""
    split = urlsplit(uri)
    return unquote(split.path) if split.scheme == "file" else uri


def _fenced(label: str, text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{label}:\n{fence}\n{text}\n{fence}"
