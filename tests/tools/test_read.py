"""`read` gives exact text, says where it is, and never hands out something else."""

import hashlib
import json
import os
import socket
from pathlib import Path

import anyio
import pytest

from scv.config.settings import ToolSettings
from scv.errors import BadArguments, LimitExceeded, NotFound, Refused, ToolError
from scv.tools.registry import build_tools
from tests.tools.conftest import Toolbox, toolbox

pytestmark = pytest.mark.anyio


async def test_whole_small_file_comes_with_its_hash(box: Toolbox) -> None:
    (box.workspace / "a.txt").write_bytes(b"one\ntwo\r\n")

    found = await box.found("read", path="a.txt")

    assert found == {
        "path": "a.txt",
        "total_bytes": 9,
        "sha256": hashlib.sha256(b"one\ntwo\r\n").hexdigest(),
        "bom": False,
        "source": "disk",
        "offset": 0,
        "truncated": False,
        "next_offset": None,
        "content": "one\ntwo\r\n",
    }


async def test_read_1_named_pipe_is_refused_at_once(box: Toolbox) -> None:
    os.mkfifo(box.workspace / "log.pipe")

    with anyio.fail_after(5):
        error = await box.fails(Refused, "read", path="log.pipe")

    assert "not a regular file (FIFO)" in error.message


async def test_read_1_other_special_files_are_refused(box: Toolbox) -> None:
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(box.workspace)  # the path of a socket may not be long
    try:
        listener.bind("s.sock")
    finally:
        os.chdir(here)
    with listener:
        error = await box.fails(Refused, "read", path="s.sock")
    assert "socket" in error.message

    (box.workspace / "folder").mkdir()
    error = await box.fails(Refused, "read", path="folder")
    assert "directory" in error.message
    assert "`list`" in error.message

    os.symlink("/dev/zero", box.workspace / "zero")
    await box.fails(Refused, "read", path="zero")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files")
async def test_read_1_device_is_refused(box: Toolbox) -> None:
    try:
        os.mknod(box.workspace / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container may not make device files")

    error = await box.fails(Refused, "read", path="zero")

    assert "character device" in error.message


async def test_read_2_character_cut_at_the_default_limit(box: Toolbox) -> None:
    (box.workspace / "zh.txt").write_text("中" * 40_000)

    found = await box.found("read", path="zh.txt")

    assert found["total_bytes"] == 120_000
    assert found["truncated"] is True
    assert found["next_offset"] == len(found["content"].encode())
    assert 65_533 <= found["next_offset"] <= 65_536
    assert set(found["content"]) == {"中"}

    text, offset = "", 0
    while offset is not None:
        found = await box.found("read", path="zh.txt", offset=offset)
        text += found["content"]
        offset = found["next_offset"]
    assert text == "中" * 40_000


async def test_read_2_limit_of_the_model_inside_a_character(box: Toolbox) -> None:
    (box.workspace / "zh.txt").write_text("中" * 40_000)

    error = await box.fails(BadArguments, "read", path="zh.txt", limit=1000)
    assert error.field == "limit"  # type: ignore[attr-defined]
    assert "999 or 1002" in error.message

    error = await box.fails(BadArguments, "read", path="zh.txt", limit=2)
    assert "send 3 instead" in error.message
    error = await box.fails(BadArguments, "read", path="zh.txt", offset=4, limit=2)
    assert "3 and 6" in error.message
    found = await box.found("read", path="zh.txt", offset=3, limit=6)
    assert found["content"] == "中中"


async def test_read_2_every_limit_of_ours_falls_on_a_boundary(tmp_path: Path) -> None:
    text = "aé中🍸" * 3
    for most in range(1, len(text.encode()) + 2):
        root = tmp_path / str(most)
        root.mkdir()
        box = toolbox(root, max_read_bytes=most)
        (box.workspace / "a").write_text(text)
        got, offset = "", 0
        while offset is not None:
            found = await box.found("read", path="a", offset=offset, limit=1000)
            assert found["content"]
            got += found["content"]
            offset = found["next_offset"]
        assert got == text


async def test_read_3_latin_1_file(box: Toolbox) -> None:
    (box.workspace / "l1.txt").write_bytes(b"caf\xe9\n")

    error = await box.fails(ToolError, "read", path="l1.txt")
    assert "not UTF-8" in error.message
    assert "0xe9 at offset 3" in error.message
    error = await box.fails(ToolError, "read", path="l1.txt", offset=1, limit=4)
    assert "at offset 3" in error.message
    assert "caf" not in error.message

    found = await box.found("read", path="l1.txt", limit=3)
    assert found["content"] == "caf"


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"ab\xe4\xb8", 2),  # ends inside a character
        (b"\x80abc", 0),
        (b"a\xed\xa0\x80b", 1),  # a surrogate is no UTF-8
        (b"\xff\xfea\x00", 0),
        (b"a\xf4\x90\x80\x80", 1),
    ],
)
async def test_read_3_first_bad_byte_is_named(
    box: Toolbox, data: bytes, offset: int
) -> None:
    (box.workspace / "bad").write_bytes(data)

    error = await box.fails(ToolError, "read", path="bad")

    assert f"at offset {offset}." in error.message


