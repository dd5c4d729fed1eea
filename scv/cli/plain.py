"""A turn as plain text: the answer on one stream, everything else on the other.

For pipes, files and terminals that can do nothing. No escape sequence leaves here.
"""

from collections.abc import Collection
from typing import Any, Protocol

from scv.cli.results import call_line, outcome
from scv.client.decision import decide
from scv.client.inert import inert, inert_line

Json = dict[str, Any]

LAST_LINES = 3
"""How much of a failed command's output stands beside the answer."""


class Writes(Protocol):
    """Somewhere that text goes."""

    def write(self, text: str) -> None:
        """Take text; one that nobody reads goes nowhere."""


class PlainTurn:
    """Prints events of one session as they come."""

    def __init__(self, out: Writes, err: Writes) -> None:
        self._out = out
        self._err = err
        self._answers: dict[str, int] = {}  # running answers: code points printed
        self._at_line_start = True

    def take(self, batch: Json, events: tuple[Json, ...]) -> None:
        """Print what is new; an `OnEvents` of a followed session."""
        for event in events:
            data = event["data"]
            match event["type"]:
                case "item.delta":
                    self._grow(event["itemId"], data)
                case "item.started" if data["item"]["kind"] == "assistant_message":
                    self._answers[data["item"]["id"]] = 0
                case "item.completed":
                    self._complete(data["item"])
                case "retry.scheduled":
                    seconds = data["delayMs"] / 1000
                    self.note(f"trying again in {seconds:.1f} s: {data['reason']}")
                case "notice":
                    self.note(data["message"])

    def note(self, text: str) -> None:
        """Write one line beside the answer, on a line of its own."""
        self.end_line()
        self._err.write(f"{inert(text)}\n")

    def judge(self, approval: Json, allowed: Collection[str]) -> Json:
        """Answer a question without a person: only these risks are allowed."""
        risk = approval["risk"]
        if risk in allowed:
            self._tell(approval, "allowed")
            return decide(approval, "allow_once")
        self._tell(approval, f"denied: nobody to ask; see --allow {risk}")
        return decide(approval, "deny", f"nobody is there to ask about {risk} risks")

    def _tell(self, approval: Json, answer: str) -> None:
        summary = inert(approval["summary"]).replace("\n", "\n  ")
        self.note(f"[{approval['risk']}] {approval['title']}: {summary}\n  -> {answer}")

    def end_line(self) -> None:
        """Finish the answer's line, if one is begun."""
        if not self._at_line_start:
            self._out.write("\n")
            self._at_line_start = True

    def ended(self, turn: Json) -> None:
        """Say how the turn ended, unless it simply completed."""
        self.end_line()
        if turn["status"] != "completed":
            detail = turn.get("error", {}).get("message") or turn["stopReason"]
            self.note(f"scv: the turn ended as {turn['status']}: {detail}")

    def _grow(self, item_id: str, data: Json) -> None:
        if item_id in self._answers and data["field"] == "text":
            self._answers[item_id] += len(data["append"])
            self._print(data["append"])

    def _print(self, text: str) -> None:
        if text:
            self._out.write(inert(text))
            self._at_line_start = text.endswith("\n")

    def _complete(self, item: Json) -> None:
        match item["kind"]:
            case "assistant_message":
                printed = self._answers.pop(item["id"], 0)
                if not (printed and "blobId" in item):
                    self._print(item["text"][printed:])
                self.end_line()
            case "tool_call" if item["status"] == "failed":
                self._failed(item)
            case "tool_call" if item["status"] == "denied" and "approvalId" not in item:
                self._failed(item)
            case "notice" | "error":
                self.note(item["message"])

    def _failed(self, item: Json) -> None:
        headline, lines = outcome(item)
        words = " ".join([headline, *lines[-LAST_LINES:]])
        self.note(f"{call_line(item)}: {inert_line(words, 300)}")
