"""The built-in tools, one line each."""

from collections.abc import Iterable, Mapping

from scv.config.settings import ToolSettings
from scv.core.ports import Tool
from scv.host.workspace import Workspace
from scv.tools.bash import BashTool
from scv.tools.edit import EditTool
from scv.tools.listing import ListTool
from scv.tools.read import ReadBlob, ReadTool
from scv.tools.search import SearchTool
from scv.tools.write import WriteTool


def build_tools(
    workspace_root: str,
    settings: ToolSettings,
    *,
    environment: Mapping[str, str],
    read_blob: ReadBlob | None = None,
    instance: str = "",
    session: str = "",
) -> dict[str, Tool]:
    """Build the tools of one session, sorted by name.

    Args:
        environment: Variables of the place the person works in, for commands.
        read_blob: Gives the whole of a result that was cut.
        instance: Marks children of this instance.
        session: Marks children of this session.

    Raises:
        ValueError: Two tools have the same name.
    """
    workspace = Workspace(workspace_root)
    return register(
        [
            ReadTool(workspace, settings, read_blob),
            WriteTool(workspace, settings),
            EditTool(workspace, settings),
            ListTool(workspace, settings),
            SearchTool(workspace, settings),
            BashTool(
                workspace_root,
                settings,
                environment=lambda: environment,
                instance=instance,
                session=session,
            ),
        ]
    )


def register(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Put tools in order by name.

    Raises:
        ValueError: Two tools have the same name.
    """
    found: dict[str, Tool] = {}
    for tool in tools:
        name = tool.spec.name
        if name in found:
            raise ValueError(f"there are two tools named {name}")
        found[name] = tool
    return dict(sorted(found.items()))