async def test_read_4_empty_file_says_so(box: Toolbox) -> None:
    (box.workspace / "empty").touch()

    for arguments in ({}, {"start_line": 1}, {"offset": 0, "limit": 10}):
        found = await box.found("read", path="empty", **arguments)

        assert found["total_bytes"] == 0
        assert found["content"] == ""
        assert "empty" in found["note"]


async def test_read_5_byte_order_mark_is_reported_and_can_be_kept(box: Toolbox) -> None:
    path = box.workspace / "bom.py"
    path.write_bytes(b"\xef\xbb\xbfx=1\n")

    found = await box.found("read", path="bom.py")
    assert found["bom"] is True
    assert found["content"] == "x=1\n"
    assert found["total_bytes"] == 7
    later = await box.found("read", path="bom.py", offset=3)
    assert later["content"] == "x=1\n"
    assert later["bom"] is True

    await box.run("edit", path="bom.py", edits=[{"old": "x=1", "new": "x=2"}])
    assert path.read_bytes() == b"\xef\xbb\xbfx=2\n"
    await box.run("write", path="bom.py", content="\ufeffx=3\n", mode="replace")
    assert path.read_bytes() == b"\xef\xbb\xbfx=3\n"
    dropped = await box.found("write", path="bom.py", content="x=4\n", mode="replace")
    assert "byte-order mark" in dropped["note"]


