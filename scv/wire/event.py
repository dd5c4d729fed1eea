"""Events: changes of a session's state, numbered in one order for all clients."""

from typing import Any, Literal, NotRequired, TypedDict

from scv.wire.approval import Approval
from scv.wire.identifiers import Id, Millis
from scv.wire.item import Item
from scv.wire.queue import QueueEntry
from scv.wire.turn import TurnError, TurnState, TurnStatus, Usage


class Event(TypedDict):
    """One change. Unknown types are skipped."""

    type: str
    at: Millis
    turnId: NotRequired[Id]
    itemId: NotRequired[Id]
    data: dict[str, Any]


class SessionUpdatedData(TypedDict):
    """`session.updated`: the fields that changed."""

    rev: int
    title: NotRequired[str]
    archived: NotRequired[bool]
    config: NotRequired[dict[str, Any]]


class SessionResetData(TypedDict):
    """`session.reset`: the first event of a new epoch; attach again."""

    previousEpoch: Id
    reason: str
    keptThrough: Id | None
    """The newest item that stays."""
    forkId: Id
    """The session that keeps the old branch."""


class SessionClosedData(TypedDict):
    """`session.closed`: nobody follows it any more; attach to go on; not kept."""


class ClientData(TypedDict):
    """`client.joined`, `client.left`: presence; not kept in the log."""

    clientId: Id
    name: str
    role: str


class TurnAcceptedData(TypedDict):
    """`turn.accepted`: a prompt is on disk and its turn begins."""

    owner: Id


class TurnStateData(TypedDict):
    """`turn.state`: the turn's state changed."""

    state: TurnState


class TurnEndedData(TypedDict):
    """`turn.ended`: exactly one for each turn; nothing of the turn follows."""

    status: TurnStatus
    stopReason: str
    error: NotRequired[TurnError]
    usage: Usage
    durationMs: int


class ItemData(TypedDict):
    """`item.started`, `item.completed`: the whole item as it is now."""

    item: Item


class ItemDeltaData(TypedDict):
    """`item.delta`: more text of a running item."""

    field: Literal["text", "reasoning", "output"]
    append: str
    offset: int
    """Code points of the field before `append`; skip what you already have."""


class ItemUpdatedData(TypedDict):
    """`item.updated`: replace these fields; null removes one, absent ones stay."""

    patch: dict[str, Any]


class ApprovalRequestedData(TypedDict):
    """`approval.requested`: a question waits."""

    approval: Approval


class ApprovedBy(TypedDict):
    """Who answered."""

    clientId: NotRequired[Id]
    name: NotRequired[str]
    channel: NotRequired[str]


class ApprovalResolvedData(TypedDict):
    """`approval.resolved`: the question is closed; nothing of it is open any more."""

    approvalId: Id
    decision: Literal["allowed", "denied", "cancelled", "expired", "withdrawn"]
    optionId: NotRequired[str]
    by: ApprovedBy
    at: Millis
    feedback: NotRequired[str]


class ApprovalUnattendedData(TypedDict):
    """`approval.unattended`: nobody who could answer is attached now."""

    approvalId: Id


class QueueChangedData(TypedDict):
    """`queue.changed`: the whole queue as it is now."""

    rev: int
    held: bool
    entries: list[QueueEntry]


class SteerData(TypedDict):
    """`steer.pending`, `steer.delivered`, `steer.retracted`: of the event's item."""


class SteerRequeuedData(TypedDict):
    """`steer.requeued`: the turn ended first; the text waits in the queue."""

    queueId: Id


class UsageData(TypedDict):
    """`usage.updated`: totals of the session."""

    usage: Usage


class RetryData(TypedDict):
    """`retry.scheduled`: the model request is tried again; not kept in the log."""

    attempt: int
    delayMs: int
    reason: str


class NoticeData(TypedDict):
    """`notice`: something to show once; not kept in the log."""

    code: str
    message: str


EVENTS: dict[str, type[Any]] = {
    "session.updated": SessionUpdatedData,
    "session.reset": SessionResetData,
    "session.closed": SessionClosedData,
    "client.joined": ClientData,
    "client.left": ClientData,
    "turn.accepted": TurnAcceptedData,
    "turn.state": TurnStateData,
    "turn.ended": TurnEndedData,
    "item.started": ItemData,
    "item.delta": ItemDeltaData,
    "item.updated": ItemUpdatedData,
    "item.completed": ItemData,
    "approval.requested": ApprovalRequestedData,
    "approval.resolved": ApprovalResolvedData,
    "approval.unattended": ApprovalUnattendedData,
    "queue.changed": QueueChangedData,
    "steer.pending": SteerData,
    "steer.delivered": SteerData,
    "steer.requeued": SteerRequeuedData,
    "steer.retracted": SteerData,
    "usage.updated": UsageData,
    "retry.scheduled": RetryData,
    "notice": NoticeData,
}
"""Event type -> shape of its `data`."""

NOT_DURABLE = frozenset(
    {"session.closed", "client.joined", "client.left", "retry.scheduled", "notice"}
)
"""Types that replay as empty ranges."""
