"""Sessions: a conversation with one workspace."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from scv.shapes import LARGEST_INTEGER, Bounds
from scv.wire.approval import Approval
from scv.wire.event import Event
from scv.wire.identifiers import Id, Millis, OpId, PageLimit, Path, Role, Seq
from scv.wire.queue import QueueState
from scv.wire.turn import Turn, Usage

SessionState = Literal[
    "idle", "running", "needs_approval", "needs_input", "held", "failed"
]
"""What a person wants to know of a session at a glance."""

ApprovalPolicy = Literal["on-risk", "always", "never"]
"""ask before changes, ask about everything, read only."""

Title = Annotated[str, Bounds(0, 200)]


Environment = Annotated[dict[str, str], Bounds(0, 512)]
"""Variables of the place a person works in; at most 128 KiB with their names."""


class Workspace(TypedDict):
    """Where a session works."""

    root: Path
    folders: NotRequired[Annotated[list[Path], Bounds(0, 16)]]
    """Further folders beside the root."""


class SessionConfig(TypedDict):
    """What a session overrides of the configuration; absent = as configured."""

    provider: NotRequired[Annotated[str, Bounds(0, 128)]]
    """Name of a provider profile, or `practice`."""
    model: NotRequired[Annotated[str, Bounds(0, 256)]]
    baseUrl: NotRequired[Annotated[str, Bounds(0, 2048)]]
    effort: NotRequired[Annotated[str, Bounds(0, 32)]]
    approval: NotRequired[ApprovalPolicy]
    """May tighten the configured policy; loosening needs `--approval-policy`."""
    tools: NotRequired[Literal["all", "none"]]
    """`none` is enforced by the server: no tool of any kind is offered or run."""


class Session(TypedDict):
    """A session as clients see it."""

    id: Id
    title: str
    workspace: Workspace
    state: SessionState
    createdAt: Millis
    updatedAt: Millis
    config: SessionConfig
    rev: int
    """Revision of title, archive mark and configuration."""
    epoch: Id
    """Identity of the event history; numbers of another epoch mean nothing."""
    lastSeq: Seq
    usage: Usage
    archived: NotRequired[bool]
    parent: NotRequired[Id]
    channel: NotRequired[str]


class CreateSession(TypedDict):
    """Start a session; attaches this connection unless `attach` is false."""

    opId: OpId
    workspace: Workspace
    title: NotRequired[Title]
    config: NotRequired[SessionConfig]
    channel: NotRequired[Annotated[str, Bounds(0, 64)]]
    """What kind of front end it belongs to, for lists."""
    environment: NotRequired[Environment]
    """Variables of the place the person works in; only in memory, given to bash."""
    attach: NotRequired[bool]


class SessionCreated(TypedDict):
    """The new session, and where its log stands."""

    session: Session
    seq: Seq
    epoch: Id


class ListSessions(TypedDict):
    """Page through sessions, the most recently used first."""

    workspace: NotRequired[Path]
    state: NotRequired[list[SessionState]]
    archived: NotRequired[bool]
    query: NotRequired[Annotated[str, Bounds(0, 200)]]
    """Text in the title."""
    limit: NotRequired[PageLimit]
    cursor: NotRequired[Annotated[str, Bounds(0, 200)]]


class SessionList(TypedDict):
    """One page of sessions."""

    sessions: list[Session]
    nextCursor: str | None


class GetSession(TypedDict):
    """Ask for a session as it stands; attach to follow it."""

    sessionId: Id


class DetachSession(TypedDict):
    """Stop following a session; its work goes on."""

    sessionId: Id


class Client(TypedDict):
    """A front end attached to a session."""

    clientId: Id
    name: str
    role: Role


class SessionSnapshot(TypedDict):
    """A session as it stands, without history."""

    session: Session
    turn: Turn | None
    """The running turn, or the newest one."""
    queue: QueueState
    approvals: list[Approval]
    clients: list[Client]


class AttachSession(TypedDict):
    """Follow a session: events from now on, or from `after` of the same `epoch`.

    Sends the missing events, then live ones, then open approval requests.
    """

    sessionId: Id
    role: NotRequired[Role]
    """May lower the connection's role, never raise it."""
    after: NotRequired[Seq]
    epoch: NotRequired[Id]
    history: NotRequired[Literal["none", "tail", "full"]]
    """How many finished items come with the answer; `none` when absent."""
    tailItems: NotRequired[PageLimit]
    """How many items `tail` means; 50 when absent."""
    environment: NotRequired[Environment]


class Pending(TypedDict):
    """Questions that wait for somebody."""

    approvals: list[Approval]


class Attached(TypedDict):
    """State at `lastSeq`; events after it follow."""

    session: Session
    epoch: Id
    lastSeq: Seq
    items: NotRequired[list[dict[str, Any]]]
    """Items, oldest first; a running one carries what it has so far."""
    pending: Pending
    queue: QueueState


