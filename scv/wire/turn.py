"""Turns: one accepted prompt until its single end."""

from typing import Annotated, Literal, NotRequired, TypedDict

from scv.shapes import LARGEST_INTEGER, Bounds
from scv.wire.identifiers import Id, Millis, OpId, Seq

TurnState = Literal[
    "accepted",
    "preparing",
    "model",
    "retry_wait",
    "waiting_approval",
    "waiting_input",
    "tools",
    "cancelling",
    "ended",
]
TurnStatus = Literal[
    "completed", "cancelled", "failed", "interrupted", "limited", "refused"
]
"""How a turn ended: `limited` = steps, tokens, cost; `interrupted` = server died."""


class Usage(TypedDict):
    """Tokens so far; input includes cached. Absent = the endpoint did not say."""

    inputTokens: NotRequired[int]
    outputTokens: NotRequired[int]
    cachedTokens: NotRequired[int]
    reasoningTokens: NotRequired[int]
    contextUsed: NotRequired[int]
    """Tokens of the newest request, estimated where the endpoint is silent."""
    contextSize: NotRequired[int]


class TurnError(TypedDict):
    """Why a turn failed."""

    code: str
    message: str
    retryable: bool
    providerStatus: NotRequired[int]
    requestId: NotRequired[str]


class Turn(TypedDict):
    """A turn as clients see it."""

    id: Id
    sessionId: Id
    state: TurnState
    status: NotRequired[TurnStatus]
    stopReason: NotRequired[str]
    startedAt: Millis
    endedAt: NotRequired[Millis]
    error: NotRequired[TurnError]
    usage: Usage
    owner: NotRequired[Id]
    """Client id of the front end that started it."""


class TextPart(TypedDict):
    """Text a person wrote."""

    type: Literal["text"]
    text: str


class FilePart(TypedDict):
    """A file the person points at; with `text`, its content as they see it."""

    type: Literal["file"]
    uri: Annotated[str, Bounds(1, 4096)]
    text: NotRequired[str]


class Position(TypedDict):
    """A place in a text, in UTF-16 code units."""

    line: Annotated[int, Bounds(0, LARGEST_INTEGER)]
    character: Annotated[int, Bounds(0, LARGEST_INTEGER)]


class Range(TypedDict):
    """A part of a text; the end is behind its last character."""

    start: Position
    end: Position


class SelectionPart(TypedDict):
    """Selected text of a file."""

    type: Literal["selection"]
    uri: Annotated[str, Bounds(1, 4096)]
    text: str
    range: NotRequired[Range]
    languageId: NotRequired[Annotated[str, Bounds(0, 64)]]


class BufferPart(TypedDict):
    """Text of a buffer without a file."""

    type: Literal["buffer"]
    label: Annotated[str, Bounds(0, 200)]
    text: str


InputPart = TextPart | FilePart | SelectionPart | BufferPart
"""One part of a prompt."""

Input = Annotated[list[InputPart], Bounds(1, 64)]


class StartTurn(TypedDict):
    """Give a prompt; answered when it is on disk, long before the turn is over."""

    opId: OpId
    sessionId: Id
    input: Input
    ifBusy: NotRequired[Literal["reject"]]
    """What to do while another turn runs: refuse with 4241."""


class TurnStarted(TypedDict):
    """The prompt is accepted and durable."""

    outcome: Literal["started"]
    turnId: Id
    itemId: Id
    """The user message."""
    seq: Seq


class GetTurn(TypedDict):
    """Ask for a turn of a session, running or ended."""

    sessionId: Id
    turnId: Id


class TurnResult(TypedDict):
    """One turn."""

    turn: Turn


class CancelTurn(TypedDict):
    """Stop the named turn and no other."""

    opId: OpId
    sessionId: Id
    turnId: Id
    reason: NotRequired[Annotated[str, Bounds(0, 200)]]


class CancelReceipt(TypedDict):
    """What the cancel stops."""

    processes: list[int]
    """Process ids of running commands."""
    approvals: list[Id]
    """Questions that are withdrawn."""
    queueHeld: bool
    queued: list[Id]


class TurnCancelling(TypedDict):
    """Answered at once; `turn.ended` follows."""

    state: Literal["cancelling", "ended"]
    receipt: CancelReceipt


class QueueEntry(TypedDict):
    """A prompt that waits for its turn."""

    queueId: Id
    rev: int
    preview: str
    submitter: Id
    at: Millis


class QueueState(TypedDict):
    """The queue of a session."""

    rev: int
    held: bool
    entries: list[QueueEntry]
