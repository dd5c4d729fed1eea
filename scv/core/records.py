"""What the core asks the store to keep, and gets back: plain rows, no behaviour.

Times are integer milliseconds UTC. `body`, `config`, `usage`, `error` and
`decision` are JSON values in their wire form.
"""

from dataclasses import field
from typing import Any, Literal, Protocol

from scv.core.history import Entry
from scv.errors import ScvError
from scv.values import frozen

Json = dict[str, Any]

HOLE = "log.hole"
"""Type of an event row without an event: its numbers were lost in a crash, or their
events are not kept."""


@frozen
class SessionRecord:
    """One session. Numbers up to `ceiling` may have been shown to clients."""

    id: str
    title: str
    root: str
    folders: tuple[str, ...]
    config: Json
    created_at: int
    updated_at: int
    rev: int
    epoch: str
    last_seq: int
    ceiling: int
    archived: bool = False
    usage: Json = field(default_factory=dict)
    parent: str | None = None
    channel: str | None = None
    base: int = 0
    """Added to event numbers to place items: grows when a rewind starts an epoch."""
    ended: int = 0
    """Number of the newest `turn.ended` of this epoch."""
    seen: int = 0
    """Number of the newest event of this epoch that somebody has seen."""


@frozen
class TurnRecord:
    """One turn; `status` is set exactly when `state` is `ended`."""

    id: str
    session_id: str
    state: str
    started_at: int
    owner: str | None
    status: str | None = None
    stop_reason: str | None = None
    ended_at: int | None = None
    error: Json | None = None
    usage: Json = field(default_factory=dict)


@frozen
class ItemRecord:
    """An item's newest state; `seq` is that of its `item.started` (order of items)."""

    id: str
    session_id: str
    turn_id: str | None
    seq: int
    kind: str
    body: Json


@frozen
class EventRecord:
    """One event covering numbers `first..last`; `data` is its encoded JSON object.

    `delta` events of an item are dropped once the item completed.
    """

    session_id: str
    epoch: str
    first: int
    last: int
    type: str
    item_id: str | None
    data: bytes


@frozen
class DeltasDone:
    """Item `item_id` completed: its `item.delta` events may go."""

    session_id: str
    epoch: str
    item_id: str


@frozen
class EventReplaced:
    """A later event says all that the one numbered `number` said: it may go."""

    session_id: str
    epoch: str
    number: int


@frozen
class HistoryRecord:
    """One entry of what the model has seen, at `position` (0, 1, …)."""

    session_id: str
    position: int
    turn_id: str | None
    entry: Entry


@frozen
class ApprovalRecord:
    """A question and, once resolved, its outcome; `body` is the wire Approval."""

    id: str
    session_id: str
    turn_id: str
    item_id: str
    state: Literal["pending", "resolved", "expired"]
    created_at: int
    body: Json
    decision: Json | None = None
    resolved_at: int | None = None


@frozen
class QueueRecord:
    """The waiting prompts of a session, whole: revision, held, entries in order."""

    session_id: str
    rev: int
    held: bool
    entries: tuple[Json, ...]


@frozen
class HistoryCut:
    """History entries from `position` on are gone."""

    session_id: str
    position: int


@frozen
class ItemsCut:
    """Items placed after `seq` are gone, their approvals, and turns that have no
    item but these."""

    session_id: str
    seq: int


@frozen
class AuditRecord:
    """Who did what: approvals, configuration, kills, deletions; never pruned by itself.

    `action` is a method name or `approval.allowed` and the like; `detail` holds no
    prompt text and no secret.
    """

    at: int
    action: str
    session_id: str | None
    client_id: str
    client_name: str
    peer_pid: int | None
    detail: Json


@frozen
class Hit:
    """One place a search found; `snippet` is the text around it, one line."""

    session_id: str
    item_id: str
    snippet: str
    at: int


@frozen
class OpRecord:
    """The stored result of a mutating request: same id and params, same result."""

    client_id: str
    op_id: str
    params_sha256: str
    result: Json
    at: int


Change = (
    SessionRecord
    | TurnRecord
    | ItemRecord
    | EventRecord
    | DeltasDone
    | EventReplaced
    | HistoryRecord
    | ApprovalRecord
    | OpRecord
    | QueueRecord
    | HistoryCut
    | ItemsCut
    | AuditRecord
)
"""Every `…Record` but events replaces an earlier one with the same key."""


@frozen
class StoredSession:
    """All of a session that a new owner needs to go on."""

    session: SessionRecord
    turns: tuple[TurnRecord, ...]
    open_items: tuple[ItemRecord, ...]
    history: tuple[Entry, ...]
    approvals: tuple[ApprovalRecord, ...]
    queue: QueueRecord | None = None


class SessionLock(Protocol):
    """Ownership of a live session; any death of the process releases it too."""

    def release(self) -> None:
        """Give the session up."""
        ...


