"""What an approver is shown: inert, bounded, with the dangerous part in sight."""

from collections.abc import Awaitable, Callable
from typing import Any

from scv.core.ports import PreparedCall
from scv.core.visible import one_line, shorten, show_hidden

SUMMARY_CHARACTERS = 2000
SUMMARY_LINES = 40
SUBJECT_CHARACTERS = 48 * 1024
OPTIONS = (
    {"id": "deny", "kind": "deny", "label": "Deny"},
    {"id": "once", "kind": "allow_once", "label": "Allow once"},
    {"id": "stop", "kind": "deny_stop", "label": "Deny and stop the turn"},
)

PutBlob = Callable[[bytes], Awaitable[str]]


async def build(call: PreparedCall, put_blob: PutBlob, **fields: Any) -> dict[str, Any]:
    """Build the wire Approval of a call; `fields` are the ids, digest and times."""
    full = show_hidden(call.summary)
    summary = shorten(full, limit=SUMMARY_CHARACTERS, max_lines=SUMMARY_LINES)
    return {
        **fields,
        "risk": call.risk,
        "title": one_line(call.title, 200),
        "summary": summary,
        "shortened": summary != full,
        "subject": await _inert(call.subject, put_blob),
        "options": [dict(option) for option in OPTIONS],
        "safeOption": "deny",
        "editable": False,
    }


async def _inert(value: Any, put_blob: PutBlob) -> Any:
    """Escape every text; a long one is cut and its object gets `blobId`."""
    if isinstance(value, str):
        return show_hidden(value)
    if isinstance(value, list | tuple):
        return [await _inert(part, put_blob) for part in value]
    if not isinstance(value, dict):
        return value
    shown: dict[str, Any] = {}
    for key, part in value.items():
        inert = await _inert(part, put_blob)
        if isinstance(inert, str) and len(inert) > SUBJECT_CHARACTERS:
            shown["blobId"] = await put_blob(inert.encode())
            inert = shorten(inert, limit=SUBJECT_CHARACTERS, max_lines=1000)
        shown[key] = inert
    if "blobId" in shown:
        shown.pop("hunks", None)
    return shown
