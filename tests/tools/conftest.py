"""A workspace with its tools, called the way a session calls them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scv.config.settings import ToolSettings
from scv.core.ports import PreparedCall, Tool, ToolResult
from scv.errors import ToolError
from scv.tools.registry import build_tools
from tests.fakes.progress import Silent


@dataclass(frozen=True)
class Toolbox:
    """The file tools of one workspace; `outside` must stay as it is."""

    workspace: Path
    outside: Path
    tools: dict[str, Tool]

    async def prepare(self, tool: str, **arguments: Any) -> PreparedCall:
        """Prepare a call as the core does before it asks."""
        return await self.tools[tool].prepare(arguments)

    async def run(self, tool: str, **arguments: Any) -> ToolResult:
        """Prepare, prepare again as after an approval, and run."""
        await self.prepare(tool, **arguments)
        call = await self.prepare(tool, **arguments)
        return await self.tools[tool].run(call, Silent())

    async def found(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Run a call that succeeds and give its result."""
        result = await self.run(tool, **arguments)
        assert result.success
        found: dict[str, Any] = json.loads(result.output)
        return found

    async def fails(
        self, kind: type[ToolError], tool: str, **arguments: Any
    ) -> ToolError:
        """Run a call that must fail, and give the error."""
        with pytest.raises(kind) as caught:
            await self.run(tool, **arguments)
        return caught.value

    def tool_files(self) -> list[str]:
        """List temporary files that writes left behind."""
        return [str(path) for path in self.workspace.rglob(".scv-*")]


def toolbox(root: Path, **settings: Any) -> Toolbox:
    """Make a workspace and a directory beside it."""
    workspace, outside = root / "ws", root / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("outside\n")
    tools = build_tools(str(workspace), ToolSettings(**settings), environment={})
    return Toolbox(workspace, outside, tools)


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    """A fresh workspace with default limits."""
    return toolbox(tmp_path)
