"""`search`: lines of workspace files that match a regular expression."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any

import anyio
import anyio.to_thread

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Progress, ToolResult, ToolSpec
from scv.errors import LimitExceeded, Refused, ToolError
from scv.host.workspace import OpenFile, Workspace
from scv.shapes import Bounds
from scv.tools.arguments import as_json, parse_arguments
from scv.tools.line_pattern import LinePattern, read_pattern
from scv.tools.listing import check_glob, open_scope, start_path
from scv.tools.secret_names import looks_secret
from scv.tools.tree import (
    DEADLINE_SECONDS,
    Hit,
    Hits,
    count_secret_like,
    find_lines,
    find_ripgrep,
)
from scv.values import frozen

_MOST_LINES = 500
_LINE_BYTES = 400
_CONTEXT_BYTES = 8192
_BINARY_LOOK_BYTES = 8192  # where git, too, looks for a NUL


@frozen
class SearchArguments:
    """What to look for, and where."""

    pattern: str
    path: str | None = None
    glob: str | None = None
    context: Annotated[int, Bounds(0, 10)] | None = None
    ignore_case: bool | None = None


SPEC = ToolSpec(
    "search",
    "Find lines that match a regular expression (Python syntax, one line at a time; "
    "\\w \\d \\s \\b are ASCII). Hidden files are included; what .gitignore excludes, "
    ".git, links, and binary or secret-like files are not. Lines come as "
    "`number: text`, context as `number- text`.",
    {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {
                "type": "string",
                "description": "Directory or file to search; default all.",
            },
            "glob": {
                "type": "string",
                "description": "Only such files below path: *.py, src/**/*.{ts,tsx}.",
            },
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": 10,
                "description": "Lines around each match.",
            },
            "ignore_case": {"type": "boolean"},
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
)


@dataclass(slots=True)
class _Answer:
    """What was found so far, as the model gets it."""

    limit_bytes: int
    files: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0
    used_bytes: int = 0
    binary: int = 0
    truncated: bool = False

    def add(self, path: str, lines: list[str]) -> None:
        """Take one file's lines as far as they fit."""
        room: list[str] = []
        size = len(path) + 32
        for line in lines:
            size += len(line.encode()) + 4
            if (
                self.lines == _MOST_LINES
                or self.used_bytes + size > self.limit_bytes - 256
            ):
                self.truncated = True
                break
            room.append(line)
            self.lines += 1
        if room:
            self.files.append({"path": path, "lines": room})
            self.used_bytes += size


