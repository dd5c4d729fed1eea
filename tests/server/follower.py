"""What a front end knows of one session, learnt only from the events it was sent."""

from dataclasses import dataclass, field
from typing import Any

from scv.wire.event import EVENTS
from scv.wire.validate import check

Json = dict[str, Any]
FINAL = {"completed", "failed", "denied", "cancelled", "interrupted"}


@dataclass
class Follower:
    """Applies batches by the client rule and holds every one against the protocol.

    `last` is the number of the newest event, None until the first one tells where
    the stream begins; `items` are rebuilt from events alone.
    """

    session_id: str
    last: int | None = 0
    begins_after: int | None = None
    epoch: str | None = None
    events: list[Json] = field(default_factory=list)
    items: dict[str, Json] = field(default_factory=dict)
    ended: dict[str, Json] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    resolved: set[str] = field(default_factory=set)
    is_late: bool = False
    """It joined in the middle: items and questions may be older than what it saw."""

    def take(self, batch: Json) -> None:
        """Apply one `scv/session/events` batch."""
        assert self.epoch in (None, batch["epoch"]), "another epoch"
        self.epoch = batch["epoch"]
        if self.last is None:
            self.last = batch["from"] - 1
        if self.begins_after is None:
            self.begins_after = self.last
        assert batch["from"] == self.last + 1, f"gap: {self.last}, {batch['from']}"
        assert batch["to"] >= batch["from"], "an empty range"
        assert len(batch["events"]) <= batch["to"] - batch["from"] + 1
        self.last = batch["to"]
        for event in batch["events"]:
            self._apply(event)

    def _apply(self, event: Json) -> None:
        kind, data = event["type"], event["data"]
        check(EVENTS[kind], data)
        turn_id = event.get("turnId")
        assert turn_id not in self.ended, f"{kind} after the end of its turn"
        self.events.append(event)
        match kind:
            case "turn.ended":
                self.ended[turn_id] = data
                open_ones = [
                    item["id"]
                    for item in self.items.values()
                    if item.get("turnId") == turn_id and item["status"] not in FINAL
                ]
                assert not open_ones, f"items outlive their turn: {open_ones}"
                assert self.asked <= self.resolved, "questions outlive their turn"
            case "approval.requested":
                self.asked.add(data["approval"]["approvalId"])
            case "approval.resolved":
                known = data["approvalId"] in self.asked or self.is_late
                assert known, "an answer without a question"
                assert data["approvalId"] not in self.resolved, "resolved twice"
                self.resolved.add(data["approvalId"])
            case "item.started" | "item.completed" | "item.delta" | "item.updated":
                self._apply_item(kind, event["itemId"], data)

    def _apply_item(self, kind: str, item_id: str, data: Json) -> None:
        item = self.items.get(item_id)
        assert item is None or item["status"] not in FINAL, f"{kind} after its end"
        match kind:
            case "item.started":
                assert item is None, "an item started twice"
                self.items[item_id] = dict(data["item"])
            case "item.completed":
                self.items[item_id] = dict(data["item"])
                assert data["item"]["status"] in FINAL
            case "item.updated" if item is not None:
                if data["patch"].get("status") == "in_progress":
                    asked = item.get("approvalId")
                    assert asked is None or asked in self.resolved, "ran unanswered"
                item.update(data["patch"])
            case "item.delta" if item is not None:
                have = item.get(data["field"], "")
                assert data["offset"] <= len(have), "text is missing"
                item[data["field"]] = (
                    have + data["append"][len(have) - data["offset"] :]
                )
            case _:
                assert self.is_late, f"{kind} of an unknown item"

    def of_type(self, kind: str) -> list[Json]:
        """Return the data of every event of a type, in order."""
        return [event["data"] for event in self.events if event["type"] == kind]
