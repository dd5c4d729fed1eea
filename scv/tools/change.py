"""What a change of one file does, as an approver and a client see it."""

from collections.abc import Iterator
from typing import Any

from scv.core.ports import PreparedCall, Target
from scv.host.workspace import FileState, Workspace
from scv.values import frozen

LARGEST_BASE_BYTES = 16 << 20
"""Old content above this is hashed but not compared."""
_CONTEXT_LINES = 3
_MOST_COMPARED_LINES = 6000
"""Lines between the first and the last difference above which no pairs are sought.

The search takes time with the square of their number: about a second here at worst.
"""


@frozen
class Change:
    """New bytes for one file; `path` is free of links."""

    path: str
    asked_path: str
    base_sha256: str | None
    content: bytes
    new_sha256: str
    hunks: tuple[dict[str, Any], ...]
    patch: str
    notes: tuple[str, ...]

    def carry_out(self, workspace: Workspace) -> None:
        """Create or replace the file, if it is still what was compared with.

        Blocks. Raises what `Workspace.create` and `Workspace.replace` raise.
        """
        if self.base_sha256 is None:
            workspace.create(self.path, self.content)
        else:
            workspace.replace(self.path, self.content, base_sha256=self.base_sha256)


def compare(asked_path: str, state: FileState, content: bytes) -> Change:
    """Describe the change from what is on disk to new UTF-8 content."""
    from hashlib import sha256

    notes = []
    if state.path != asked_path:
        notes.append(f"{asked_path} is a link to {state.path}, which is changed")
    if state.names > 1:
        notes.append(
            f"the file has {state.names} hard links; "
            "only this name gets the new content"
        )
    old: str | None = ""
    if state.sha256 is not None:
        old = _text(state.content)
        if old is None:
            notes.append(
                f"the old content ({state.size} bytes) is not compared: "
                + ("too long" if state.content is None else "not UTF-8 text")
            )
    new = content.decode()
    if old and old.startswith("\ufeff") and not new.startswith("\ufeff"):
        notes.append("the file's byte-order mark is dropped")
    hunks = tuple(_hunks(_lines(old or ""), _lines(new)))
    head = (
        "--- /dev/null" if state.sha256 is None else f"--- a/{state.path}",
        f"+++ b/{state.path}",
    )
    body = [line for hunk in hunks for line in (hunk["header"], *hunk["lines"])]
    patch = "\n".join((*head, *body)) + "\n" if hunks else ""
    return Change(
        state.path,
        asked_path,
        state.sha256,
        content,
        sha256(content).hexdigest(),
        hunks,
        patch,
        tuple(notes),
    )


def prepared(change: Change, arguments: dict[str, Any]) -> PreparedCall:
    """Make the call that is shown and, once allowed, carried out."""
    op = "create" if change.base_sha256 is None else "replace"
    added = sum(line[0] == "+" for hunk in change.hunks for line in hunk["lines"])
    removed = sum(line[0] == "-" for hunk in change.hunks for line in hunk["lines"])
    summary = (
        f"{change.path} (+{added} -{removed} lines, {len(change.content)} bytes after)"
    )
    return PreparedCall(
        arguments=arguments,
        risk="filesystem",
        title="Create a file" if op == "create" else "Change a file",
        summary="; ".join((summary, *change.notes)),
        subject={
            "type": "change",
            "files": [
                {
                    "path": change.path,
                    "op": op,
                    "baseSha256": change.base_sha256,
                    "newSha256": change.new_sha256,
                    "patch": change.patch,
                    "hunks": list(change.hunks),
                }
            ],
        },
        targets=(Target(change.path, change.base_sha256, op),),
        payload=change,
    )


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Split at `\\n` only; a last line without one is marked as a patch marks it."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    else:
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def _hunks(old: list[str], new: list[str]) -> Iterator[dict[str, Any]]:
    for number, group in enumerate(_groups(_operations(old, new)), 1):
        lines = []
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                lines += [" " + line for line in old[a1:a2]]
                continue
            lines += ["-" + line for line in old[a1:a2]]
            lines += ["+" + line for line in new[b1:b2]]
        first, last = group[0], group[-1]
        header = f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@"
        shown = [part for line in lines for part in line.split("\n")]
        yield {"id": f"h{number}", "header": header, "lines": shown}


_Operation = tuple[str, int, int, int, int]


def _operations(old: list[str], new: list[str]) -> list[_Operation]:
    """Compare only what lies between the common head and the common tail."""
    head = 0
    shorter = min(len(old), len(new))
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = len(old) - tail, len(new) - tail
    found: list[_Operation] = [("equal", 0, head, 0, head)] if head else []
    if head == a or head == b or a - head + b - head > _MOST_COMPARED_LINES:
        if head < a or head < b:
            found.append(("replace", head, a, head, b))
    else:
        from difflib import SequenceMatcher

        matcher = SequenceMatcher(None, old[head:a], new[head:b])
        found += [
            (tag, a1 + head, a2 + head, b1 + head, b2 + head)
            for tag, a1, a2, b1, b2 in matcher.get_opcodes()
        ]
    if tail:
        found.append(("equal", a, len(old), b, len(new)))
    return found


def _groups(operations: list[_Operation]) -> Iterator[list[_Operation]]:
    """Cut long equal stretches down to the context around each place of change."""
    group: list[_Operation] = []
    for index, (tag, a1, a2, b1, b2) in enumerate(operations):
        if tag != "equal":
            group.append((tag, a1, a2, b1, b2))
            continue
        more = index + 1 < len(operations)
        if group and more and a2 - a1 <= 2 * _CONTEXT_LINES:
            group.append((tag, a1, a2, b1, b2))
            continue
        if group:
            keep = min(_CONTEXT_LINES, a2 - a1)
            yield [*group, (tag, a1, a1 + keep, b1, b1 + keep)]
        keep = min(_CONTEXT_LINES, a2 - a1)
        group = [(tag, a2 - keep, a2, b2 - keep, b2)] if more else []
    if any(operation[0] != "equal" for operation in group):
        yield group


def _span(start: int, end: int) -> str:
    """Write a range as a unified diff does; an empty one names the line before."""
    count = end - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"
