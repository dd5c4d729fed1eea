"""`write` puts exactly the given bytes in place, at once, or changes nothing."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from scv.errors import BadArguments, LimitExceeded, NotFound, Refused, Stale, ToolError
from scv.host.atomic import remove_stray_files
from tests.tools.conftest import Toolbox, toolbox

pytestmark = pytest.mark.anyio


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def apply_patch(patch: str, directory: Path) -> None:
    subprocess.run(
        ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"],
        cwd=directory,
        input=patch.encode(),
        check=True,
        env={"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(directory)},
    )


@pytest.fixture
def umask() -> Iterator[None]:
    """Put the umask back."""
    old = os.umask(0o022)
    yield
    os.umask(old)


async def test_result_names_path_size_and_hash(box: Toolbox) -> None:
    found = await box.found("write", path="a/b.txt", content="hé", mode="create")

    assert found == {"path": "a/b.txt", "bytes": 3, "sha256": sha256("hé".encode())}
    assert (box.workspace / "a/b.txt").read_text() == "hé"


async def test_question_shows_the_change(box: Toolbox) -> None:
    (box.workspace / "a").write_text("one\ntwo\nthree")

    call = await box.prepare(
        "write", path="./a", content="one\n2\nthree", mode="replace"
    )

    assert call.risk == "filesystem"
    assert call.arguments == {
        "path": "a",
        "content": "one\n2\nthree",
        "mode": "replace",
    }
    base = sha256(b"one\ntwo\nthree")
    (target,) = call.targets
    assert (target.path, target.base_sha256, target.mode) == ("a", base, "replace")
    assert call.subject["type"] == "change"
    (file,) = call.subject["files"]
    assert (file["path"], file["op"], file["baseSha256"]) == ("a", "replace", base)
    assert file["newSha256"] == sha256(b"one\n2\nthree")
    assert file["hunks"] == [
        {
            "id": "h1",
            "header": "@@ -1,3 +1,3 @@",
            "lines": [
                *(" one", "-two", "+2", " three"),
                "\\ No newline at end of file",
            ],
        }
    ]
    assert file["patch"].startswith("--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n")
    assert (box.workspace / "a").read_text() == "one\ntwo\nthree"


@pytest.mark.needs_program("git")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "a\n"),
        ("a\n", ""),
        ("a", "a\n"),
        ("a\n", "a"),
        ("a\r\nb\r\n", "a\nb\r\n"),
        ("".join(f"{n}\n" for n in range(50)), "".join(f"{n}\n" for n in range(1, 51))),
        ("x\n" * 30, "x\n" * 3 + "y\n" + "x\n" * 20 + "z"),
        ("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n2\n3\n4\n5\n6\n7\n8\n0\n"),
        ("1\n2\n3\n4\n5\n6\n7\n8\n", "0\n2\n3\n4\n5\n6\n7\n0\n"),
    ],
)
async def test_patch_is_one_that_patch_applies(
    box: Toolbox, tmp_path: Path, old: str, new: str
) -> None:
    (box.workspace / "f").write_bytes(old.encode())
    (tmp_path / "f").write_bytes(old.encode())

    result = await box.run("write", path="f", content=new, mode="replace")

    assert result.diff is not None
    apply_patch(result.diff, tmp_path)
    assert (tmp_path / "f").read_bytes() == new.encode()


async def test_write_1_executable_bit(box: Toolbox) -> None:
    path = box.workspace / "run.sh"
    path.write_text("#!/bin/sh\n")
    for mode in (0o755, 0o640, 0o4755):
        path.chmod(mode)

        await box.run("write", path="run.sh", content=f"{mode}", mode="replace")

        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert path.read_text() == f"{mode}"


async def test_write_2_mode_of_a_new_file(box: Toolbox, umask: None) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        os.umask(mask)

        await box.run("write", path=f"{mask}.txt", content="x", mode="create")

        assert stat.S_IMODE((box.workspace / f"{mask}.txt").stat().st_mode) == mode


async def test_write_3_target_is_a_symlink_inside(box: Toolbox) -> None:
    real, link = box.workspace / "d/real.txt", box.workspace / "link.txt"
    real.parent.mkdir()
    real.write_text("old\n")
    link.symlink_to("d/real.txt")

    call = await box.prepare("write", path="link.txt", content="new\n", mode="replace")
    assert call.targets[0].path == "d/real.txt"
    assert "link" in call.summary
    await box.run("write", path="link.txt", content="new\n", mode="replace")
    await box.run("edit", path="link.txt", edits=[{"old": "new", "new": "newer"}])

    assert os.readlink(link) == "d/real.txt"
    assert real.read_text() == "newer\n"


async def test_write_3_create_does_not_follow_a_dangling_link_out(box: Toolbox) -> None:
    (box.workspace / "dangling").symlink_to(box.outside / "new")
    await box.fails(Refused, "write", path="dangling", content="x", mode="create")
    assert not (box.outside / "new").exists()

    (box.workspace / "inside").symlink_to("target")
    await box.run("write", path="inside", content="x", mode="create")
    assert (box.workspace / "target").read_text() == "x"
    assert (box.workspace / "inside").is_symlink()


async def test_write_4_read_only_file(box: Toolbox) -> None:
    path = box.workspace / "a"
    path.write_text("old")
    path.chmod(0o444)

    for tool, arguments in (
        ("write", {"content": "new", "mode": "replace"}),
        ("edit", {"edits": [{"old": "old", "new": "new"}]}),
    ):
        with pytest.raises(Refused) as caught:
            await box.prepare(tool, path="a", **arguments)
        assert "read-only" in caught.value.message
    assert path.read_text() == "old"


@pytest.fixture
def small_disk(box: Toolbox) -> Iterator[Toolbox]:
    """Put the workspace on a file system of 64 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(box.workspace)]
    if (
        os.geteuid()
        or subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode
    ):
        pytest.skip("only root, where it may mount, makes a small file system")
    yield box
    subprocess.run(["umount", str(box.workspace)], check=True)


