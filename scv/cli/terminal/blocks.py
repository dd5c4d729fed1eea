"""Finished blocks of a conversation, as rich shows them.

Everything from outside becomes a `Text` of inert characters or a Markdown document
without HTML; nothing is ever read as rich's own markup.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from scv.cli.results import call_line, outcome
from scv.client.inert import inert, inert_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.markdown import Markdown
    from rich.text import Text

Json = dict[str, Any]

RESULT_LINES = 6
DIFF_LINES = 40
_MARKS = {
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "denied": ("⊘", "yellow"),
    "cancelled": ("■", "yellow"),
    "interrupted": ("■", "yellow"),
}


def item_block(item: Json, *, was_asked: bool = False) -> "RenderableType | None":
    """Show a finished item; None for those that nobody needs to see.

    `was_asked`: a call's question stands above it, so its answer and its difference
    are not shown again.
    """
    match item["kind"]:
        case "user_message":
            return prompt_block(prompt_text(item))
        case "assistant_message" if item["text"].strip():
            return answer_block(item)
        case "tool_call":
            return call_block(item, was_asked=was_asked and "approvalId" in item)
        case "notice" | "error":
            return note_block(item["message"], is_error=item["kind"] == "error")
    return None


def prompt_text(item: Json) -> str:
    """Return what a person wrote in a prompt."""
    return "\n".join(
        part.get("text") or part.get("uri", "") for part in item.get("parts", [])
    )


def prompt_block(text: str) -> "RenderableType":
    """Show a prompt."""
    from rich.padding import Padding
    from rich.text import Text

    shown = Text("> ", style="bold cyan")
    shown.append("\n  ".join(inert(text).splitlines()), style="bold")
    return Padding(shown, (1, 0, 1, 0))


def answer_block(item: Json) -> "RenderableType":
    """Show an answer of the model, with a word when it was cut off."""
    from rich.console import Group
    from rich.text import Text

    answer = _markdown(inert(item["text"]))
    if item["status"] == "completed":
        return answer
    return Group(answer, Text(f"[{item['status']}]", style="yellow"))


def _markdown(text: str) -> "Markdown":
    from rich.markdown import Markdown

    shown = Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    for token in shown.parsed:
        if token.type == "html_block":  # rich drops HTML, and so would hide text
            token.type, token.tag = "code_block", "code"
        for inner in token.children or ():
            if inner.type == "html_inline":
                inner.type = "text"
    return shown


def call_block(item: Json, *, was_asked: bool) -> "RenderableType":
    """Show a finished tool call: what, how it went, and the start of what it gave."""
    from rich.text import Text

    mark, colour = _MARKS.get(item["status"], ("●", "cyan"))
    headline, lines = outcome(item)
    shown = Text(f"{mark} ", style=colour)
    shown.append(call_line(item))
    is_denied = item["status"] == "denied"
    if item["status"] != "completed" and headline and not (is_denied and was_asked):
        shown.append(f"\n  {headline}", style=colour)
    diff = item.get("result", {}).get("diff")
    if diff and was_asked:
        return shown
    if diff:
        shown.append("\n")
        shown.append(diff_text(diff, DIFF_LINES)[0])
    elif not is_denied:
        for line in _some(lines, from_end=item.get("risk") == "process"):
            shown.append(f"\n  {line}", style="dim")
    return shown


def _some(lines: Sequence[str], *, from_end: bool) -> Iterator[str]:
    """Choose a few lines: a program's last words, the beginning of all else."""
    left_out = len(lines) - RESULT_LINES
    if left_out <= 1:
        yield from lines
    elif from_end:
        yield f"… {left_out} lines"
        yield from lines[left_out:]
    else:
        yield from lines[:RESULT_LINES]
        yield f"… {left_out} more lines"


def diff_text(patch: str, limit: int | None) -> "tuple[Text, bool]":
    """Colour a unified diff; returns whether all of it is there.

    The middle of a longer one is left out, and its size named.
    """
    from rich.text import Text

    lines = inert(patch).splitlines()
    left_out = 0 if limit is None else max(0, len(lines) - limit)
    if left_out:
        half = (limit or 0) // 2
        note = f"… {left_out} lines are not shown …"
        lines = [*lines[:half], note, *lines[-half:]]
    shown = Text()
    for number, line in enumerate(lines):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        if line.startswith(("+++", "---")):
            style = "bold"
        shown.append(f"{'' if number == 0 else chr(10)}  {line}", style=style)
    return shown, not left_out


def note_block(text: str, *, is_error: bool = False) -> "RenderableType":
    """Show something beside the conversation."""
    from rich.text import Text

    return Text(inert(text), style="red" if is_error else "yellow")


def quiet_block(text: str) -> "RenderableType":
    """Show something that matters little."""
    from rich.text import Text

    return Text(inert(text), style="dim")


def end_block(turn: Json) -> "RenderableType | None":
    """Say how a turn ended, unless it simply completed."""
    if turn["status"] == "completed":
        return None
    detail = turn.get("error", {}).get("message") or turn.get("stopReason", "")
    text = f"The turn ended as {turn['status']}: {inert_line(detail, 500)}"
    return note_block(text, is_error=turn["status"] == "failed")


def header_block(
    version: str, model: str, workspace: str, policy: str
) -> "RenderableType":
    """Show where one is and what one talks to."""
    from rich.text import Text

    shown = Text.assemble(("SCV ", "bold"), (version, "dim"))
    for part in (model, workspace, policy):
        shown.append(" · ", style="dim")
        shown.append(inert_line(part, 200))
    return shown