class SearchTool:
    """Search below one workspace."""

    spec = SPEC

    def __init__(
        self,
        workspace: Workspace,
        settings: ToolSettings,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self._workspace = workspace
        self._limit = settings.output_limit_bytes
        self._deadline_seconds = deadline_seconds

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate; nothing is opened yet."""
        wanted = parse_arguments(SearchArguments, arguments)
        pattern = read_pattern(wanted.pattern, ignore_case=bool(wanted.ignore_case))
        check_glob(wanted.glob)
        path = start_path(wanted.path)
        if looks_secret(path):
            raise Refused(
                f"{path} is named like a secret and is not searched; "
                "`read` it, which is asked for"
            )
        wanted = replace(wanted, path=path)
        where = f" in {path}" if path != "." else ""
        summary = f"{wanted.pattern}{where}{f' ({wanted.glob})' if wanted.glob else ''}"
        return PreparedCall(
            arguments=as_json(wanted),
            risk="read_only",
            title="Search files",
            summary=summary,
            subject={"type": "other", "text": summary},
            payload=(wanted, pattern),
        )

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Search in a child, then read every line again through the workspace."""
        wanted, pattern = call.payload
        hits, secret = await self._find(wanted, pattern)
        answer = await anyio.to_thread.run_sync(
            self._look_again, hits, wanted.context or 0
        )
        skipped = {}
        if secret and not answer.truncated:
            skipped["secret_like"] = secret
        if answer.binary:
            skipped["binary"] = answer.binary
        found: dict[str, Any] = {
            "files": answer.files,
            "truncated": answer.truncated,
            "skipped": skipped,
        }
        if not answer.files:
            found["note"] = "no line matches"
        elif answer.truncated:
            found["note"] = "there are more matches; narrow the search"
        output = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return ToolResult(True, output, truncated=answer.truncated)

    async def _find(
        self, wanted: SearchArguments, pattern: LinePattern
    ) -> tuple[Hits, int]:
        """Run the search and count the secret-like files it passed over."""
        ripgrep = find_ripgrep(self._workspace.root)
        hits, secret = Hits(), 0
        with open_scope(self._workspace, wanted.path, wanted.glob) as scope:
            if looks_secret(scope.start):
                raise Refused(f"{wanted.path} is named like a secret; not searched")

            async def count() -> None:
                nonlocal secret
                secret = await count_secret_like(scope, ripgrep)

            async def find() -> None:
                nonlocal hits
                hits = await find_lines(scope, pattern, ripgrep)

            with anyio.move_on_after(self._deadline_seconds) as deadline:
                async with anyio.create_task_group() as both:
                    both.start_soon(count)
                    both.start_soon(find)
            if deadline.cancelled_caught:
                raise LimitExceeded(
                    f"the search took longer than {self._deadline_seconds} seconds "
                    "and was stopped; use a simpler pattern, or path and glob"
                )
        return hits, secret

    def _look_again(self, hits: Hits, context: int) -> _Answer:
        answer = _Answer(self._limit)
        for raw, group in groupby(hits.found, key=lambda hit: hit[0]):
            try:
                path = raw.decode()
                with self._workspace.open_file(path, follow=False) as file:
                    if b"\0" in file.read(0, _BINARY_LOOK_BYTES):
                        raise UnicodeError
                    answer.add(path, list(_lines(file, list(group), context)))
            except UnicodeError:
                answer.binary += 1
            except ToolError:  # gone, or no longer a plain file of the workspace
                continue
            if answer.truncated:
                break
        answer.truncated = answer.truncated or hits.more
        return answer


def _lines(file: OpenFile, hits: list[Hit], context: int) -> Iterator[str]:
    """Write the hits of one file with their context, each line once.

    Raises:
        UnicodeError: A line is not UTF-8 text.
    """
    matched = {number for _, number, _ in hits}
    shown = 0
    for _, number, offset in hits:
        if offset and file.read(offset - 1, 1) != b"\n":
            continue  # the file changed meanwhile
        if context:
            before = _before(file, offset, context)
            for back, line in enumerate(reversed(before)):
                at = number - len(before) + back
                if at > shown and at not in matched:
                    yield f"{at}- {line}"
        yield f"{number}: {_line(file, offset)[0]}"
        shown = number
        position = _line(file, offset)[1]
        for at in range(number + 1, number + context + 1):
            if at in matched or position >= file.size:
                break
            line, position = _line(file, position)
            yield f"{at}- {line}"
            shown = at


def _line(file: OpenFile, offset: int) -> tuple[str, int]:
    """Read one line, cut when long, and find where the next begins."""
    piece = file.read(offset, _LINE_BYTES + 4)
    end = piece.find(b"\n")
    if end >= 0:
        return _text(piece[:end]), offset + end + 1
    if offset + len(piece) >= file.size:
        return _text(piece), file.size
    after = offset + len(piece)
    while after < file.size:
        more = file.read(after, 1 << 16)
        end = more.find(b"\n")
        if end >= 0 or not more:
            after += end + 1
            break
        after += len(more)
    return _text(piece, cut=True), after


def _text(data: bytes, *, cut: bool = False) -> str:
    cut = cut or len(data) > _LINE_BYTES
    if cut:
        data = data[:_LINE_BYTES]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if not cut or error.reason != "unexpected end of data":
            raise
        text = data[: error.start].decode()
    return text + " … (cut)" if cut else text


def _before(file: OpenFile, offset: int, count: int) -> list[str]:
    """Read the lines just before an offset, the nearest first."""
    start = max(0, offset - _CONTEXT_BYTES)
    lines = file.read(start, offset - start).split(b"\n")[:-1]
    if start:
        lines = lines[1:]  # begins somewhere in a line
    return [_text(line) for line in reversed(lines[-count:])]
