"""The examples of docs/extend.md work as they stand there."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from scv.core.history import UserEntry
from scv.core.ports import ModelRequest, ResponseDone
from scv.host.workspace import Workspace
from tests.fakes.progress import Silent

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"


def block(name: str) -> str:
    """The page's code block of this name."""
    found = re.search(rf"```python {name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, f"docs/extend.md has no block {name}"
    return found[1]


def module(name: str) -> Any:
    """The block as a module."""
    made = ModuleType(f"extend_{name}")
    exec(compile(block(name), f"{PAGE.name}:{name}", "exec"), made.__dict__)
    return made


@pytest.mark.anyio
async def test_the_tool_counts_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    tool = module("tool").CountTool(Workspace(str(tmp_path)))

    result = await tool.run(await tool.prepare({"path": "a.txt"}), Silent())

    assert (result.success, result.output) == (True, '{"lines":2}')


@pytest.mark.anyio
async def test_the_model_echoes() -> None:
    request = ModelRequest("", [UserEntry("say it")], [], "s_1")

    events = [event async for event in module("provider").EchoModel().respond(request)]

    assert isinstance(events[-1], ResponseDone)
    assert events[-1].message.text == "say it "


@pytest.mark.usefixtures("no_leftovers")
def test_the_front_end_runs_a_turn(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "hello.txt").write_text("hello\n")
    script = tmp_path / "front_end.py"
    script.write_text(block("frontend"))

    done = subprocess.run(
        [sys.executable, str(script), str(workspace)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "denied: date" in done.stdout
    assert done.stdout.splitlines()[-1] == "completed"
