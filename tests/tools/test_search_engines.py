"""ripgrep and Python give the same answer, over trees and patterns made by chance."""

import random
import shutil
from pathlib import Path

import pytest

from scv.errors import BadArguments
from tests.tools.conftest import Toolbox, toolbox

pytestmark = [pytest.mark.anyio, pytest.mark.needs_program("rg")]
TREES, QUESTIONS = 6, 8
NAMES = ["a", "b", "src", "x.py", "y.ts", "Z.PY", ".env", "e.log", "é", "k.key", "a b"]
WORDS = [
    "foo",
    "Foo",
    "bar",
    "x1",
    "_",
    "é",
    "中",
    "K",
    "\u017f",
    "s",
    "k",
    "-",
    "\t",
    ".",
]
IGNORES = [
    *("*.log", "!*.log", "/a", "a/", "b/x.py", "**/b", "a/**", "src/*", "!x.py"),
    *("?.py", "[ab]", "[!a].*", "*.{py,ts}", "#no", "\\#x", "e.log ", " ", "/", "é"),
    *("/src/**/b", "**/", "a/**/x.py", "!/a/b", ".*", "!.env", "x.*/", "**"),
]
ATOMS = [
    *("foo", "a", "k", "S", "é", "中", ".", r"\w", r"\W", r"\d", r"\s", r"\S", "[a-f]"),
    *("[^o]", r"[\w.]", r"[^\W]", "^", "$", r"\b", r"\B", r"\.", "-", "[k-s]", "[À-ÿ]"),
    *("(?:foo|bar)", "(fo|o|)", "(?i:foo)", "x{1,2}", "{", "]", r"\t", "(?=o)", "$^"),
]
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{0,2}", "*?", "+?"]
GLOBS = [None, None, None, "*.py", "src/**", "**/a/*", "[ab]*", "*.{py,ts}", "?", "b/*"]


def text(chance: random.Random) -> bytes:
    """Make a small file: mostly lines of words, at times not text at all."""
    lines = [
        "".join(chance.choice((*WORDS, " ")) for _ in range(chance.randrange(7)))
        for _ in range(chance.randrange(9))
    ]
    data = chance.choice(["\n", "\n", "\r\n"]).join(lines).encode()
    kind = chance.random()
    if kind < 0.05:
        data = b"\xef\xbb\xbf" + data
    elif kind < 0.1:
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice([b"\xff", b"\0", b"\xc3", b"\r"]) + data[at:]
    return data + chance.choice([b"\n", b""])


def grow(directory: Path, chance: random.Random, depth: int = 0) -> None:
    """Fill a directory with files, rules, links and directories."""
    for name in chance.sample(NAMES, chance.randrange(2, 6)):
        path = directory / name
        if depth < 3 and chance.random() < 0.45:
            path.mkdir()
            grow(path, chance, depth + 1)
        elif chance.random() < 0.05:
            path.symlink_to(chance.choice(["a", "..", "/etc"]))
        else:
            path.write_bytes(text(chance))
    if chance.random() < 0.5:
        rules = chance.sample(IGNORES, chance.randrange(1, 4))
        (directory / ".gitignore").write_text("\n".join(rules) + "\n")
    if depth and chance.random() < 0.1:
        (directory / ".git").mkdir()


def question(chance: random.Random, workspace: Path) -> dict[str, object]:
    """Make arguments of a search."""
    arguments: dict[str, object] = {
        "pattern": "".join(
            chance.choice(ATOMS) + chance.choice(REPEATS)
            for _ in range(chance.randrange(1, 4))
        ),
        "ignore_case": chance.random() < 0.3,
        "context": chance.choice([0, 0, 1]),
    }
    if glob := chance.choice(GLOBS):
        arguments["glob"] = glob
    folders = [str(p.relative_to(workspace)) for p in workspace.rglob("*")]
    if folders and chance.random() < 0.3:
        arguments["path"] = chance.choice(folders)
    return arguments


async def answer(box: Toolbox, tool: str, arguments: dict[str, object]) -> str:
    """Give a result, or the kind of refusal."""
    try:
        return (await box.run(tool, **arguments)).output
    except BadArguments as error:
        return error.message
    except Exception as error:
        return type(error).__name__


async def test_both_engines_give_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    program = shutil.which("rg")
    codes = tmp_path / "codes"
    codes.touch()
    wrapper = tmp_path / "bin/rg"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\n{program} "$@"\ncode=$?\necho $code >> {codes}\nexit $code\n'
    )
    wrapper.chmod(0o755)
    chance = random.Random(seed)
    answers = set()
    for number in range(TREES):
        root = tmp_path / str(number)
        root.mkdir()
        box = toolbox(root)
        grow(box.workspace, chance)
        asked = [("list", {})]
        asked += [("search", question(chance, box.workspace)) for _ in range(QUESTIONS)]
        for tool, arguments in asked:
            monkeypatch.setenv("PATH", str(wrapper.parent))
            one = await answer(box, tool, arguments)
            monkeypatch.setenv("PATH", str(root))
            two = await answer(box, tool, arguments)
            assert one == two, (box.workspace, tool, arguments)
            answers.add(one)

    ran = codes.read_text().split()
    assert len(ran) > TREES  # ripgrep was there, and what it printed was used
    assert set(ran) <= {"0", "1"}
    assert len(answers) > TREES
