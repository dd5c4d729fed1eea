"""A session as a front end sees it: the rule for applying events, written once.

Theory of operation. A session's events are numbered without holes and come in
batches that cover `from..to`. A batch that ends at or below the last known number
is old and dropped; one that starts further on than the next number leaves a gap,
and the caller fetches what is missing; one of another epoch means that all numbers
are void, and the caller attaches again. Everything else is applied in order.

Nothing here waits or talks to anybody: batches in, state out.

Source: docs/protocol.md, "Events".
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from scv.values import frozen

Json = dict[str, Any]
Standing = Literal["applied", "dropped", "gap", "reset"]


@frozen
class Applied:
    """What became of a batch.

    `events` are those that changed something, in order. An `item.delta` among them
    holds only text that was not known before.
    """

    standing: Standing
    events: tuple[Json, ...] = ()


@dataclass(slots=True)
class _Growth:
    """Text of one field of a running item; `length` counts its code points."""

    parts: list[str] = field(default_factory=list)
    length: int = 0


class Mirror:
    """The state of one session, as far as number `last` of `epoch`."""

    def __init__(self, session: Json, *, epoch: str, last: int) -> None:
        self.session = session
        self.epoch = epoch
        self.last = last
        self.turn: Json | None = None
        self.approvals: dict[str, Json] = {}
        """Open questions by id, oldest first."""
        self._items: dict[str, Json] = {}
        self._growing: dict[tuple[str, str], _Growth] = {}

    @classmethod
    def of_attached(cls, attached: Json) -> "Mirror":
        """Begin with the answer of `scv/session/attach`."""
        mirror = cls(
            attached["session"], epoch=attached["epoch"], last=attached["lastSeq"]
        )
        mirror._items = {item["id"]: item for item in attached.get("items", [])}
        mirror.approvals = {
            approval["approvalId"]: approval
            for approval in attached["pending"]["approvals"]
        }
        return mirror

    # --- reading ---

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.session["id"])

    @property
    def items(self) -> list[Json]:
        """All known items, oldest first, with the text they have so far."""
        self._settle()
        return list(self._items.values())

    def item(self, item_id: str) -> Json | None:
        """Find one item, with the text it has so far."""
        self._settle()
        return self._items.get(item_id)

    @property
    def usage(self) -> Json:
        """Tokens of the session so far."""
        usage: Json = self.session.get("usage", {})
        return usage

    @property
    def state(self) -> str:
        """What a person wants to know at a glance, as in `Session.state`."""
        if self.turn is None:
            return str(self.session.get("state", "idle"))
        if self.turn["state"] != "ended":
            return "needs_approval" if self.approvals else "running"
        return "failed" if self.turn.get("status") == "failed" else "idle"

    # --- the rule ---

    def apply(self, batch: Json) -> Applied:
        """Take one batch of `scv/session/events` or `scv/session/replay`."""
        if batch["epoch"] != self.epoch:
            return Applied("reset")
        if batch["to"] <= self.last:
            return Applied("dropped")
        if batch["from"] > self.last + 1:
            return Applied("gap")
        applied: list[Json] = []
        for event in batch["events"]:
            if event["type"] == "item.delta":
                fresh = self._grow(event)
                if fresh is None:
                    return Applied("reset")
                if fresh["data"]["append"]:
                    applied.append(fresh)
            else:
                self._change(event)
                applied.append(event)
        self.last = batch["to"]
        return Applied("applied", tuple(applied))

    def _grow(self, event: Json) -> Json | None:
        """Add a delta; returns it without known text, None when text is missing."""
        data = event["data"]
        key = (event["itemId"], data["field"])
        growth = self._growing.get(key)
        if growth is None:
            item = self._items.get(key[0])
            if item is None:  # began before we looked; its end brings all of it
                return {**event, "data": {**data, "append": ""}}
            text = item.get(key[1]) or ""
            growth = self._growing[key] = _Growth([text] if text else [], len(text))
        known = growth.length - data["offset"]
        if known < 0:
            return None
        if known:
            data = {
                **data,
                "append": data["append"][known:],
                "offset": growth.length,
            }
            event = {**event, "data": data}
        growth.parts.append(data["append"])
        growth.length += len(data["append"])
        return event

    def _settle(self) -> None:
        for (item_id, name), growth in self._growing.items():
            if len(growth.parts) != 1:
                growth.parts[:] = ["".join(growth.parts)]
            self._items[item_id][name] = growth.parts[0]

    def _forget_growth(self, item_id: str) -> None:
        for key in [key for key in self._growing if key[0] == item_id]:
            del self._growing[key]

    def _change(self, event: Json) -> None:
        data = event["data"]
        match event["type"]:
            case "item.started" | "item.completed":
                item = data["item"]
                self._forget_growth(item["id"])
                self._items[item["id"]] = dict(item)
            case "item.updated":
                item = self._items.get(event["itemId"])
                if item is not None:
                    _patch(item, data["patch"])
            case "approval.requested":
                approval = data["approval"]
                self.approvals[approval["approvalId"]] = approval
            case "approval.resolved":
                self.approvals.pop(data["approvalId"], None)
            case "session.updated":
                self.session = {**self.session, **data}
            case "usage.updated":
                self.session = {**self.session, "usage": data["usage"]}
            case "turn.accepted":
                self.turn = {
                    "id": event["turnId"],
                    "sessionId": self.id,
                    "state": "accepted",
                    "startedAt": event["at"],
                    "usage": {},
                    "owner": data["owner"],
                }
            case "turn.state" if self._is_current(event):
                self.turn = {**(self.turn or {}), **data}
            case "turn.ended" if self._is_current(event):
                ended = {"state": "ended", "endedAt": event["at"]}
                self.turn = {**(self.turn or {}), **data, **ended}

    def _is_current(self, event: Json) -> bool:
        return self.turn is not None and self.turn["id"] == event.get("turnId")


def _patch(item: Json, patch: Json) -> None:
    """Replace fields; null removes one."""
    for name, value in patch.items():
        if value is None:
            item.pop(name, None)
        else:
            item[name] = value