async def test_write_5_disk_full(small_disk: Toolbox) -> None:
    box = small_disk
    path = box.workspace / "a"
    path.write_bytes(b"o" * 30_000)

    for where in (
        {"path": "a", "mode": "replace"},
        {"path": "b/c", "mode": "create"},
    ):
        error = await box.fails(ToolError, "write", content="n" * 100_000, **where)
        assert "no space left" in error.message

    assert path.read_bytes() == b"o" * 30_000
    assert box.tool_files() == []
    await box.run("write", path="small", content="x", mode="create")


WRITE_UNDER_A_SIZE_LIMIT = """
import resource, signal, sys, anyio
from scv.config.settings import ToolSettings
from scv.errors import ToolError
from scv.tools.registry import build_tools

async def main():
    tool = build_tools(sys.argv[1], ToolSettings(), environment={})["write"]
    arguments = {"path": "a", "content": "n" * 100_000, "mode": "replace"}
    call = await tool.prepare(arguments)
    try:
        await tool.run(call, lambda text: None)
    except ToolError as error:
        print(error.message)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
anyio.run(main)
"""


def test_write_5_file_size_limit_of_the_user(box: Toolbox) -> None:
    path = box.workspace / "a"
    path.write_bytes(b"o" * 30_000)

    done = subprocess.run(
        [sys.executable, "-c", WRITE_UNDER_A_SIZE_LIMIT, str(box.workspace)],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert "file too large" in done.stdout
    assert path.read_bytes() == b"o" * 30_000
    assert box.tool_files() == []


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "a\nb\n", "a\rb", "\ufeffx\n", "\0"])
async def test_write_6_line_ends_byte_for_byte(box: Toolbox, content: str) -> None:
    await box.run("write", path="a", content=content, mode="create")
    assert (box.workspace / "a").read_bytes() == content.encode()

    await box.run("write", path="a", content=content * 2, mode="replace")
    assert (box.workspace / "a").read_bytes() == content.encode() * 2


async def test_write_7_stale_hash(box: Toolbox) -> None:
    path = box.workspace / "a"
    path.write_text("first\n")
    seen = (await box.found("read", path="a"))["sha256"]
    path.write_text("the user's\n")
    now = sha256(b"the user's\n")

    for tool, arguments in (
        ("write", {"content": "mine\n", "mode": "replace"}),
        ("edit", {"edits": [{"old": "user", "new": "model"}]}),
    ):
        with pytest.raises(Stale) as caught:
            await box.prepare(tool, path="a", expected_sha256=seen, **arguments)
        assert caught.value.found == now
        assert now in caught.value.message

    assert path.read_text() == "the user's\n"
    await box.run(
        *("write",),
        path="a",
        content="mine\n",
        mode="replace",
        expected_sha256=now.upper(),
    )
    path.unlink()
    error = await box.fails(
        Stale, "write", path="a", content="", mode="replace", expected_sha256=now
    )
    assert error.found is None  # type: ignore[attr-defined]


async def test_write_7_change_between_question_and_run(box: Toolbox) -> None:
    path = box.workspace / "a"
    path.write_text("old\n")
    tool = box.tools["write"]
    call = await box.prepare("write", path="a", content="new\n", mode="replace")
    path.write_text("the user's\n")

    with pytest.raises(Stale):
        await tool.run(call, lambda text: None)
    assert path.read_text() == "the user's\n"

    call = await box.prepare("write", path="a", content="new\n", mode="replace")
    path.unlink()
    path.symlink_to(box.outside / "secret")
    with pytest.raises(Refused):
        await tool.run(call, lambda text: None)
    assert (box.outside / "secret").read_text() == "outside\n"


