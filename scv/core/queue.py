"""The waiting prompts of one session: order, revisions, conflicts.

Plain state without waiting: each change returns, and the session puts `record`
into the commit of its effect and tells everybody with `view`.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from scv.core.ids import new_id, now_ms
from scv.core.prompt import prompt_text
from scv.core.records import Json, QueueRecord
from scv.core.visible import show_hidden
from scv.values import frozen
from scv.wire.errors import refuse
from scv.wire.limits import QUEUE_ENTRIES, QUEUE_PREVIEW_BYTES, QUEUE_TEXT_BYTES


@frozen
class Waiting:
    """One prompt that waits; `submitter` is {clientId, name}."""

    id: str
    rev: int
    parts: list[Json]
    op_id: str
    submitter: Json
    at: int

    def view(self) -> Json:
        """The entry in wire form."""
        text = show_hidden(prompt_text(self.parts))
        return {
            "queueId": self.id,
            "rev": self.rev,
            "preview": text.encode()[:QUEUE_PREVIEW_BYTES].decode("utf-8", "ignore"),
            "submitter": self.submitter["clientId"],
            "at": self.at,
        }


class PromptQueue:
    """Prompts in the order they will run."""

    def __init__(self, session_id: str, record: QueueRecord | None = None) -> None:
        self._session_id = session_id
        self.rev = record.rev if record else 0
        self.held = record.held if record else False
        self._entries = [Waiting(**body) for body in record.entries] if record else []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def ids(self) -> list[str]:
        """Ids in order."""
        return [entry.id for entry in self._entries]

    def view(self) -> Json:
        """The queue in wire form."""
        entries = [entry.view() for entry in self._entries]
        return {"rev": self.rev, "held": self.held, "entries": entries}

    def record(self) -> QueueRecord:
        """The queue as the store keeps it."""
        bodies = tuple(map(asdict, self._entries))
        return QueueRecord(self._session_id, self.rev, self.held, bodies)

    def snapshot(self) -> Callable[[], None]:
        """Return what puts the queue back as it is now."""
        state = (self.rev, self.held, list(self._entries))

        def restore() -> None:
            self.rev, self.held, self._entries = state

        return restore

    def check_rev(self, if_rev: int | None) -> None:
        """Refuse a change that was meant for another state of the queue.

        Raises:
            RequestRefused: 4242 with the queue as it is.
        """
        if if_rev is not None and if_rev != self.rev:
            raise refuse(
                "rev.conflict",
                "the queue was changed meanwhile",
                rev=self.rev,
                queue=self.view(),
            )

    def add(
        self,
        parts: list[Json],
        *,
        op_id: str,
        submitter: Json,
        before: str | None = None,
    ) -> Waiting:
        """Put a prompt in, at the end or before another.

        Raises:
            RequestRefused: 4262 when it is full, 4202 when `before` is gone.
        """
        size = len(prompt_text(parts).encode())
        total = size + sum(
            len(prompt_text(entry.parts).encode()) for entry in self._entries
        )
        if len(self._entries) >= QUEUE_ENTRIES or total > QUEUE_TEXT_BYTES:
            raise refuse(
                "limit.count",
                f"at most {QUEUE_ENTRIES} prompts and {QUEUE_TEXT_BYTES} bytes of text"
                " can wait",
                limit="queueEntries",
            )
        place = len(self._entries) if before is None else self._place(before)
        entry = Waiting(new_id("q"), 1, parts, op_id, submitter, now_ms())
        self._entries.insert(place, entry)
        self.rev += 1
        return entry

    def put_first(self, entries: list[Waiting]) -> None:
        """Put prompts to the head; they were accepted already, so no limit counts."""
        self._entries[:0] = entries
        self.rev += 1

    def update(self, queue_id: str, entry_rev: int, parts: list[Json]) -> Waiting:
        """Replace an entry's text.

        Raises:
            RequestRefused: 4202 when it is gone, 4242 with the current entry.
        """
        place = self._place(queue_id)
        entry = self._entries[place]
        if entry.rev != entry_rev:
            raise refuse(
                "rev.conflict",
                "the entry was changed meanwhile",
                rev=self.rev,
                entry={**entry.view(), "input": entry.parts},
            )
        prompt_text(parts)
        changed = replace(entry, rev=entry.rev + 1, parts=parts)
        self._entries[place] = changed
        self.rev += 1
        return changed

    def move(self, queue_id: str, before: str | None) -> None:
        """Put an entry before another, or at the end.

        Raises:
            RequestRefused: 4202 when one of them is gone.
        """
        place = self._place(queue_id)
        if before == queue_id:
            return
        if before is not None:
            self._place(before)
        entry = self._entries.pop(place)
        target = len(self._entries) if before is None else self._place(before)
        self._entries.insert(target, entry)
        self.rev += 1

    def remove(self, queue_id: str) -> Waiting:
        """Take an entry out.

        Raises:
            RequestRefused: 4202 when it is gone.
        """
        entry = self._entries.pop(self._place(queue_id))
        self.rev += 1
        return entry

    def clear(self) -> None:
        """Take everything out."""
        self._entries.clear()
        self.rev += 1

    def hold(self, held: bool) -> None:
        """Hold or release."""
        if held != self.held:
            self.held = held
            self.rev += 1

    def take(self) -> Waiting | None:
        """Take the prompt that runs next; None when it is held or empty."""
        if self.held or not self._entries:
            return None
        self.rev += 1
        return self._entries.pop(0)

    def _place(self, queue_id: str) -> int:
        for place, entry in enumerate(self._entries):
            if entry.id == queue_id:
                return place
        raise refuse(
            "object.not_found",
            "no such entry waits; it was taken or removed",
            rev=self.rev,
            queue=self.view(),
        )


def waiting_from_item(item: Json) -> Waiting:
    """Make a queue entry of a steer that the model never got."""
    submitter: dict[str, Any] = item["author"]
    return Waiting(new_id("q"), 1, item["parts"], item["opId"], submitter, now_ms())
