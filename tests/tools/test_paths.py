"""No path, link or race leads a file tool out of the workspace."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from scv.config.settings import ToolSettings
from scv.errors import BadArguments, NotFound, Refused, ToolError
from scv.host.workspace import Workspace
from scv.tools.registry import build_tools
from tests.tools.conftest import Toolbox

pytestmark = pytest.mark.anyio
SWAPS = 3000


def write_arguments(path: str) -> dict[str, str]:
    return {"path": path, "content": "x", "mode": "create"}


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "..", "a/..", "/etc/hostname", "/", "", "a\0b"]
)
async def test_path_1_parent_and_absolute_paths(box: Toolbox, path: str) -> None:
    (box.workspace / "a").mkdir()

    for tool, arguments in (
        ("read", {"path": path}),
        ("write", write_arguments(path)),
        ("edit", {"path": path, "edits": [{"old": "a", "new": "b"}]}),
    ):
        with pytest.raises(BadArguments) as caught:
            await box.prepare(tool, **arguments)
        assert caught.value.field == "path"
        assert "relative to the workspace" in caught.value.message


async def test_path_1_absolute_path_inside_is_refused_too(box: Toolbox) -> None:
    (box.workspace / "a").write_text("x")
    inside = str(box.workspace / "a")

    error = await box.fails(BadArguments, "read", path=inside)
    assert "relative to the workspace" in error.message
    await box.fails(BadArguments, "write", **write_arguments(inside))


async def test_path_1_plain_spellings_name_the_same_file(box: Toolbox) -> None:
    (box.workspace / "a").mkdir()
    (box.workspace / "a/b..c").write_text("x")

    for path in ("a/b..c", "./a/b..c", "a//b..c", "a/./b..c"):
        call = await box.prepare("read", path=path)
        assert call.arguments["path"] == "a/b..c"
    await box.fails(BadArguments, "write", **write_arguments("new/"))
    await box.fails(BadArguments, "write", **write_arguments("."))


async def test_path_2_directory_symlink_to_outside(box: Toolbox) -> None:
    os.symlink(box.outside, box.workspace / "link")
    os.symlink("../outside", box.workspace / "relative")
    os.symlink(box.outside / "secret", box.workspace / "file")

    for link in ("link", "relative"):
        await box.fails(Refused, "read", path=f"{link}/secret")
        await box.fails(Refused, "write", **write_arguments(f"{link}/n/x"))
        await box.fails(Refused, "write", **write_arguments(f"{link}/x"))
        await box.fails(Refused, "list", path=link)
        await box.fails(Refused, "search", path=link, pattern="outside")
    error = await box.fails(Refused, "read", path="file")
    assert "outside the workspace" in error.message
    await box.fails(Refused, "write", path="file", content="y", mode="replace")
    edits = [{"old": "outside", "new": "owned"}]
    await box.fails(Refused, "edit", path="file", edits=edits)

    assert [entry.name for entry in box.outside.iterdir()] == ["secret"]
    assert (box.outside / "secret").read_text() == "outside\n"


async def test_path_2_links_to_places_inside_work(box: Toolbox) -> None:
    real = box.workspace / "real"
    real.mkdir()
    (real / "f").write_text("inside\n")
    (box.workspace / "deep/er").mkdir(parents=True)
    os.symlink("real", box.workspace / "relative")
    os.symlink(real, box.workspace / "absolute")
    os.symlink("../ws/real", box.workspace / "around")
    os.symlink("../../real", box.workspace / "deep/er/up")
    os.symlink("../../../ws/deep/er/up/f", box.workspace / "deep/er/chain")
    os.symlink("absolute/f", box.workspace / "file")

    for path in (
        *("relative/f", "absolute/f", "around/f", "deep/er/up/f"),
        *("deep/er/chain", "file"),
    ):
        found = await box.found("read", path=path)
        assert found["content"] == "inside\n"
    await box.run("write", **write_arguments("absolute/n/x"))
    assert (real / "n/x").read_text() == "x"


async def test_path_2_absolute_link_by_another_spelling(
    box: Toolbox, tmp_path: Path
) -> None:
    os.symlink(box.workspace, tmp_path / "other")
    (box.workspace / "f").write_text("inside\n")
    os.symlink(tmp_path / "other/f", box.workspace / "link")

    assert (await box.found("read", path="link"))["content"] == "inside\n"


async def test_path_2_rings_of_links_end(box: Toolbox) -> None:
    os.symlink("b", box.workspace / "a")
    os.symlink("a", box.workspace / "b")
    os.symlink("self/x", box.workspace / "self")

    for path in ("a", "a/x", "self", "self/y"):
        error = await box.fails(Refused, "read", path=path)
        assert "too many links" in error.message


async def test_path_3_workspace_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real/ws").mkdir(parents=True)
    os.symlink("real", tmp_path / "link")
    box = Toolbox(
        tmp_path / "real/ws",
        tmp_path,
        build_tools(str(tmp_path / "link/ws"), ToolSettings(), environment={}),
    )
    await box.run("write", **write_arguments("d/x"))
    os.symlink(tmp_path / "link/ws/d/x", box.workspace / "a")
    os.symlink(tmp_path / "real/ws/d/x", box.workspace / "b")

    for path in ("d/x", "a", "b"):
        assert (await box.found("read", path=path))["content"] == "x"
    assert (await box.found("list"))["files"] == ["d/x"]
    assert (await box.found("search", pattern="x"))["files"][0]["path"] == "d/x"


@pytest.mark.parametrize(
    "path",
    [
        *("~/.ssh/id_rsa", "~root/x", "$HOME/x", "${HOME}/x", "file:///etc/hostname"),
        *("%2e%2e/x", "..\\x", "C:\\x", "`id`", "*"),
    ],
)
async def test_path_4_no_hidden_expansion(box: Toolbox, path: str) -> None:
    await box.fails(NotFound, "read", path=path)

    await box.run("write", **write_arguments(path))
    assert (box.workspace / path).read_text() == "x"
    assert (await box.found("read", path=path))["content"] == "x"


async def test_names_beyond_the_system_are_errors_in_words(box: Toolbox) -> None:
    for path in ("x" * 300, "/".join(["d"] * 3000)):
        await box.fails(ToolError, "read", path=path)
    await box.fails(BadArguments, "read", path="a\ud800")
    (box.workspace / "file").write_text("x")
    error = await box.fails(ToolError, "read", path="file/x")
    assert "not a directory" in error.message


async def test_workspace_removed_and_made_again(box: Toolbox) -> None:
    (box.workspace / "a").write_text("1")
    moved = box.workspace.rename(box.workspace.parent / "moved")

    error = await box.fails(NotFound, "read", path="a")
    assert "workspace" in error.message
    await box.fails(NotFound, "write", **write_arguments("b"))
    await box.fails(NotFound, "list")
    await box.fails(NotFound, "search", pattern="x")

    box.workspace.mkdir()
    (box.workspace / "a").write_text("2")
    assert (await box.found("read", path="a"))["content"] == "2"
    assert (moved / "a").read_text() == "1"


def test_swapped_links_never_lead_outside(box: Toolbox) -> None:
    inside = box.workspace / "inside"
    inside.mkdir()
    (inside / "secret").write_text("inside\n")
    place, other = box.workspace / "place", box.workspace / "other"
    inside.rename(place)
    os.symlink(box.outside, other)
    stop = threading.Event()

    def swap() -> None:
        """Exchange a directory and a link to the outside as fast as it goes."""
        spare = box.workspace / "spare"
        try:
            for _ in range(SWAPS):
                place.rename(spare)
                while True:
                    try:
                        other.rename(place)
                        break
                    except OSError:  # a write has made the directory meanwhile
                        shutil.rmtree(place, ignore_errors=True)
                spare.rename(other)
        finally:
            stop.set()

    thread = threading.Thread(target=swap)
    thread.start()
    workspace = Workspace(str(box.workspace))
    seen = set()
    number = 0
    while not stop.is_set():
        number += 1
        try:
            with workspace.open_file("place/secret") as file:
                seen.add(file.read(0, file.size))
            workspace.create(f"place/new{number}/x", b"made")
            with workspace.open_file("place/secret", follow=False) as file:
                base = file.sha256()
            workspace.replace("place/secret", b"inside\n", base_sha256=base)
        except ToolError:
            continue
    thread.join()

    assert seen <= {b"inside\n"}
    assert number > 10
    assert [entry.name for entry in box.outside.iterdir()] == ["secret"]
    assert (box.outside / "secret").read_text() == "outside\n"
    assert box.tool_files() == []
