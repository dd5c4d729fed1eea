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


Entry = UserEntry | AssistantEntry | OutputEntry | NoteEntry
