"""`read`: a part of a text file, or of an earlier result that was cut."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any

import anyio.to_thread

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Progress, Risk, ToolResult, ToolSpec
from scv.errors import LimitExceeded, NotFound
from scv.host.walk import normal_path
from scv.host.workspace import OpenFile, Workspace
from scv.shapes import LARGEST_INTEGER, Bounds
from scv.tools.arguments import as_json, parse_arguments
from scv.tools.secret_names import looks_secret
from scv.tools.text_range import BYTE_ORDER_MARK, Part, decode, select, select_lines
from scv.values import frozen

ReadBlob = Callable[[str], Awaitable[bytes | None]]
"""Gives the whole bytes of a stored result, or None when there is none."""

_WHOLE_FILE_BYTES = 64 << 20
"""Larger files are not hashed, and lines in them not counted: about 50 ms of work."""
_FromZero = Annotated[int, Bounds(0, LARGEST_INTEGER)]
_FromOne = Annotated[int, Bounds(1, LARGEST_INTEGER)]


@frozen
class ReadArguments:
    """What to read; bytes and lines exclude each other."""

    path: str | None = None
    handle: Annotated[str, Bounds(1, 128)] | None = None
    offset: _FromZero | None = None
    limit: _FromOne | None = None
    start_line: _FromOne | None = None
    line_count: _FromOne | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.handle is None):
            raise ValueError("send either `path` or `handle`, one of them")
        by_bytes = self.offset is not None or self.limit is not None
        if by_bytes and (self.start_line is not None or self.line_count is not None):
            raise ValueError(
                "choose by bytes (`offset`, `limit`) or by lines "
                "(`start_line`, `line_count`), not both"
            )


SPEC = ToolSpec(
    "read",
    "Read a UTF-8 text file of the workspace, or part of it, by bytes or by lines. "
    "A long file is cut: go on at `next_offset`. `sha256` is of the whole file; pass "
    "it as `expected_sha256` when you change the file. With `bom` true a byte-order "
    "mark (3 bytes) precedes `content`.",
    {
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "description": "Relative to the workspace, taken literally.",
            },
            "handle": {
                "type": "string",
                "description": "Instead of path: handle of a result that was cut.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "First byte.",
            },
            "limit": {"type": "integer", "minimum": 1, "description": "Most bytes."},
            "start_line": {
                "type": "integer",
                "minimum": 1,
                "description": "First line, from 1; not with offset or limit.",
            },
            "line_count": {"type": "integer", "minimum": 1},
        },
        "additionalProperties": False,
    },
)


class ReadTool:
    """Read files below one workspace."""

    spec = SPEC

    def __init__(
        self,
        workspace: Workspace,
        settings: ToolSettings,
        read_blob: ReadBlob | None = None,
    ) -> None:
        self._workspace = workspace
        self._most = settings.max_read_bytes
        self._default = min(settings.output_limit_bytes, settings.max_read_bytes)
        self._read_blob = read_blob

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate; a name like that of a secret needs approval."""
        wanted = parse_arguments(ReadArguments, arguments)
        risk: Risk = "read_only"
        if wanted.path is not None:
            path = normal_path(wanted.path)
            wanted = replace(wanted, path=path)
            real = await anyio.to_thread.run_sync(self._workspace.real_path, path)
            if looks_secret(path) or looks_secret(real):
                risk = "filesystem"
            summary = path if real == path else f"{path} (a link to {real})"
        else:
            summary = f"the result {wanted.handle}"
        summary += _range_text(wanted)
        return PreparedCall(
            arguments=as_json(wanted),
            risk=risk,
            title="Read a file" if wanted.path is not None else "Read a long result",
            summary=summary,
            subject={"type": "other", "text": summary},
            payload=wanted,
        )

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Read the part; the size of a file is one snapshot."""
        wanted: ReadArguments = call.payload
        if wanted.path is not None:
            return await anyio.to_thread.run_sync(self._read_file, wanted)
        assert wanted.handle is not None
        data = await self._read_blob(wanted.handle) if self._read_blob else None
        if data is None:
            raise NotFound(f"there is no stored result with the handle {wanted.handle}")
        return self._read_result(wanted, data)

    def _read_file(self, wanted: ReadArguments) -> ToolResult:
        path = wanted.path
        assert path is not None
        with self._workspace.open_file(path) as file:
            found: dict[str, Any] = {"path": path, "total_bytes": file.size}
            sha256: str | None
            if wanted.start_line is not None or wanted.line_count is not None:
                part, sha256, lines = self._lines_of(file, wanted, path)
                found |= lines
            else:
                limit, ours = self._limit(wanted)
                offset = wanted.offset or 0
                part = select(
                    file.read,
                    file.size,
                    offset=offset,
                    limit=limit,
                    limit_is_ours=ours,
                )
                if len(part.data) == file.size:
                    sha256 = hashlib.sha256(part.data).hexdigest()
                else:
                    sha256 = file.sha256() if file.size <= _WHOLE_FILE_BYTES else None
            bom = file.read(0, 3) == BYTE_ORDER_MARK
        content = decode(part, path)
        if bom and part.start == 0:
            content = content.removeprefix("\ufeff")
        found |= {"sha256": sha256, "bom": bom, "source": "disk"}
        if file.size == 0:
            found["note"] = "the file is empty"
        elif sha256 is None:
            found["note"] = f"sha256 is left out above {_WHOLE_FILE_BYTES} bytes"
        elif bom and part.start == 0:
            found["note"] = (
                "a byte-order mark (the first 3 bytes) precedes content; to keep it "
                "when you write the whole file, begin with \\ufeff; `edit` keeps it"
            )
        return _result(found, part, content, file.size)

    def _lines_of(
        self, file: OpenFile, wanted: ReadArguments, path: str
    ) -> tuple[Part, str, dict[str, Any]]:
        if file.size > _WHOLE_FILE_BYTES:
            raise LimitExceeded(
                f"{path} has {file.size} bytes; lines are counted up to "
                f"{_WHOLE_FILE_BYTES}. Use `offset` and `limit`."
            )
        data = file.read(0, file.size)
        start_line = wanted.start_line or 1
        part, last, lines = select_lines(
            data,
            start_line=start_line,
            line_count=wanted.line_count,
            limit=self._default,
        )
        numbers = {"start_line": start_line, "end_line": last, "total_lines": lines}
        return part, hashlib.sha256(data).hexdigest(), numbers

    def _read_result(self, wanted: ReadArguments, data: bytes) -> ToolResult:
        found: dict[str, Any] = {"handle": wanted.handle, "total_bytes": len(data)}
        if wanted.start_line is not None or wanted.line_count is not None:
            part, last, lines = select_lines(
                data,
                start_line=wanted.start_line or 1,
                line_count=wanted.line_count,
                limit=self._default,
            )
            found |= {"end_line": last, "total_lines": lines}
        else:
            limit, ours = self._limit(wanted)
            part = select(
                lambda offset, length: data[offset : offset + length],
                len(data),
                offset=wanted.offset or 0,
                limit=limit,
                limit_is_ours=ours,
            )
        return _result(found, part, part.data.decode("utf-8", "replace"), len(data))

    def _limit(self, wanted: ReadArguments) -> tuple[int, bool]:
        """Give the limit that holds and whether it is ours rather than the model's."""
        if wanted.limit is None:
            return self._default, True
        if wanted.limit > self._most:
            return self._most, True
        return wanted.limit, False


def _result(found: dict[str, Any], part: Part, content: str, total: int) -> ToolResult:
    truncated = part.start > 0 or part.end < total
    found |= {
        "offset": part.start,
        "truncated": truncated,
        "next_offset": part.end if part.end < total else None,
        "content": content,
    }
    output = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return ToolResult(True, output, truncated=truncated, total_bytes=total)


def _range_text(wanted: ReadArguments) -> str:
    if wanted.start_line is not None or wanted.line_count is not None:
        count = f", {wanted.line_count} lines" if wanted.line_count else ""
        return f", from line {wanted.start_line or 1}{count}"
    text = f", from byte {wanted.offset}" if wanted.offset else ""
    return text + (f", {wanted.limit} bytes" if wanted.limit else "")
