"""`list`: names of workspace files."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Progress, ToolResult, ToolSpec
from scv.errors import BadArguments, LimitExceeded, Refused
from scv.host.walk import normal_path
from scv.host.workspace import Workspace
from scv.tools._search_child import glob_regex
from scv.tools.arguments import as_json, parse_arguments
from scv.tools.secret_names import looks_secret
from scv.tools.tree import DEADLINE_SECONDS, Scope, find_ripgrep, list_files
from scv.values import frozen

_MOST_NAMES = 1000


@frozen
class ListArguments:
    """Which files to name."""

    path: str | None = None
    glob: str | None = None


SPEC = ToolSpec(
    "list",
    "List files below a directory, all levels deep, sorted. Hidden files are "
    "included; what .gitignore excludes, .git, links and secret-like names are not.",
    {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Directory; default all."},
            "glob": {
                "type": "string",
                "description": "Only such files below path: *.py, src/**/*.{ts,tsx}.",
            },
        },
        "additionalProperties": False,
    },
)


class ListTool:
    """List files below one workspace."""

    spec = SPEC

    def __init__(self, workspace: Workspace, settings: ToolSettings) -> None:
        self._workspace = workspace
        self._limit = settings.output_limit_bytes

    async def prepare(self, arguments: dict[str, Any]) -> PreparedCall:
        """Validate; nothing is opened yet."""
        wanted = parse_arguments(ListArguments, arguments)
        check_glob(wanted.glob)
        wanted = replace(wanted, path=start_path(wanted.path))
        summary = f"{wanted.path}{f' ({wanted.glob})' if wanted.glob else ''}"
        return PreparedCall(
            arguments=as_json(wanted),
            risk="read_only",
            title="List files",
            summary=summary,
            subject={"type": "other", "text": summary},
            payload=wanted,
        )

    async def run(self, call: PreparedCall, progress: Progress) -> ToolResult:
        """Walk in a child, then look at every name again through the workspace."""
        wanted: ListArguments = call.payload
        with open_scope(self._workspace, wanted.path, wanted.glob) as scope:
            if scope.is_file:
                raise Refused(f"{wanted.path} is a file; `read` it")
            ripgrep = find_ripgrep(self._workspace.root)
            with anyio.move_on_after(DEADLINE_SECONDS) as deadline:
                paths = await list_files(scope, ripgrep)
            if deadline.cancelled_caught:
                raise LimitExceeded(
                    f"listing took longer than {DEADLINE_SECONDS} seconds and was "
                    "stopped; name a directory further down"
                )
        found = await anyio.to_thread.run_sync(self._look_again, paths)
        output = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
        return ToolResult(True, output, truncated=found["truncated"])

    def _look_again(self, paths: list[bytes]) -> dict[str, Any]:
        names: list[str] = []
        secret = total = used = 0
        for raw in paths:
            path = raw.decode("utf-8", "backslashreplace")
            if looks_secret(path):
                secret += 1
                continue
            total += 1
            used += len(raw) + 3
            if len(names) == _MOST_NAMES or used > self._limit - 256:
                continue
            if self._workspace.is_entry(path):
                names.append(path)
        found: dict[str, Any] = {
            "files": names,
            "total": total,
            "truncated": total > len(names),
            "skipped": {"secret_like": secret} if secret else {},
        }
        if not names:
            found["note"] = "no such files"
        elif found["truncated"]:
            found["note"] = "there are more files; narrow the listing"
        return found


@contextmanager
def open_scope(
    workspace: Workspace, path: str | None, glob: str | None
) -> Iterator[Scope]:
    """Find where to look, and hold the workspace open for the child to start in.

    Raises:
        ToolError: The path is missing or leads outside.
    """
    start, is_directory = workspace.resolve(path or ".")
    directory = workspace.open_directory(".")
    try:
        yield Scope(directory, start, not is_directory, glob)
    finally:
        os.close(directory)


def start_path(path: str | None) -> str:
    """Normalise the optional path of a search; left out or blank is the workspace."""
    return normal_path(path) if path else "."


def check_glob(glob: str | None) -> None:
    """Refuse globs that mean nothing.

    Raises:
        BadArguments: It is malformed, excludes instead of choosing, or is no path.
    """
    if not glob:
        return
    problem = None
    if glob.startswith("!"):
        problem = "a leading `!` (exclusion) is not understood"
    elif "\0" in glob or ".." in glob.split("/"):
        problem = "it may not contain `..` or NUL"
    else:
        try:
            glob.encode()
            glob_regex(glob)
        except ValueError as error:
            problem = str(error)
    if problem:
        raise BadArguments(f"`glob`: {problem}", field="glob")
