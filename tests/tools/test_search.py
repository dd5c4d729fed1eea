"""`search` and `list` show what is in the workspace, and nothing else."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from scv.config.settings import ToolSettings
from scv.errors import BadArguments, LimitExceeded, NotFound, Refused
from scv.host.workspace import Workspace
from scv.tools.search import SearchTool
from tests.tools.conftest import Toolbox, toolbox

pytestmark = pytest.mark.anyio
SLOW_PATTERN, SLOW_LINE = r"(a+)+$", "a" * 60 + "!\n"


@pytest.fixture(
    params=[pytest.param("ripgrep", marks=pytest.mark.needs_program("rg")), "python"],
    autouse=True,
)
def engine(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """Run each test with both engines."""
    if request.param == "python":
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return str(request.param)


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Fail a test whose search left a process behind."""
    before = set(psutil.Process().children(recursive=True))
    yield
    left = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs(left, timeout=2)
    assert alive == []


def put(box: Toolbox, name: str, content: str | bytes) -> None:
    path = box.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


async def lines(box: Toolbox, **arguments: object) -> dict[str, list[str]]:
    found = await box.found("search", **arguments)
    return {file["path"]: file["lines"] for file in found["files"]}


async def test_lines_come_with_path_and_number_in_order(box: Toolbox) -> None:
    put(box, "b.py", "x\ndef f():\n")
    put(box, "a/z.py", "def g():\n\ndef h():")
    put(box, "a.py", "nothing\n")

    call = await box.prepare("search", pattern="def ")
    assert call.risk == "read_only"
    found = await box.found("search", pattern="def ")

    assert found == {
        "files": [
            {"path": "a/z.py", "lines": ["1: def g():", "3: def h():"]},
            {"path": "b.py", "lines": ["2: def f():"]},
        ],
        "truncated": False,
        "skipped": {},
    }


async def test_nothing_found_is_said(box: Toolbox) -> None:
    put(box, "a", "x\n")

    assert (await box.found("search", pattern="y"))["note"] == "no line matches"
    assert (await box.found("list", glob="*.c"))["note"] == "no such files"


@pytest.mark.parametrize(
    ("pattern", "text", "numbers"),
    [
        ("^$", "a\n\nb\n\n", [2, 4]),
        ("^", "a\n\nb", [1, 2, 3]),
        ("$", "a\n", [1]),
        ("a$", "a\nba\r\nab\n", [1]),
        ("x", "", []),
        (r"\bfoo\b", "foo\nfoobar\na foo.\néfoo\n", [1, 3, 4]),
        (r"\w\W", "a-\naé\nab\n", [1, 2]),
        (r"a.b", "a\nb\na中b\n", [3]),
        (r"[^a]", "a\n中\naa\n", [2]),
        (r"[^\n]b", "a\nb\nab\n", [3]),
        (r"\s", "a b\nab\na\tb\n", [1, 3]),
        ("(?i)straße", "STRAßE\nstraße\nstrasse\n", [1, 2]),
        (r"(?=a)a", "a\nb\n", [1]),
        (r"(.)\1", "ab\nabb\n", [2]),
        (r"\Aa\Z", "a\naa\n", [1]),
        (r"\ud800|\udc80", "a\n", []),
        (r"x\udc80", "x\n", []),
        ("a\\nb", "a\nb\n", []),
        (r"é(?=a)", "éa\nÉa\n", [1]),
        (r"foo(?=bar)", "foobar\nfoo\n", [1]),
        (r"a{2,3}(b|c)+?", "aab\nab\n", [1]),
        (r"[\]\[\-&~|^.]", "]\n[\n-\n&\n~\n|\n^\n.\na\n", list(range(1, 9))),
        ("{", "{\n}\n", [1]),
        (r"a\.b\/c\"\'", "a.b/c\"'\n", [1]),
        ("--files", "--files\n", [1]),
    ],
)
async def test_patterns(
    box: Toolbox, pattern: str, text: str, numbers: list[int]
) -> None:
    put(box, "f", text)

    found = await lines(box, pattern=pattern)

    got = [int(line.split(":")[0]) for line in found.get("f", [])]
    assert got == numbers


