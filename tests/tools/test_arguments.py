"""One rule for the arguments of all tools, and specs that fit into a request."""

import json
from dataclasses import fields
from typing import Any

import pytest

from scv.core.ports import Tool
from scv.errors import BadArguments
from scv.shapes import LARGEST_INTEGER, core_schema
from scv.tools.edit import EditArguments
from scv.tools.listing import ListArguments
from scv.tools.read import ReadArguments
from scv.tools.registry import register
from scv.tools.search import SearchArguments
from scv.tools.write import WriteArguments
from tests.tools.conftest import Toolbox

pytestmark = pytest.mark.anyio
GOOD: dict[str, dict[str, Any]] = {
    "read": {"path": "a"},
    "write": {"path": "a", "content": "x", "mode": "create"},
    "edit": {"path": "a", "edits": [{"old": "x", "new": "y"}]},
    "list": {},
    "search": {"pattern": "x"},
}
SHAPES: dict[str, type[Any]] = {
    "read": ReadArguments,
    "write": WriteArguments,
    "edit": EditArguments,
    "list": ListArguments,
    "search": SearchArguments,
}


@pytest.mark.parametrize(
    ("tool", "change", "field", "expected"),
    [
        ("read", {"limit": "10"}, "limit", "an integer"),
        ("read", {"limit": 10.0}, "limit", "an integer"),
        ("read", {"limit": True}, "limit", "an integer"),
        ("read", {"path": 5}, "path", "a text"),
        ("read", {"limit": 0}, "limit", "at least 1"),
        ("read", {"offset": -1}, "offset", "at least 0"),
        ("read", {"offset": 2**70}, "offset", "at most"),
        ("write", {"content": ["x"]}, "content", "a text"),
        ("write", {"mode": "append"}, "mode", "'create' or 'replace'"),
        ("edit", {"edits": "x"}, "edits", "a list"),
        ("edit", {"edits": [{"old": "x", "new": 1}]}, "edits.0.new", "a text"),
        ("edit", {"edits": ["x"]}, "edits.0", "an object"),
        (
            "edit",
            {"edits": [{"old": "x", "new": "", "all": "yes"}]},
            "edits.0.all",
            "true or false",
        ),
        ("search", {"context": "2"}, "context", "an integer"),
        ("search", {"ignore_case": 1}, "ignore_case", "true or false"),
        ("search", {"pattern": 1}, "pattern", "a text"),
        ("list", {"glob": 1}, "glob", "a text"),
    ],
)
async def test_args_2_wrong_types(
    box: Toolbox, tool: str, change: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        await box.prepare(tool, **{**GOOD[tool], **change})

    assert caught.value.field == field
    assert f"`{field}`" in caught.value.message
    assert expected in caught.value.message


async def test_args_2_message_shows_what_came(box: Toolbox) -> None:
    with pytest.raises(BadArguments) as caught:
        await box.prepare("read", path="a", limit="10")

    assert "expected an integer, but got a text '10'" in caught.value.message


async def test_args_3_names_are_unique_and_sorted(box: Toolbox) -> None:
    assert list(box.tools) == ["bash", "edit", "list", "read", "search", "write"]
    with pytest.raises(ValueError, match="two tools named read"):
        register([*box.tools.values(), box.tools["read"]])


@pytest.mark.parametrize("tool", GOOD)
async def test_args_4_extra_fields_are_refused_by_name(box: Toolbox, tool: str) -> None:
    with pytest.raises(BadArguments) as caught:
        await box.prepare(tool, **GOOD[tool], encoding="utf8")

    assert caught.value.field == "encoding"
    assert "`encoding`" in caught.value.message
    for field in fields(SHAPES[tool]):
        assert f"`{field.name}`" in caught.value.message


@pytest.mark.parametrize("tool", ["write", "edit", "search"])
async def test_missing_fields_are_named(box: Toolbox, tool: str) -> None:
    for name in GOOD[tool]:
        rest = {key: value for key, value in GOOD[tool].items() if key != name}
        with pytest.raises(BadArguments) as caught:
            await box.prepare(tool, **rest)
        assert caught.value.field == name


async def test_null_is_an_optional_field_left_out(box: Toolbox) -> None:
    call = await box.prepare("read", path="a", limit=None, start_line=None)

    assert call.arguments == {"path": "a"}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Say in JSON Schema what the check of a tool's arguments takes."""
    match schema:
        case {"type": "default" | "nullable"}:
            return described(schema["schema"])
        case {"type": "dataclass", "schema": {"fields": fields}}:
            inner = {field["name"]: field["schema"] for field in fields}
            required = [name for name in inner if inner[name]["type"] != "default"]
            return {
                "type": "object",
                "properties": {name: described(each) for name, each in inner.items()},
                "additionalProperties": False,
                **({"required": required} if required else {}),
            }
        case {"type": "list"}:
            items = described(schema["items_schema"])
            return {"type": "array", "items": items, "minItems": schema["min_length"]}
        case {"type": "literal"}:
            return {"type": "string", "enum": schema["expected"]}
        case {"type": "int", "ge": least, "le": most}:
            maximum = {} if most == LARGEST_INTEGER else {"maximum": most}
            return {"type": "integer", "minimum": least, **maximum}
    return {"type": {"str": "string", "bool": "boolean"}[schema["type"]]}


def without_words(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_words(part) for key, part in schema.items() if key != "description"
    }


@pytest.mark.parametrize("tool", GOOD)
def test_schema_written_by_hand_says_what_is_checked(box: Toolbox, tool: str) -> None:
    written = box.tools[tool].spec.parameters

    assert without_words(written) == described(core_schema(SHAPES[tool]))


def test_specs_fit_into_a_request(box: Toolbox) -> None:
    def size(tool: Tool) -> int:
        spec = tool.spec
        as_sent = {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "strict": False,
        }
        return len(json.dumps(as_sent, separators=(",", ":")))

    assert sum(map(size, box.tools.values())) < 5000
    assert all(len(tool.spec.description) > 80 for tool in box.tools.values())
