"""Approvals: a question that must be answered before a side effect."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from scv.shapes import Bounds
from scv.wire.identifiers import Id, Millis, OpId

Risk = Literal["read_only", "filesystem", "process", "delegate", "network"]
OptionKind = Literal["deny", "allow_once", "deny_stop"]


class ApprovalOption(TypedDict):
    """One possible answer; the safe one comes first."""

    id: str
    kind: OptionKind
    label: str


class CommandSubject(TypedDict):
    """A shell command, whole; control characters are shown as escapes."""

    type: Literal["command"]
    command: str
    cwd: str
    timeoutSeconds: NotRequired[int]
    blobId: NotRequired[Id]
    """The whole text where `command` was cut in the middle."""


class Hunk(TypedDict):
    """One place of a change."""

    id: str
    header: str
    lines: list[str]


class FileChange(TypedDict):
    """One file of a change, with a unified diff."""

    path: str
    op: Literal["create", "replace"]
    baseSha256: str | None
    newSha256: str
    patch: str
    hunks: NotRequired[list[Hunk]]
    blobId: NotRequired[Id]
    """The whole patch where `patch` was cut in the middle."""


class ChangeSubject(TypedDict):
    """Files to be changed."""

    type: Literal["change"]
    files: list[FileChange]


class OtherSubject(TypedDict):
    """Anything else, as text."""

    type: Literal["other"]
    text: str


Subject = CommandSubject | ChangeSubject | OtherSubject


class Approval(TypedDict):
    """A question. Every text in it is inert: control characters are visible escapes."""

    approvalId: Id
    sessionId: Id
    turnId: Id
    itemId: Id
    attempt: int
    """Above 1 when what would run changed while the question was open."""
    digest: str
    """SHA-256 over exactly what will run; an answer must repeat it."""
    createdAt: Millis
    expiresAt: Millis | None
    tool: str
    risk: Risk
    workspace: str
    title: str
    summary: str
    """What would happen, shortened in the middle; says how much it leaves out."""
    shortened: bool
    """True when `summary` hides a part: show the subject before offering to allow."""
    reason: str
    """The rule that asks."""
    subject: dict[str, Any]
    """One of CommandSubject, ChangeSubject, OtherSubject, by `type`."""
    options: list[ApprovalOption]
    safeOption: str
    editable: bool


class Decision(TypedDict):
    """An answer bound to what was shown."""

    optionId: Annotated[str, Bounds(0, 64)]
    digest: Annotated[str, Bounds(0, 64)]
    feedback: NotRequired[Annotated[str, Bounds(0, 4096)]]
    """Why; the model reads it."""


class Defer(TypedDict):
    """The answer of a front end that leaves the question to others."""

    defer: Literal[True]


class AnswerApproval(TypedDict):
    """Answer a question without having been asked on this connection."""

    opId: OpId
    approvalId: Id
    digest: Annotated[str, Bounds(0, 64)]
    optionId: Annotated[str, Bounds(0, 64)]
    feedback: NotRequired[Annotated[str, Bounds(0, 4096)]]


class AnswerAccepted(TypedDict):
    """The answer decided the question."""

    accepted: Literal[True]


class ListApprovals(TypedDict):
    """List open questions, of one session or of all."""

    sessionId: NotRequired[Id]


class ApprovalList(TypedDict):
    """Open questions, oldest first."""

    approvals: list[Approval]


class InvalidAnswer(TypedDict):
    """This client's answer was unusable; the request comes again, 3 times at most."""

    approvalId: Id
    reason: str
