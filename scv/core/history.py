"""What the model has seen, independent of any provider's wire.

Each assistant entry also keeps the items exactly as its API sent them
(`native`): they go back verbatim while the wire and model stay the same;
otherwise the neutral fields are converted.
"""

from typing import Any

from scv.values import frozen


@frozen
class Call:
    """One tool call as the model wrote it; `arguments` is its raw JSON text."""

    call_id: str
    name: str
    arguments: str


@frozen
class UserEntry:
    """Text from a person (or the front end on their behalf)."""

    text: str


@frozen
class AssistantEntry:
    """One complete model response.

    `native` holds the response's items as the API wants them back, in output
    order; valid only for the same `wire` and `model`.
    """

    text: str
    calls: tuple[Call, ...] = ()
    native: tuple[dict[str, Any], ...] = ()
    wire: str = ""
    model: str = ""


@frozen
class OutputEntry:
    """The result of one tool call, as text for the model."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@frozen
class NoteEntry:
    """A sentence from SCV itself: what was left out, or what happened meanwhile."""

    text: str


@frozen
class SummaryEntry:
    """A summary that stands for everything before it; only in stored histories."""

    text: str


Entry = UserEntry | AssistantEntry | OutputEntry | NoteEntry | SummaryEntry

_KINDS: dict[str, type[Entry]] = {
    "user": UserEntry,
    "assistant": AssistantEntry,
    "output": OutputEntry,
    "note": NoteEntry,
    "summary": SummaryEntry,
}
_NAMES = {entry_type: kind for kind, entry_type in _KINDS.items()}


def encode_entry(entry: Entry) -> dict[str, Any]:
    """Spell an entry as JSON, with its `kind`."""
    body = {"kind": _NAMES[type(entry)], **_fields(entry)}
    if isinstance(entry, AssistantEntry):
        body["calls"] = [_fields(call) for call in entry.calls]
    return body


def decode_entry(body: dict[str, Any]) -> Entry:
    """Read an entry from JSON.

    Raises:
        KeyError, TypeError: It is none.
    """
    fields = dict(body)
    entry_type = _KINDS[fields.pop("kind")]
    if entry_type is AssistantEntry:
        fields["calls"] = tuple(Call(**call) for call in fields["calls"])
        fields["native"] = tuple(fields["native"])
    return entry_type(**fields)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}