async def test_read_6_file_that_grows(box: Toolbox) -> None:
    path = box.workspace / "grow.log"
    path.write_bytes(b"a" * 100_000)

    async def append(scope: anyio.CancelScope) -> None:
        with scope:
            async with await anyio.open_file(path, "ab", buffering=0) as file:
                while True:
                    await file.write(b"b" * 10_000)

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(append, scope)
        for _ in range(20):
            with anyio.fail_after(5):
                found = await box.found("read", path="grow.log")
            assert found["total_bytes"] >= 100_000
            size = len(found["content"])
            assert size <= found["total_bytes"]
            assert found["next_offset"] == size
            tail = await box.found("read", path="grow.log", offset=100_000)
            assert 100_000 + len(tail["content"]) <= tail["total_bytes"]
        scope.cancel()


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "config/.env.production", "id_rsa", ".ssh/config"),
        *("credentials.json", ".ENV", "ID_RSA", ".Ssh/Config", "CREDENTIALS.JSON"),
        *("a/My_Credential_Store/x.txt", "tls/server.PEM", "tls/server.key"),
        *("my_PRIVATE_KEY.txt", "id_ed25519", ".Env.Local"),
    ],
)
async def test_read_7_secret_looking_names_need_approval(
    box: Toolbox, path: str
) -> None:
    (box.workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (box.workspace / path).write_text("x")

    assert (await box.prepare("read", path=path)).risk == "filesystem"
    os.symlink(path, box.workspace / "innocent.txt")
    assert (await box.prepare("read", path="innocent.txt")).risk == "filesystem"


@pytest.mark.parametrize(
    "path", ["a.py", "environment.md", "keyboard.py", "src/env", "id_rsa.pub", "pem"]
)
async def test_read_7_other_names_do_not(box: Toolbox, path: str) -> None:
    assert (await box.prepare("read", path=path)).risk == "read_only"


async def test_lines_instead_of_bytes(box: Toolbox) -> None:
    (box.workspace / "a").write_text("one\ntwo\nthree\nfour")

    found = await box.found("read", path="a", start_line=2, line_count=2)
    assert found["content"] == "two\nthree\n"
    assert (found["start_line"], found["end_line"], found["total_lines"]) == (2, 3, 4)
    assert (found["offset"], found["next_offset"]) == (4, 14)
    assert found["truncated"] is True
    last = await box.found("read", path="a", start_line=4)
    assert last["content"] == "four"
    assert last["next_offset"] is None

    error = await box.fails(BadArguments, "read", path="a", start_line=5)
    assert "4 lines" in error.message
    await box.fails(BadArguments, "read", path="a", start_line=1, limit=5)
    await box.fails(BadArguments, "read", path="a", offset=0, line_count=5)


async def test_lines_are_cut_at_a_line_and_a_long_line_at_a_character(
    tmp_path: Path,
) -> None:
    box = toolbox(tmp_path, output_limit_bytes=10)
    (box.workspace / "a").write_text("123\n456\n789\n" + "中" * 9)

    found = await box.found("read", path="a", start_line=1)
    assert found["content"] == "123\n456\n"
    assert found["next_offset"] == 8
    found = await box.found("read", path="a", start_line=4)
    assert found["content"] == "中" * 3


async def test_range_beyond_the_end_names_the_size(box: Toolbox) -> None:
    (box.workspace / "a").write_text("12345")

    error = await box.fails(BadArguments, "read", path="a", offset=6)
    assert "5 bytes" in error.message
    found = await box.found("read", path="a", offset=5)
    assert found["content"] == ""
    assert found["next_offset"] is None


async def test_hash_of_a_huge_file_is_left_out_and_said(box: Toolbox) -> None:
    (box.workspace / "huge").write_bytes(b"start\n")
    os.truncate(box.workspace / "huge", (64 << 20) + 1)

    found = await box.found("read", path="huge", limit=6)
    assert found["content"] == "start\n"
    assert found["sha256"] is None
    assert "sha256" in found["note"]
    await box.fails(LimitExceeded, "read", path="huge", start_line=1)


async def test_handle_reads_a_result_that_was_cut(box: Toolbox) -> None:
    stored = ("é" * 50_000).encode()

    async def read_blob(handle: str) -> bytes | None:
        return stored if handle == "b_1" else None

    tool = build_tools(
        str(box.workspace), ToolSettings(), environment={}, read_blob=read_blob
    )["read"]

    async def read(**arguments: object) -> dict[str, object]:
        call = await tool.prepare(dict(arguments))
        assert call.risk == "read_only"
        return json.loads((await tool.run(call, lambda text: None)).output)  # type: ignore[no-any-return]

    first = await read(handle="b_1")
    rest = await read(handle="b_1", offset=first["next_offset"])
    assert str(first["content"]) + str(rest["content"]) == stored.decode()
    assert (await read(handle="b_1", offset=99_996, limit=2))["content"] == "é"
    with pytest.raises(NotFound):
        await read(handle="b_2")
    with pytest.raises(BadArguments):
        await read(handle="b_1", path="a")
    with pytest.raises(BadArguments):
        await read()
