"""`write`: the whole content of one file."""

import json
from dataclasses import replace
from typing import Any, Literal

import anyio.to_thread

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Progress, ToolResult, ToolSpec
from scv.errors import BadArguments, LimitExceeded, NotFound
from scv.host.walk import normal_path
from scv.host.workspace import Workspace, already_exists, stale
from scv.tools.arguments import as_json, encode, parse_arguments
from scv.tools.change import LARGEST_BASE_BYTES, Change, compare, prepared
from scv.values import frozen


@frozen
class WriteArguments:
    """Where to write what."""

    path: str
    content: str
    mode: Literal["create", "replace"]
    expected_sha256: str | None = None


SPEC = ToolSpec(
    "write",
    "Write a whole file of the workspace, byte for byte as given. `create` fails if "
    "the file exists (missing directories are made), `replace` fails if it does not. "
    "To change part of a file use `edit`.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Relative to the workspace."},
            "content": {"type": "string"},
            "mode": {"type": "string", "enum": ["create", "replace"]},
            "expected_sha256": {
                "type": "string",
                "description": "Fail if the file is not the one with this hash.",
            },
        },
        "required": ["path", "content", "mode"],
        "additionalProperties": False,
    },
)


class WriteTool:
    """Write files below one workspace."""

    spec = SPEC

    def __init__(self, workspace: Workspace, settings: ToolSettings) -> None:
        self._workspace = workspace
        self._most = settings.max_write_bytes

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate and compare with the file as it is now."""
        wanted = parse_arguments(WriteArguments, arguments)
        path = file_path(wanted.path)
        content = encode(wanted.content, "content")
        if len(content) > self._most:
            raise LimitExceeded(
                f"content has {len(content)} bytes; "
                f"tools.max_write_bytes allows {self._most}"
            )
        change = await anyio.to_thread.run_sync(self._compare, path, wanted, content)
        return prepared(change, as_json(replace(wanted, path=path)))

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Install the content at once; a cancel is obeyed before or after, not amid."""
        change: Change = call.payload
        await anyio.to_thread.run_sync(change.carry_out, self._workspace)
        return changed(change)

    def _compare(self, path: str, wanted: WriteArguments, content: bytes) -> Change:
        state = self._workspace.inspect(path, limit_bytes=LARGEST_BASE_BYTES)
        if wanted.mode == "create" and state.sha256 is not None:
            raise already_exists(path)
        expected = wanted.expected_sha256
        if expected is not None and expected.lower() != state.sha256:
            raise stale(path, expected=expected.lower(), found=state.sha256)
        if wanted.mode == "replace" and state.sha256 is None:
            raise NotFound(f"{path} does not exist; use mode `create` to make it")
        return compare(path, state, content)


def file_path(path: str) -> str:
    """Normalise the path of a file that is to be changed.

    Raises:
        BadArguments: It can only name a directory, or is no workspace path.
    """
    normal = normal_path(path)
    if normal == "." or path.endswith(("/", "/.")):
        raise BadArguments(f"path names a directory, not a file: {path}", field="path")
    return normal


def changed(change: Change, **more: Any) -> ToolResult:
    """Report a change that was carried out."""
    found = {
        "path": change.asked_path,
        "bytes": len(change.content),
        "sha256": change.new_sha256,
        **more,
    }
    if change.notes:
        found["note"] = "; ".join(change.notes)
    output = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return ToolResult(True, output, diff=change.patch or None)