class ReplaySession(TypedDict):
    """Read the log after a number."""

    sessionId: Id
    epoch: Id
    after: Seq
    limitBytes: NotRequired[Annotated[int, Bounds(1, LARGEST_INTEGER)]]
    """Bytes of events wanted at most; the server may send fewer, at least one event."""


EventBatch = TypedDict(
    "EventBatch",
    {
        "sessionId": Id,
        "epoch": Id,
        "from": Seq,
        "to": Seq,
        "events": list[Event],
        "complete": NotRequired[bool],
    },
)
EventBatch.__doc__ = """Events `from..to` of a session; batches tile its log.

`to` at or below what the client has: drop it. `from` more than one above: a gap,
call `scv/session/replay`. Otherwise apply in order and remember `to`. Another
`epoch`: discard and attach again. `complete` comes with replays only: false
means call again with `after` = `to`.
"""


class SessionHistory(TypedDict):
    """Page through items; the newest page without `before` and `after`."""

    sessionId: Id
    before: NotRequired[Id]
    after: NotRequired[Id]
    limit: NotRequired[PageLimit]


class ItemPage(TypedDict):
    """Items, oldest first, and the ids that page on in both directions."""

    items: list[dict[str, Any]]
    prev: Id | None
    next: Id | None


class UpdateSession(TypedDict):
    """Change title, archive mark or configuration, from the next model request on."""

    opId: OpId
    sessionId: Id
    title: NotRequired[Title]
    archived: NotRequired[bool]
    config: NotRequired[SessionConfig]
    ifRev: NotRequired[Annotated[int, Bounds(0, LARGEST_INTEGER)]]
    """Change only when `rev` is still this one; else 4242."""


class SessionUpdated(TypedDict):
    """The session after the change."""

    session: Session


class CloseSession(TypedDict):
    """Free a session's resources; its data stays."""

    opId: OpId
    sessionId: Id
    mode: Literal["cancel", "drain"]
    """`cancel` stops a running turn, `drain` waits for its end."""


class ForkSession(TypedDict):
    """Copy a session; files are not changed."""

    opId: OpId
    sessionId: Id
    atItem: NotRequired[Id]
    """Newest item to take along; everything when absent."""
    title: NotRequired[Title]
    workspace: NotRequired[Workspace]
    """Where the copy works; the same place when absent."""


class SessionForked(TypedDict):
    """The copy."""

    session: Session


class RewindSession(TypedDict):
    """Take the conversation back to an item; files are not changed."""

    opId: OpId
    sessionId: Id
    toItem: Id
    """Newest item that stays."""
    dryRun: NotRequired[bool]


class RewindPlan(TypedDict):
    """What goes."""

    items: int
    turns: int


class SessionRewound(TypedDict):
    """What went, and where the old branch is now."""

    plan: RewindPlan
    newEpoch: NotRequired[Id]
    forkId: NotRequired[Id]


class CompactSession(TypedDict):
    """Let the model summarise the conversation, as a turn of its own."""

    opId: OpId
    sessionId: Id
    instructions: NotRequired[Annotated[str, Bounds(0, 4096)]]


class CompactionStarted(TypedDict):
    """The turn that does it."""

    turnId: Id


class SearchSessions(TypedDict):
    """Find text in prompts, answers and titles."""

    text: Annotated[str, Bounds(1, 200)]
    workspace: NotRequired[Path]
    limit: NotRequired[PageLimit]
    cursor: NotRequired[Annotated[str, Bounds(0, 200)]]


class SearchHit(TypedDict):
    """One place; `itemId` is absent for a title."""

    sessionId: Id
    itemId: NotRequired[Id]
    snippet: str
    at: Millis


class SearchHits(TypedDict):
    """One page of places, newest first."""

    hits: list[SearchHit]
    nextCursor: str | None


class DeleteSession(TypedDict):
    """Remove a session for good; removing what is not there is no error."""

    opId: OpId
    sessionId: Id
    force: NotRequired[bool]
    """Also while a turn runs, which is cancelled."""


class ExportSession(TypedDict):
    """Write a session into one file, as a blob."""

    sessionId: Id


class SessionExported(TypedDict):
    """Where to read it."""

    blobId: Id


class ImportSession(TypedDict):
    """Make a session of an exported file that was put as a blob."""

    opId: OpId
    blobId: Id
    workspace: NotRequired[Workspace]
    """Where it works; where it worked when absent."""


class SessionImported(TypedDict):
    """The new session."""

    session: Session


class SessionsChanged(TypedDict):
    """Sent to every front end: rows of session lists that changed."""

    rev: int
    upsert: list[Session]
    removed: list[Id]


class SessionLagged(TypedDict):
    """This client fell too far behind: its stream stopped. Replay to resume."""

    sessionId: Id
    epoch: Id
    lastSent: Seq
    lastSeq: Seq
