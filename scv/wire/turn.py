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
    ifBusy: NotRequired[Literal["reject", "queue", "steer"]]
    """What to do while another turn runs or prompts wait: refuse with 4241 (when
    absent), append to the queue, or steer the running turn."""


class TurnStarted(TypedDict):
    """The prompt is accepted and durable."""

    outcome: Literal["started", "queued", "steered"]
    turnId: NotRequired[Id]
    """The turn that was started or steered."""
    queueId: NotRequired[Id]
    itemId: NotRequired[Id]
    """The user message; a queued prompt gets one when its turn starts."""
    seq: Seq


class SteerTurn(TypedDict):
    """Say something to a running turn: it reads it before its next model request."""

    opId: OpId
    sessionId: Id
    turnId: Id
    """The turn that is meant; 4243 when another one runs."""
    input: Input
    ifIdle: NotRequired[Literal["reject", "start", "queue"]]
    """What to do when that turn is over: refuse with 4243 (when absent), start a
    turn, or append to the queue."""


class TurnSteered(TypedDict):
    """The text is durable; `steer.delivered` says when the model gets it."""

    outcome: Literal["pending", "started", "queued"]
    itemId: NotRequired[Id]
    turnId: NotRequired[Id]
    queueId: NotRequired[Id]


class RetractSteer(TypedDict):
    """Take a steer back before the model gets it."""

    opId: OpId
    sessionId: Id
    itemId: Id


class SteerRetracted(TypedDict):
    """Whether it was still there."""

    retracted: bool


class RetryTurn(TypedDict):
    """Go on after a failed or interrupted turn; finished calls are not run again."""

    opId: OpId
    sessionId: Id
    turnId: Id
    """The session's newest turn."""


class TurnRetried(TypedDict):
    """The new turn."""

    turnId: Id


class CancelTool(TypedDict):
    """Stop one running call; the turn goes on with a cancelled result."""

    opId: OpId
    sessionId: Id
    itemId: Id


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
    queue: NotRequired[Literal["hold", "keep", "clear"]]
    """What becomes of waiting prompts: held (when absent), run next, or removed."""
    reason: NotRequired[Annotated[str, Bounds(0, 200)]]


class CancelReceipt(TypedDict):
    """What the cancel stops."""

    processes: list[int]
    """Process ids of running commands."""
    approvals: list[Id]
    """Questions that are withdrawn."""
    steers: list[Id]
    """Steers the model did not get; they go to the head of the queue."""
    queueHeld: bool
    queued: list[Id]


class TurnCancelling(TypedDict):
    """Answered at once; `turn.ended` follows."""

    state: Literal["cancelling", "ended"]
    receipt: CancelReceipt
