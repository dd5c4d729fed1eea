"""Approvals on the screen: the whole of what would run, or a way to see it first."""

from typing import TYPE_CHECKING, Any

from scv.cli.terminal.blocks import diff_text
from scv.client.inert import inert, inert_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

Json = dict[str, Any]

DIFF_LINES = 60


def question_block(approval: Json) -> "tuple[RenderableType, bool]":
    """Show a question; returns whether nothing of it is left out."""
    subject, is_whole = _subject(approval, DIFF_LINES)
    return _panel(approval, subject), is_whole and not approval["shortened"]


def whole_block(approval: Json, blobs: dict[str, str]) -> "RenderableType":
    """Show everything of a question; `blobs` holds the texts that were cut."""
    from rich.text import Text

    subject = approval["subject"]
    if "blobId" in subject:
        return _panel(approval, Text(inert(blobs[subject["blobId"]])))
    if subject["type"] == "change":
        files = [
            {**file, "patch": blobs[file["blobId"]]} if "blobId" in file else file
            for file in subject["files"]
        ]
        subject = {**subject, "files": files}
    shown, _ = _subject({**approval, "subject": subject, "shortened": False}, None)
    return _panel(approval, shown)


def blob_ids(approval: Json) -> list[str]:
    """List the blobs that hold what was cut of a question."""
    subject = approval["subject"]
    parts = [subject, *subject.get("files", [])]
    return [part["blobId"] for part in parts if "blobId" in part]


def _subject(approval: Json, limit: int | None) -> "tuple[Text, bool]":
    from rich.text import Text

    subject = approval["subject"]
    match subject["type"]:
        case "command" if not approval["shortened"]:
            return Text(inert(subject["command"]), style="bold"), True
        case "change":
            shown = Text(inert(approval["summary"]))
            is_whole = True
            for file in subject["files"]:
                patch, fits = diff_text(file["patch"], limit)
                is_whole = is_whole and fits and "blobId" not in file
                shown.append("\n")
                shown.append(patch)
            return shown, is_whole
        case "other" if not approval["shortened"]:
            return Text(inert(subject["text"])), True
    return Text(inert(approval["summary"])), not approval["shortened"]


def _panel(approval: Json, subject: "Text") -> "RenderableType":
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    details = [approval["reason"]]
    seconds = approval["subject"].get("timeoutSeconds")
    if seconds is not None:
        details.append(f"at most {seconds} s")
    if approval["attempt"] > 1:
        details.append("changed since you were asked: look again")
    return Panel(
        Group(subject, Text(inert_line(" · ".join(details), 400), style="dim")),
        title=Text(f"{inert_line(approval['title'], 60)} [{approval['risk']}]"),
        title_align="left",
        border_style="yellow",
        box=box.ROUNDED,
        padding=(0, 1),
    )


def answer_line(data: Json) -> str:
    """Say how a question was resolved."""
    words = {
        "allowed": "allowed once",
        "denied": "denied",
        "cancelled": "withdrawn: the turn was cancelled",
        "expired": "expired",
        "withdrawn": "withdrawn",
    }
    text = words.get(data["decision"], inert_line(str(data["decision"]), 40))
    if data.get("optionId") == "stop":
        text = "denied, and the turn stopped"
    if data.get("feedback"):
        text += f": {inert_line(data['feedback'], 300)}"
    return f"→ {text}"
