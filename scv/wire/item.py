"""Items: what a transcript is made of."""

from typing import Any, Literal, NotRequired, TypedDict

from scv.wire.approval import Risk
from scv.wire.identifiers import Id, Millis

ItemStatus = Literal[
    "pending",
    "in_progress",
    "waiting_approval",
    "completed",
    "failed",
    "denied",
    "cancelled",
    "interrupted",
]
ItemKind = Literal[
    "user_message",
    "assistant_message",
    "reasoning",
    "tool_call",
    "notice",
    "error",
    "compaction",
]


class Author(TypedDict):
    """Who wrote a message."""

    clientId: Id
    name: str


class UserMessage(TypedDict):
    """A prompt."""

    id: Id
    turnId: Id
    kind: Literal["user_message"]
    status: ItemStatus
    createdAt: Millis
    parts: list[dict[str, Any]]
    """The `InputPart`s as they were given."""
    opId: str
    author: Author


class TextItem(TypedDict):
    """Text of the model: its answer, or its visible reasoning."""

    id: Id
    turnId: Id
    kind: Literal["assistant_message", "reasoning"]
    status: ItemStatus
    createdAt: Millis
    text: str
    """Above 192 KiB: head and tail, the whole in `blobId`."""
    partial: bool
    """True while it grows, and for ever when it was cut off."""
    blobId: NotRequired[Id]


class ToolOutcome(TypedDict):
    """What a call gave; `output` is what the model reads.

    Above 96 KiB of JSON `output`, and above 64 KiB `diff`, is cut in the middle.
    """

    success: bool
    output: str
    truncated: bool
    totalBytes: NotRequired[int]
    blobId: NotRequired[Id]
    """The whole output where it was cut; `read` takes it as `handle`."""
    diff: NotRequired[str]


class ToolCall(TypedDict):
    """A call of a tool, from the model's request to its result."""

    id: Id
    turnId: Id
    kind: Literal["tool_call"]
    status: ItemStatus
    createdAt: Millis
    callId: str
    """The model's own id of the call."""
    name: str
    arguments: Any
    """Normalised arguments; the raw text when they are not valid.

    Above 64 KiB of JSON long texts in it are cut in the middle, or the whole as text.
    """
    title: NotRequired[str]
    risk: NotRequired[Risk]
    approvalId: NotRequired[Id]
    progress: NotRequired[str]
    """Newest output of a running call."""
    result: NotRequired[ToolOutcome]


class NoticeItem(TypedDict):
    """Something a person should know, or what went wrong."""

    id: Id
    turnId: NotRequired[Id]
    kind: Literal["notice", "error"]
    status: ItemStatus
    createdAt: Millis
    code: str
    message: str


class Compaction(TypedDict):
    """The model's summary took the place of what it saw before."""

    id: Id
    turnId: Id
    kind: Literal["compaction"]
    status: ItemStatus
    createdAt: Millis
    beforeTokens: int
    afterTokens: int
    removed: int
    """Messages that the model does not see any more."""


Item = UserMessage | TextItem | ToolCall | NoticeItem | Compaction
