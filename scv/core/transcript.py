"""Items of a session: every start, growth and end becomes an event and a row."""

from typing import Any

from scv.core.ids import new_id, now_ms
from scv.core.log import EventLog
from scv.core.records import DeltasDone, EventReplaced, ItemRecord, Json, Store

DELTA_CHARACTERS = 32 * 1024
"""Most of one delta: however it is escaped, its event is below the limit."""


class Transcript:
    """Writes items; the running ones live here until they complete."""

    def __init__(self, log: EventLog, store: Store, *, base: int = 0) -> None:
        self._log = log
        self._store = store
        self._base = base
        self._open: dict[str, Json] = {}
        self._seqs: dict[str, int] = {}
        self._grown: dict[str, list[str]] = {}
        self._lengths: dict[str, int] = {}
        self._progress: dict[str, int] = {}
        """Number of the newest event about the progress of an item."""

    def add(
        self, kind: str, turn_id: str | None, *, held: bool = False, **fields: Any
    ) -> tuple[Json, ItemRecord]:
        """Write an item that is complete from the start (only `item.completed`).

        A held one is not stored here: its row goes into the caller's commit.
        """
        item = self._new(kind, turn_id, "completed", fields)
        seq = self._log.append(
            "item.completed",
            {"item": item},
            turn_id=turn_id,
            item_id=item["id"],
            held=held,
        )
        record = self._record(item, seq)
        if not held:
            self._store.enqueue((record,))
        return item, record

    def start(
        self, kind: str, turn_id: str, *, status: str = "in_progress", **fields: Any
    ) -> Json:
        """Begin an item that will grow or change."""
        item = self._new(kind, turn_id, status, fields)
        seq = self._log.append(
            "item.started", {"item": item}, turn_id=turn_id, item_id=item["id"]
        )
        self._open[item["id"]] = item
        self._seqs[item["id"]] = seq
        self._store.enqueue((self._record(item, seq),))
        return item

    def grow(self, item: Json, text: str) -> None:
        """Add to a running item's `text`; much at once becomes several events."""
        while len(text) > DELTA_CHARACTERS:
            self._grow(item, text[:DELTA_CHARACTERS])
            self._log.flush_delta()
            text = text[DELTA_CHARACTERS:]
        self._grow(item, text)

    def _grow(self, item: Json, text: str) -> None:
        item_id = item["id"]
        parts = self._grown.get(item_id)
        if parts is None:
            parts = self._grown[item_id] = []
            self._lengths[item_id] = 0
        offset = self._lengths[item_id]
        parts.append(text)
        self._lengths[item_id] = offset + len(text)
        self._log.delta(item_id, item["turnId"], "text", offset, text)

    def text(self, item: Json) -> str:
        """All text a running item has so far."""
        parts = self._grown.get(item["id"])
        if parts is None:
            return str(item.get("text", ""))
        if len(parts) > 1:
            parts[:] = ["".join(parts)]
        return parts[0]

    def update(self, item: Json, **patch: Any) -> None:
        """Replace fields of a running item."""
        item.update(patch)
        self._log.append(
            "item.updated",
            {"patch": patch},
            turn_id=item["turnId"],
            item_id=item["id"],
        )

    def progress(self, item: Json, text: str) -> None:
        """Replace what a running item tells of itself; the log keeps only the newest.

        A later event of the item covers the numbers of those that were.
        """
        item["progress"] = text
        number = self._log.append(
            "item.updated",
            {"patch": {"progress": text}},
            turn_id=item["turnId"],
            item_id=item["id"],
        )
        self._forget_progress(item["id"])
        self._progress[item["id"]] = number

    def _forget_progress(self, item_id: str) -> None:
        number = self._progress.pop(item_id, None)
        if number is not None:
            log = self._log
            self._store.enqueue((EventReplaced(log.session_id, log.epoch, number),))

    def complete(self, item: Json, status: str, **fields: Any) -> None:
        """End an item: from now on it never changes."""
        item_id = item["id"]
        item.update(fields, status=status)
        self._log.append(
            "item.completed", {"item": item}, turn_id=item["turnId"], item_id=item_id
        )
        seq = self._seqs.pop(item_id)
        del self._open[item_id]
        self._grown.pop(item_id, None)
        self._lengths.pop(item_id, None)
        self._forget_progress(item_id)
        self._store.enqueue(
            (
                self._record(item, seq),
                DeltasDone(self._log.session_id, self._log.epoch, item_id),
            )
        )

    def open_items(self) -> dict[str, Json]:
        """Running items as they are now, by id."""
        return {
            item_id: (
                {**item, "text": self.text(item)} if item_id in self._grown else item
            )
            for item_id, item in self._open.items()
        }

    @staticmethod
    def _new(
        kind: str, turn_id: str | None, status: str, fields: dict[str, Any]
    ) -> Json:
        item: Json = {"id": new_id("i")}
        if turn_id is not None:
            item["turnId"] = turn_id
        item.update(kind=kind, status=status, createdAt=now_ms())
        item.update(fields)
        return item

    def _record(self, item: Json, seq: int) -> ItemRecord:
        return ItemRecord(
            item["id"],
            self._log.session_id,
            item.get("turnId"),
            self._base + seq,
            item["kind"],
            dict(item),
        )