class Store(Protocol):
    """The instance's session store. Calls keep their order: a read sees every
    earlier `enqueue` and `commit` of this process."""

    def enqueue(self, changes: tuple[Change, ...]) -> None:
        """Keep these soon, without waiting: on disk with the next commit, or
        within a quarter of a second, not synced."""
        ...

    async def commit(self, changes: tuple[Change, ...]) -> None:
        """Put these and all enqueued before them on disk, synced, in one transaction.

        Raises:
            StoreError: Nothing of this transaction is kept.
        """
        ...

    async def load(self, session_id: str) -> StoredSession | None:
        """Read a session: turns that are not ended plus the newest ended one,
        items not completed, whole history, pending approvals."""
        ...

    async def queue(self, session_id: str) -> QueueRecord | None:
        """Read what waits in a session."""
        ...

    async def session(self, session_id: str) -> SessionRecord | None:
        """Read a session's own row."""
        ...

    async def sessions(
        self,
        *,
        root: str | None = None,
        archived: bool | None = None,
        title_contains: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> list[SessionRecord]:
        """List newest `updated_at` first, after the (updated_at, id) `before`."""
        ...

    async def events(
        self, session_id: str, epoch: str, *, after: int, limit_bytes: int
    ) -> tuple[list[EventRecord], bool]:
        """Read events with `last` > `after` in order, and whether that is all.

        At least one event comes, even when it alone is over the limit.
        """
        ...

    async def events_exceed(
        self, session_id: str, epoch: str, *, after: int, limit_bytes: int
    ) -> bool:
        """Tell whether the events that begin behind `after` are above a size."""
        ...

    async def last_event(self, session_id: str, epoch: str) -> int:
        """Number of the newest event that is kept; 0 when there is none."""
        ...

    async def items(
        self,
        session_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[list[ItemRecord], str | None, str | None]:
        """Page through items in order; the newest page without `before`/`after`.

        Returns the items, the id to pass as `before` for the previous page, and
        as `after` for the next (None = no more). An unknown id raises `NotFound`.
        """
        ...

    async def turn(self, session_id: str, turn_id: str) -> TurnRecord | None:
        """Read one turn."""
        ...

    async def newest_turn(self, session_id: str) -> TurnRecord | None:
        """Read the turn that started last."""
        ...

    async def operation(self, client_id: str, op_id: str) -> OpRecord | None:
        """Find the stored result of an operation, at most 24 h old."""
        ...

    async def approval(self, approval_id: str) -> ApprovalRecord | None:
        """Read one approval in any state."""
        ...

    async def pending_approvals(self) -> list[ApprovalRecord]:
        """List pending approvals of all sessions, oldest first."""
        ...

    async def put_blob(self, data: bytes, mime_type: str, session_id: str) -> str:
        """Keep bytes under their content; returns the blob id (`b_…`)."""
        ...

    async def read_blob(
        self, blob_id: str, *, offset: int, limit: int
    ) -> tuple[bytes, int, str]:
        """Read a slice of a blob: bytes, total size, MIME type.

        Raises:
            NotFound: No such blob.
        """
        ...

    async def history(self, session_id: str) -> list[tuple[str | None, Entry]]:
        """Read the whole history in order, each entry with its turn's id."""
        ...

    async def turns(self, session_id: str) -> list[TurnRecord]:
        """Read every turn of a session, oldest first."""
        ...

    async def share_blobs(self, source: str, target: str) -> None:
        """Let a session use every blob that another one uses."""
        ...

    async def blobs(self, session_id: str) -> list[str]:
        """List the ids of the blobs a session uses."""
        ...

    async def delete_session(self, session_id: str, *changes: Change) -> None:
        """Remove a session, all of its rows and the blobs only it used, in one
        synced transaction with `changes`; nothing happens when there is none.

        The caller holds the session's lock.
        """
        ...

    async def search(
        self,
        text: str,
        *,
        root: str | None = None,
        limit: int = 50,
        before: tuple[int, str] | None = None,
    ) -> list[Hit]:
        """Find text in prompts, answers and titles, newest first, case ignored.

        Every word must occur. Parts of words are found, and words of Chinese and
        Japanese sentences, two characters or more. A title's hit has the item id "".
        `before` is the last hit's `at`, and its session and item id as `s_…/i_…`.
        """
        ...

    async def audit(
        self, *, session_id: str | None = None, limit: int = 200
    ) -> list[AuditRecord]:
        """Read the newest audit rows, newest first."""
        ...

    async def sizes(self) -> dict[str, int]:
        """Bytes each session takes, rows and blobs only it uses."""
        ...

    def lock_session(self, session_id: str) -> SessionLock:
        """Take a live session.

        Raises:
            SessionLocked: Another process owns it.
        """
        ...

    async def aclose(self) -> None:
        """Write what is enqueued and close."""
        ...

    async def unfinished_sessions(self) -> list[str]:
        """List sessions with a turn that is not ended, live ones included."""
        ...


class SessionLocked(ScvError):
    """Another process (`pid`) owns the session."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(f"session is owned by process {pid}")
        self.pid = pid