async def test_letter_case(box: Toolbox) -> None:
    put(box, "f", "Error\nERROR é\nerror\nÉ\n")

    assert await lines(box, pattern="error") == {"f": ["3: error"]}
    found = await lines(box, pattern="error", ignore_case=True)
    assert found == {"f": ["1: Error", "2: ERROR é", "3: error"]}
    found = await lines(box, pattern="[é-ê]", ignore_case=True)
    assert found == {"f": ["2: ERROR é", "4: É"]}


@pytest.mark.parametrize(
    "pattern",
    ["(", "a{3,2}", "[z-a]", "*a", r"\p{L}", "[[:alpha:]]", "", "a" * 3000, "\ud800"],
)
async def test_patterns_that_are_none_are_refused_with_a_reason(
    box: Toolbox, pattern: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        await box.prepare("search", pattern=pattern)

    assert caught.value.field == "pattern"


async def test_nested_pattern_is_refused_not_a_crash(box: Toolbox) -> None:
    with pytest.raises(BadArguments):
        await box.prepare("search", pattern="(" * 900 + ")" * 900)


async def test_context_lines_are_shown_once(box: Toolbox) -> None:
    put(box, "f", "".join(f"{n}\n" for n in range(1, 21)))

    found = await lines(box, pattern="^(3|5|15)$", context=2)

    assert found["f"] == [
        *("1- 1", "2- 2", "3: 3", "4- 4", "5: 5", "6- 6", "7- 7"),
        *("13- 13", "14- 14", "15: 15", "16- 16", "17- 17"),
    ]


async def test_gitignore_is_honoured(box: Toolbox) -> None:
    ignore = "# build\n*.log\n/top\nbuild/\n!keep.log\ndoc/*.txt\n**/deep/x\n\\!odd\n"
    put(box, ".gitignore", ignore)
    put(box, "sub/.gitignore", "!again.log\nlocal\n")
    for name in (
        *("a.log", "keep.log", "top", "sub/top", "build/x", "sub/build/x", "sub/a.log"),
        *("sub/again.log", "sub/local", "local", "doc/a.txt", "doc/b/a.txt", "!odd"),
        *("one/deep/x", "deep/x", "deep/y", "build.py", "sub/keep.log/c", ".hidden"),
        *(".git/config", "sub/.git"),
    ):
        put(box, name, "here\n")
    kept = [
        *(".gitignore", ".hidden", "build.py", "deep/y", "doc/b/a.txt", "keep.log"),
        *("local", "sub/.gitignore", "sub/a.log", "sub/again.log", "sub/build/x"),
        *("sub/keep.log/c", "sub/top"),
    ]

    assert (await box.found("list"))["files"] == kept
    found = await lines(box, pattern="^here")
    assert list(found) == [path for path in kept if ".gitignore" not in path]


async def test_rules_above_the_named_path_hold(box: Toolbox) -> None:
    put(box, ".gitignore", "*.log\nout/\n")
    put(box, "a/.gitignore", "*.tmp\n/b/gone\n")
    for name in ("a/b/x.log", "a/b/x.tmp", "a/b/x.py", "a/b/gone", "a/b/out/y", "c.py"):
        put(box, name, "here\n")

    assert (await box.found("list", path="a/b"))["files"] == ["a/b/x.py"]
    assert (await box.found("list", path="a"))["files"] == [
        "a/.gitignore",
        "a/b/x.py",
    ]
    assert list(await lines(box, pattern="here", path="a/b")) == ["a/b/x.py"]
    ignored = await lines(box, pattern="here", path="a/b/x.log")
    assert list(ignored) == ["a/b/x.log"]  # a file named in so many words


async def test_globs_choose_below_the_path(box: Toolbox) -> None:
    put(box, ".gitignore", "*.pyc\n")
    for name in ("a.py", "a.pyc", "src/b.py", "src/c/d.ts", "src/c/e.tsx", "src/f.PY"):
        put(box, name, "here\n")

    for glob, path, expected in (
        ("*.py", None, ["a.py", "src/b.py"]),
        ("*.pyc", None, []),
        ("src/*", None, ["src/b.py", "src/f.PY"]),
        ("src/**", None, ["src/b.py", "src/c/d.ts", "src/c/e.tsx", "src/f.PY"]),
        ("**/*.{ts,tsx}", None, ["src/c/d.ts", "src/c/e.tsx"]),
        ("c/?.ts", "src", ["src/c/d.ts"]),
        ("[ab].py", None, ["a.py", "src/b.py"]),
        ("[!a].py", None, ["src/b.py"]),
        ("./src/*.py", None, ["src/b.py"]),
        ("/a.py", None, ["a.py"]),
        ("src/", None, ["src/b.py", "src/c/d.ts", "src/c/e.tsx", "src/f.PY"]),
    ):
        arguments = {"glob": glob, **({"path": path} if path else {})}
        assert (await box.found("list", **arguments))["files"] == expected
        assert list(await lines(box, pattern="here", **arguments)) == expected

    for glob in ("!*.py", "a[", "{a", "../x", "a\\"):
        await box.fails(BadArguments, "list", glob=glob)
        await box.fails(BadArguments, "search", pattern="x", glob=glob)


async def test_binary_and_secret_like_files_are_skipped_and_counted(
    box: Toolbox,
) -> None:
    put(box, "a.txt", "here\n")
    put(box, "image", b"\x89PNG\0\0here\n")
    put(box, "latin", b"caf\xe9 here\n")
    put(box, "binary-without-match", b"\0\n")
    for name in (".env", "conf/Credentials.json", ".ssh/known", "x.pem"):
        put(box, name, "here\n")

    found = await box.found("search", pattern="here")
    assert [file["path"] for file in found["files"]] == ["a.txt"]
    assert found["skipped"] == {"secret_like": 4, "binary": 2}
    found = await box.found("list")
    assert found["files"] == ["a.txt", "binary-without-match", "image", "latin"]
    assert found["skipped"] == {"secret_like": 4}
    await box.fails(Refused, "search", pattern="here", path=".env")
    await box.fails(Refused, "search", pattern="here", path=".ssh")
    os.symlink(".env", box.workspace / "link")
    await box.fails(Refused, "search", pattern="here", path="link")


async def test_count_of_secret_like_files_tells_nothing_of_their_content(
    box: Toolbox,
) -> None:
    put(box, ".env", "KEY=hunter2\n")

    right = await box.found("search", pattern="^KEY=h")
    wrong = await box.found("search", pattern="^KEY=x")

    assert right == wrong


async def test_links_are_not_followed(box: Toolbox) -> None:
    put(box, "real/f", "here\n")
    os.symlink(box.outside, box.workspace / "out")
    os.symlink("real", box.workspace / "in")
    os.symlink("real/f", box.workspace / "file")
    os.symlink(".", box.workspace / "real/loop")
    os.mkfifo(box.workspace / "pipe")

    assert (await box.found("list"))["files"] == ["real/f"]
    assert list(await lines(box, pattern="here|outside")) == ["real/f"]
    assert list(await lines(box, pattern="here", path="in")) == ["real/f"]


async def test_long_output_is_cut_and_says_so(tmp_path: Path) -> None:
    box = toolbox(tmp_path, output_limit_bytes=4000)
    for number in range(100):
        put(box, f"{number:03}", "here\n" * 50)
    put(box, "0", "here" + "中" * 5000 + "\n")

    result = await box.run("search", pattern="here")
    assert result.truncated
    assert len(result.output.encode()) <= 4000
    assert "narrow" in result.output
    assert "… (cut)" in result.output
    result = await box.run("list")
    assert not result.truncated


async def test_more_matches_than_are_collected_come_in_order(box: Toolbox) -> None:
    for number in range(30):
        put(box, f"d{number % 3}/{number:03}", "here\n" * 400)

    found = await box.found("search", pattern="here")

    assert found["truncated"] is True
    assert [file["path"] for file in found["files"]] == ["d0/000", "d0/003"]
    assert sum(len(file["lines"]) for file in found["files"]) == 500


async def test_long_list_is_cut_and_counts(box: Toolbox) -> None:
    for number in range(1100):
        put(box, f"{number:04}", "")

    found = await box.found("list")

    assert found["truncated"] is True
    assert found["total"] == 1100
    assert found["files"] == [f"{number:04}" for number in range(1000)]


async def test_paths_that_are_no_place_to_search(box: Toolbox) -> None:
    put(box, "f", "x\n")

    await box.fails(NotFound, "search", pattern="x", path="no")
    await box.fails(NotFound, "list", path="no/where")
    await box.fails(Refused, "list", path="f")
    await box.fails(BadArguments, "list", path="..")
    assert (await box.found("list", path=""))["files"] == ["f"]
    assert (await box.found("list", path="."))["files"] == ["f"]


async def test_names_that_look_like_options_or_break_lines(box: Toolbox) -> None:
    for name in ("-x", "--files", "a\nb", "a:1:b", "中 文"):
        put(box, name, "here\n")
    (box.workspace / os.fsdecode(b"\xff")).write_text("here\n")

    found = await lines(box, pattern="here")
    names = ["--files", "-x", "a\nb", "a:1:b", "中 文"]
    assert list(found) == names
    assert (await box.found("list"))["files"] == names
    assert list(await lines(box, pattern="here", path="--files")) == ["--files"]


async def test_ripgrep_in_the_workspace_is_never_run(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = box.workspace / "bin/rg"
    put(box, "bin/rg", f"#!/bin/sh\ntouch {box.outside}/owned\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:bin:.")
    monkeypatch.chdir(box.workspace)

    assert "bin/rg" in await lines(box, pattern="touch")
    assert not (box.outside / "owned").exists()


async def test_slow_pattern_is_stopped_at_the_deadline(
    box: Toolbox, engine: str
) -> None:
    put(box, "f", SLOW_LINE)
    tool = SearchTool(Workspace(str(box.workspace)), ToolSettings(), deadline_seconds=1)
    pattern = SLOW_PATTERN if engine == "python" else r"(?=a)(a+)+$"
    call = await tool.prepare({"pattern": pattern})

    start = time.monotonic()
    with pytest.raises(LimitExceeded, match="took longer"):
        await tool.run(call, lambda text: None)

    assert time.monotonic() - start < 5


async def test_cancel_stops_a_slow_pattern_at_once(box: Toolbox) -> None:
    put(box, "f", SLOW_LINE)
    tool = box.tools["search"]
    call = await box.prepare("search", pattern=r"(?=a)(a+)+$")

    with anyio.move_on_after(0.5) as scope:
        await tool.run(call, lambda text: None)
    end = anyio.current_time()

    assert scope.cancelled_caught
    assert end - scope.deadline < 0.5


async def test_links_swapped_during_a_search_show_nothing_outside(
    box: Toolbox,
) -> None:
    put(box, "inside/secret", "inside\n")
    for number in range(200):
        put(box, f"more/{number}", "inside\n")
    place, other = box.workspace / "place", box.workspace / "other"
    (box.workspace / "inside").rename(place)
    os.symlink(box.outside, other)
    swapped = {f"{name}/secret" for name in ("place", "other", "spare")}
    steady = {f"more/{number}" for number in range(200)}
    done = False

    def swap() -> None:
        spare = box.workspace / "spare"
        while not done:
            for _ in range(50):
                place.rename(spare)
                other.rename(place)
                spare.rename(other)

    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, swap)
        try:
            for _ in range(10):
                found = await box.run("search", pattern="inside|outside")
                assert "outside" not in found.output
                names = await box.found("list")
                assert set(names["files"]) - swapped == steady
        finally:
            done = True


def test_ripgrep_is_what_these_tests_think(engine: str) -> None:
    assert (shutil.which("rg") is not None) == (engine == "ripgrep")
