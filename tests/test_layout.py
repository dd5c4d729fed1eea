"""The rooms table holds: who may import whom, and what an import may cost."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from scv.client import connect
from scv.client.child import start_server
from scv.client.decision import Json, decide

ROOT = Path(__file__).parent.parent

# The table of docs/architecture.md: a room, and the rooms it may import.
_FACE = "errors wire config core rpc host server"
_FRONT_END = "errors wire config rpc host client"
_EDGE = "errors wire config core host"
ROOMS = {
    "errors": "",
    "values": "",
    "shapes": "",
    "wire": "errors",
    "config": "errors host",
    "core": "errors wire config",
    "host": "errors",
    "store": _EDGE,
    "rpc": "errors wire",
    "providers": _EDGE,
    "tools": _EDGE,
    "agents": _EDGE,
    "server": "errors wire config core rpc host",
    "lsp": _FACE,
    "acp": _FRONT_END,
    "client": "errors wire config rpc host",
    "bridges": _FRONT_END,
    "cli": "errors wire config client host",
    "__main__": "cli",
}
OPEN_TO_ALL = ("values", "shapes")
# Arrows that nothing follows when a module loads: inside functions, or for types only.
LATE = {"cli": "app"}
JOINS_ALL = "app"

VAGUE_NAMES = {
    *("utils", "util", "helpers", "helper", "common", "manager", "base", "misc"),
}
HEAVY = {
    *("anyio", "asyncio", "httpcore", "httpx", "lsprotocol"),
    *("prompt_toolkit", "psutil", "pydantic", "pydantic_core", "pygls"),
    *("rich", "sqlite3", "truststore", "typer"),
}


@dataclass(frozen=True)
class Import:
    """One import of one module, by another."""

    importer: str
    target: str
    line: int
    is_late: bool = False  # inside a function
    is_for_types: bool = False  # below `if TYPE_CHECKING`

    def __str__(self) -> str:
        return f"{self.importer} line {self.line} imports {self.target}"


@cache
def modules() -> dict[str, Path]:
    """Find every module of SCV by its dotted name."""
    found = {}
    for path in sorted((ROOT / "scv").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def imports() -> list[Import]:
    """Read every import statement of SCV, those inside functions too."""
    found: list[Import] = []
    for name, path in modules().items():
        found += _imports_below(ast.parse(path.read_text()), Import(name, "", 0))
    return found


def _imports_below(node: ast.AST, here: Import) -> Iterator[Import]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        here = replace(here, is_late=True)
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        here = replace(here, is_for_types=True)
    for child in ast.iter_child_nodes(node):
        for target in _targets(child):
            yield replace(here, target=target, line=getattr(child, "lineno", 0))
        yield from _imports_below(child, here)


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports hide the room; write it out"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in modules() else str(node.module) for name in inner]
    return []


def room(module: str) -> str:
    """Name the room of a module of SCV; the package itself has none."""
    return f"{module}.".split(".")[1]


def test_every_module_is_in_a_room_of_the_table() -> None:
    rooms = {room(module) for module in modules()} - {""}

    assert rooms - ROOMS.keys() - {JOINS_ALL} == set()


def test_rooms_import_only_what_the_table_allows() -> None:
    wrong = [str(each) for each in imports() if not is_allowed(each)]

    assert wrong == []


def is_allowed(each: Import) -> bool:
    source, target = room(each.importer), room(each.target)
    if not each.target.startswith("scv.") or source in (target, JOINS_ALL):
        return True
    allowed = [*ROOMS.get(source, "").split(), *OPEN_TO_ALL]
    is_loaded = not (each.is_late or each.is_for_types)
    return target in allowed or (not is_loaded and target == LATE.get(source))


def test_only_the_lsp_face_imports_the_lsp_libraries() -> None:
    wrong = [
        str(each)
        for each in imports()
        if each.target.split(".")[0] in ("pygls", "lsprotocol")
        and room(each.importer) != "lsp"
    ]

    assert wrong == []


def test_the_table_itself_has_no_circle() -> None:
    assert circles({source: set(to.split()) for source, to in ROOMS.items()}) == []


def test_modules_do_not_load_each_other_in_a_circle() -> None:
    """What is imported inside a function, or for types only, is not loaded with it."""
    arrows: dict[str, set[str]] = {}
    for each in imports():
        if each.target in modules() and not each.is_late and not each.is_for_types:
            arrows.setdefault(each.importer, set()).add(each.target)

    assert circles(arrows) == []


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """List each circle that a walk along the arrows runs into."""
    found: list[str] = []
    done: set[str] = set()

    def walk(module: str, way: list[str]) -> None:
        if module in way:
            found.append(" -> ".join([*way[way.index(module) :], module]))
        elif module not in done:
            for target in sorted(arrows.get(module, ())):
                walk(target, [*way, module])
            done.add(module)

    for module in sorted(arrows):
        walk(module, [])
    return found


def test_module_names_say_what_is_inside() -> None:
    names = {name: name.split(".")[-1].strip("_") for name in modules()}

    vague = [name for name, last in names.items() if last in VAGUE_NAMES]

    assert vague == []


def test_dependencies_are_those_that_are_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w.-]+", line) for line in project["dependencies"]]
    declared = {match[0].replace("-", "_") for match in names if match}

    imported = {each.target.split(".")[0] for each in imports()}

    assert imported - sys.stdlib_module_names - {"scv"} == declared


# Importing these must not bring in any of HEAVY, less what is named here.
LIGHT = {
    "scv": set(),
    "scv.errors": set(),
    "scv.shapes": set(),
    "scv.config.load": set(),
    "scv.wire.methods": set(),
    "scv.core.ports": set(),
    "scv.cli": set(),
    "scv.store": {"anyio", "asyncio"},
    "scv.providers": {"anyio", "asyncio"},
    "scv.tools": {"anyio", "asyncio"},
    "scv.rpc": {"anyio", "asyncio"},
}


@pytest.mark.parametrize("module", LIGHT)
def test_import_is_light_and_silent(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {HEAVY!r}))"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )

    assert done.stderr == ""
    assert set(done.stdout.split()) - LIGHT[module] == set()


def test_importing_scv_loads_nothing_else() -> None:
    code = (
        "import sys; before = set(sys.modules); import scv; "
        "print(*sorted(set(sys.modules) - before))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.stdout.split(), done.stderr) == (["scv"], "")


# Only the engine: pydantic's Python half costs more than a whole server start.
NEVER = {"pydantic", "annotated_types", "typing_inspection", "importlib.metadata"}
EVERY_TOOL = (
    'write a: x then read a then replace "x" with "y" in a then list '
    'then search "y" then run touch ran'
)


@pytest.fixture
def import_report(scv_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every Python of the test name what it imports on standard error."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


def imported(report: str) -> set[str]:
    lines = re.findall(r"^import time:.*\| *([\w.]+)$", report, re.MULTILINE)
    assert "pydantic_core" in lines
    return set(lines)


@pytest.mark.usefixtures("import_report")
def test_exec_never_loads_pydantics_python_half(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "scv", "exec", "--provider", "practice", "--yes"]

    done = subprocess.run(
        [*argv, EVERY_TOOL], cwd=tmp_path, capture_output=True, text=True
    )

    assert (done.returncode, (tmp_path / "a").read_text()) == (0, "y\n")
    assert (tmp_path / "ran").exists()
    assert imported(done.stderr) & NEVER == set()


@pytest.mark.anyio
@pytest.mark.usefixtures("import_report")
async def test_server_never_loads_pydantics_python_half(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    async def allow(approval: Json) -> Json:
        return decide(approval, "allow_once")

    async with (
        start_server(environment=os.environ) as stream,
        connect(stream, name="layout", on_approval=allow) as client,
    ):
        session = await client.create_session(
            str(workspace), config={"provider": "practice"}
        )
        started = await session.prompt(EVERY_TOOL)
        turn = await session.ended(started["turnId"])

    assert (turn["status"], (workspace / "a").read_text()) == ("completed", "y\n")
    assert (workspace / "ran").exists()
    assert imported(capfd.readouterr().err) & NEVER == set()