async def test_write_8_create_on_existing_and_replace_on_missing(box: Toolbox) -> None:
    (box.workspace / "a").write_text("old")

    error = await box.fails(Refused, "write", path="a", content="x", mode="create")
    assert "exists" in error.message
    error = await box.fails(NotFound, "write", path="b", content="x", mode="replace")
    assert "does not exist" in error.message
    assert (box.workspace / "a").read_text() == "old"
    assert not (box.workspace / "b").exists()


async def test_write_8_exactly_one_of_two_creates_wins(box: Toolbox) -> None:
    tool = box.tools["write"]
    for number in range(50):
        calls = [
            await box.prepare("write", path=f"{number}", content=who, mode="create")
            for who in ("one", "two")
        ]
        won: list[str] = []

        async def create(call: Any, won: list[str] = won) -> None:
            try:
                await tool.run(call, lambda text: None)
            except Refused:
                return
            won.append(call.arguments["content"])

        async with anyio.create_task_group() as group:
            for call in calls:
                group.start_soon(create, call)

        assert len(won) == 1
        assert (box.workspace / f"{number}").read_text() == won[0]
    assert box.tool_files() == []


async def test_write_9_surrogate_pairs_in_arguments(box: Toolbox) -> None:
    arguments = json.loads(
        '{"path": "a", "content": "\\ud83c\\udf78", "mode": "create"}'
    )
    await box.run("write", **arguments)
    assert (box.workspace / "a").read_bytes() == b"\xf0\x9f\x8d\xb8"

    for half in ("\ud83c", "x\udf78"):
        error = await box.fails(
            BadArguments, "write", path="b", content=half, mode="create"
        )
        assert error.field == "content"  # type: ignore[attr-defined]
    assert not (box.workspace / "b").exists()


async def test_write_10_leftovers_of_a_crash_are_removed(box: Toolbox) -> None:
    (box.workspace / "d").mkdir()
    stray = box.workspace / "d/.scv-0123456789ab.tmp"
    stray.write_text("half")
    mine = box.workspace / "d/.scv-mine.tmp"
    mine.write_text("a file of the user")

    assert remove_stray_files(str(box.workspace)) == 1

    assert not stray.exists()
    assert mine.exists()


async def test_write_10_files_being_written_are_left_alone(box: Toolbox) -> None:
    for number in range(30):
        path = f"{number}"

        async def clean() -> None:
            await anyio.to_thread.run_sync(remove_stray_files, str(box.workspace))

        async with anyio.create_task_group() as group:
            group.start_soon(clean)
            await box.run("write", path=path, content="x" * 100_000, mode="create")

        assert (box.workspace / path).stat().st_size == 100_000
    assert box.tool_files() == []


async def test_limit_is_named(tmp_path: Path) -> None:
    box = toolbox(tmp_path, max_write_bytes=10)

    error = await box.fails(
        LimitExceeded, "write", path="a", content="é" * 6, mode="create"
    )

    assert "12 bytes" in error.message
    assert "max_write_bytes" in error.message
    (box.workspace / "a").write_text("123456789")
    edits = [{"old": "9", "new": "9ab"}]
    await box.fails(LimitExceeded, "edit", path="a", edits=edits)


async def test_hard_links_are_mentioned(box: Toolbox) -> None:
    (box.workspace / "a").write_text("old")
    os.link(box.workspace / "a", box.workspace / "b")

    found = await box.found("write", path="a", content="new", mode="replace")

    assert "hard links" in found["note"]
    assert (box.workspace / "b").read_text() == "old"


async def test_special_files_are_not_replaced(box: Toolbox) -> None:
    os.mkfifo(box.workspace / "pipe")
    (box.workspace / "d").mkdir()

    for path in ("pipe", "d"):
        for mode in ("replace", "create"):
            await box.fails(Refused, "write", path=path, content="x", mode=mode)


async def test_large_rewrite_is_compared_in_reasonable_time(box: Toolbox) -> None:
    old = "".join(f"line {n % 7} of {n * 7919 % 10007}\n" for n in range(30_000))
    new = "".join(f"line {n % 5} of {n * 6353 % 10007}\n" for n in range(30_000))
    (box.workspace / "a").write_text(old)

    with anyio.fail_after(10):
        await box.run("write", path="a", content=new, mode="replace")


async def test_binary_file_can_be_replaced_and_the_question_says_what_it_was(
    box: Toolbox,
) -> None:
    (box.workspace / "a").write_bytes(b"\xff\xfe\0")

    call = await box.prepare("write", path="a", content="text\n", mode="replace")
    assert "not UTF-8" in call.summary
    await box.run("write", path="a", content="text\n", mode="replace")
    assert (box.workspace / "a").read_bytes() == b"text\n"
