"""`edit`: exact replacements of text in one file, all or none."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import anyio.to_thread

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Progress, ToolResult, ToolSpec
from scv.errors import BadArguments, LimitExceeded, NotFound, ToolError
from scv.host.workspace import Workspace, stale
from scv.shapes import Bounds
from scv.tools.arguments import as_json, encode, parse_arguments
from scv.tools.change import LARGEST_BASE_BYTES, Change, compare, prepared
from scv.tools.text_range import BYTE_ORDER_MARK, Part, decode
from scv.tools.write import changed, file_path
from scv.values import frozen

_MOST_EDITS = 200
_NEAREST_LINES = 3
_SEARCHED_LINES = 20_000
_LINE_CHARACTERS = 160


@frozen
class Edit:
    """One replacement."""

    old: Annotated[str, Bounds(1)]
    new: str
    all: bool = False


@frozen
class EditArguments:
    """The replacements of one file, in order."""

    path: str
    edits: Annotated[list[Edit], Bounds(1, _MOST_EDITS)]
    expected_sha256: str | None = None


SPEC = ToolSpec(
    "edit",
    "Change parts of a UTF-8 text file. Edits apply in order, each to the result of "
    "the ones before; if one fails, nothing is written. `old` must be copied exactly "
    "(white space and line ends too) and occur once in the file, unless `all` is true: "
    "take in enough neighbouring lines. `new` may be empty.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "edits": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "old": {"type": "string"},
                        "new": {"type": "string"},
                        "all": {
                            "type": "boolean",
                            "description": "Replace every occurrence.",
                        },
                    },
                    "required": ["old", "new"],
                    "additionalProperties": False,
                },
            },
            "expected_sha256": {
                "type": "string",
                "description": "Fail if the file is not the one with this hash.",
            },
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
)


class EditTool:
    """Edit files below one workspace."""

    spec = SPEC

    def __init__(self, workspace: Workspace, settings: ToolSettings) -> None:
        self._workspace = workspace
        self._most = settings.max_write_bytes

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate and apply the edits to the file as it is now, in memory."""
        wanted = parse_arguments(EditArguments, arguments)
        wanted = replace(wanted, path=file_path(wanted.path))
        change = await anyio.to_thread.run_sync(self._compare, wanted)
        return prepared(change, as_json(wanted))

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Install the result at once; a cancel is obeyed before or after, not amid."""
        change: Change = call.payload
        await anyio.to_thread.run_sync(change.carry_out, self._workspace)
        return changed(change, edits=len(call.arguments["edits"]))

    def _compare(self, wanted: EditArguments) -> Change:
        path = wanted.path
        largest = max(LARGEST_BASE_BYTES, self._most)
        state = self._workspace.inspect(path, limit_bytes=largest)
        expected = wanted.expected_sha256
        if expected is not None and expected.lower() != state.sha256:
            raise stale(path, expected=expected.lower(), found=state.sha256)
        if state.sha256 is None:
            raise NotFound(f"{path} does not exist; use `write` to create it")
        if state.content is None:
            raise LimitExceeded(
                f"{path} has {state.size} bytes; `edit` takes files up to {largest}"
            )
        decode(Part(0, len(state.content), state.content), path)
        content = apply(wanted.edits, state.content, path)
        if content == state.content:
            raise BadArguments(
                f"the edits leave {path} exactly as it is", field="edits"
            )
        if len(content) > self._most:
            raise LimitExceeded(
                f"{path} would have {len(content)} bytes; "
                f"tools.max_write_bytes allows {self._most}"
            )
        return compare(path, state, content)


def apply(edits: list[Edit], content: bytes, path: str) -> bytes:
    """Apply edits in order to UTF-8 content; a byte-order mark stays in front.

    Raises:
        ToolError: An edit's `old` is absent or ambiguous; the message says which
            edit, how often it occurs, and where something like it stands.
    """
    mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK) else b""
    content = content[len(mark) :]
    for number, edit in enumerate(edits, 1):
        old = encode(edit.old, f"edits.{number - 1}.old")
        new = encode(edit.new, f"edits.{number - 1}.new")
        found = list(_occurrences(content, old))
        if len(found) == 1:
            content = content[: found[0]] + new + content[found[0] + len(old) :]
        elif found and edit.all:
            content = content.replace(old, new)
        else:
            which = f"edit {number} of {len(edits)}"
            after = " (after the edits before it)" if number > 1 else ""
            if found:
                problem = _ambiguous(content, found)
            else:
                problem = _absent(content, edit.old, new=edit.new)
            raise ToolError(
                f"{which}: in {path}{after}, {problem} Nothing was written."
            )
    return mark + content


def _occurrences(content: bytes, old: bytes) -> Iterator[int]:
    """Find every position, overlapping ones too: each could be the one meant."""
    position = content.find(old)
    while position >= 0:
        yield position
        position = content.find(old, position + 1)


def _ambiguous(content: bytes, found: list[int]) -> str:
    numbers = [content.count(b"\n", 0, position) + 1 for position in found[:5]]
    lines = ", ".join(map(str, numbers)) + (", …" if len(found) > 5 else "")
    return (
        f"`old` occurs {len(found)} times (lines {lines}). Take in neighbouring "
        "lines to make it unique, or set `all` to replace every one."
    )


def _absent(content: bytes, old: str, *, new: str) -> str:
    text = content.decode()
    problem = "`old` occurs 0 times. "
    if "\r\n" in text and old.replace("\r\n", "\n").replace("\n", "\r\n") in text:
        return problem + "The file's lines end with \\r\\n; write them so in `old`."
    if "\r" in old and old.replace("\r\n", "\n") in text:
        return problem + "The file's lines end with \\n alone; leave out the \\r."
    if new and new in text:
        problem += "`new` is in the file already. "
    nearest = _nearest(text, old)
    if not nearest:
        return problem + "No line resembles it; read the file again."
    return problem + "Nearest lines:\n" + "\n".join(nearest) + "\n"


def _nearest(text: str, old: str) -> list[str]:
    """Show the lines most like the first line of `old` that says something."""
    from difflib import SequenceMatcher

    wanted = max((line.strip() for line in old.split("\n")[:3]), key=len, default="")
    wanted = wanted[:_LINE_CHARACTERS]
    if not wanted:
        return []
    matcher = SequenceMatcher(None, "", wanted, autojunk=False)
    scored: list[tuple[float, int, str]] = []
    for number, line in enumerate(text.split("\n", _SEARCHED_LINES), 1):
        if number > _SEARCHED_LINES:
            break
        shown = line[:_LINE_CHARACTERS]
        matcher.set_seq1(shown.strip())
        worst = scored[-1][0] if len(scored) == _NEAREST_LINES else -0.6
        if matcher.real_quick_ratio() <= -worst or matcher.quick_ratio() <= -worst:
            continue
        ratio = matcher.ratio()
        if ratio > -worst:
            scored = sorted([*scored, (-ratio, number, shown)])[:_NEAREST_LINES]
    return [f"{number}: {shown}" for _, number, shown in scored]
