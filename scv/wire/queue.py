"""The queue: prompts that wait for their turn."""

from typing import Annotated, Literal, NotRequired, TypedDict

from scv.shapes import LARGEST_INTEGER, Bounds
from scv.wire.identifiers import Id, Millis, OpId
from scv.wire.turn import Input

Rev = Annotated[int, Bounds(0, LARGEST_INTEGER)]


class QueueEntry(TypedDict):
    """A prompt that waits for its turn."""

    queueId: Id
    rev: int
    """Revision of this entry: 1, and one more at each change of its text."""
    preview: str
    """Its text, cut at 4 KiB."""
    submitter: Id
    at: Millis


class QueueState(TypedDict):
    """The queue of a session."""

    rev: int
    """Revision of the queue: grows with every change."""
    held: bool
    """True: nothing starts by itself until it is released."""
    entries: list[QueueEntry]


class ListQueue(TypedDict):
    """Ask for the queue of a session."""

    sessionId: Id


class AddEntry(TypedDict):
    """Append a prompt; it starts at once when the session is idle and not held."""

    opId: OpId
    sessionId: Id
    input: Input
    before: NotRequired[Id]
    """Entry to stand before; at the end when absent."""
    ifRev: NotRequired[Rev]
    """Only when the queue's `rev` is still this one; else 4242."""


class EntryResult(TypedDict):
    """An entry, and the queue's revision after the change."""

    rev: int
    entry: QueueEntry


class UpdateEntry(TypedDict):
    """Replace the text of an entry."""

    opId: OpId
    sessionId: Id
    queueId: Id
    entryRev: Rev
    """The entry's `rev`; 4242 with the current entry when it is another."""
    input: Input


class MoveEntry(TypedDict):
    """Put an entry elsewhere; before itself is no change."""

    opId: OpId
    sessionId: Id
    queueId: Id
    before: NotRequired[Id]
    """Entry to stand before; at the end when absent."""
    ifRev: NotRequired[Rev]


class RemoveEntry(TypedDict):
    """Remove an entry."""

    opId: OpId
    sessionId: Id
    queueId: Id
    ifRev: NotRequired[Rev]


class ClearQueue(TypedDict):
    """Remove all entries."""

    opId: OpId
    sessionId: Id
    ifRev: NotRequired[Rev]


class QueueRevision(TypedDict):
    """The queue's revision after the change."""

    rev: int


class HoldQueue(TypedDict):
    """Let nothing start by itself."""

    opId: OpId
    sessionId: Id


class ReleaseQueue(TypedDict):
    """Go on: the first entry starts at once when the session is idle."""

    opId: OpId
    sessionId: Id


class QueueHeld(TypedDict):
    """Whether the queue is held, and its revision."""

    rev: int
    held: bool


PromoteEntry = TypedDict(
    "PromoteEntry",
    {
        "opId": OpId,
        "sessionId": Id,
        "queueId": Id,
        "as": Literal["next", "steer"],
    },
)
PromoteEntry.__doc__ = """Move an entry to the head, or into the running turn, at once.

`as` = `steer` while nothing runs starts the entry.
"""


class EntryPromoted(TypedDict):
    """What became of it."""

    outcome: Literal["next", "steered", "started"]
    turnId: NotRequired[Id]
    itemId: NotRequired[Id]
