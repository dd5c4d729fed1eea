"""Valid and invalid values, made from schema.json: what the protocol promises."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Place = tuple[str | int, ...]

SCHEMA: Json = json.loads(
    (Path(__file__).parents[2] / "scv" / "wire" / "schema.json").read_text()
)
TO_SERVER = [
    name for name, method in SCHEMA["methods"].items() if method["to"] == "server"
]
MOST_MEMBERS = 4
"""Members of the largest union, `InputPart`; every one gets its turn."""


def params_schema(method: str) -> Json:
    """The schema of a method's params."""
    return resolve(SCHEMA["methods"][method]["params"])


def resolve(schema: Json) -> Json:
    """Follow a reference."""
    while "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def chosen(schema: Json, turn: int) -> Json:
    """Follow references and choose one member of a union, never null."""
    schema = resolve(schema)
    while "anyOf" in schema:
        members = [each for each in schema["anyOf"] if each.get("type") != "null"]
        schema = resolve(members[turn % len(members)])
    return schema


def sample(schema: Json, turn: int = 0, *, whole: bool = True) -> Any:
    """Build a value that fits, with every field or only the required ones."""
    schema = chosen(schema, turn)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][turn % len(schema["enum"])]
    match schema.get("type"):
        case "string":
            return "x" * schema.get("minLength", 1)
        case "integer":
            return schema.get("minimum", 7)
        case "boolean":
            return True
        case "array":
            return [sample(schema["items"], turn, whole=whole)]
        case "object" if "properties" in schema:
            return {
                name: sample(inner, turn, whole=whole)
                for name, inner in schema["properties"].items()
                if whole or name in schema.get("required", [])
            }
        case "object":
            inner = schema.get("additionalProperties")
            return {"KEY": sample(inner, turn)} if inner else {"any": [1, None]}
    return {"any": "thing"}


def places(schema: Json, turn: int = 0, at: Place = ()) -> Iterator[tuple[Place, Json]]:
    """Yield every place of a whole sample, with the schema that holds there."""
    schema = chosen(schema, turn)
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from places(inner, turn, (*at, name))
    if "items" in schema:
        yield from places(schema["items"], turn, (*at, 0))
    if schema.get("additionalProperties"):
        yield from places(schema["additionalProperties"], turn, (*at, "KEY"))


def misfits(schema: Json) -> Iterator[Any]:
    """Yield values that do not fit: other types, and just out of bounds."""
    if "const" in schema or "enum" in schema:
        yield from ("no such value", None, [], 2.5)
    match schema.get("type"):
        case "string":
            yield from (7, True, None, ["x"], {})
            if schema.get("minLength"):
                yield ""
            if "maxLength" in schema:
                yield "x" * (schema["maxLength"] + 1)
        case "integer":
            yield from ("7", True, 1.5, None, [])
            if "minimum" in schema:
                yield from (schema["minimum"] - 1, schema["maximum"] + 1, 10**40)
        case "boolean":
            yield from ("true", 1, 0, None)
        case "array":
            yield from ({}, "x", 7, None)
            if schema.get("minItems"):
                yield []
        case "object":
            yield from ([], [1, 2], "x", 7, True)


def replaced(value: Any, at: Place, new: Any) -> Any:
    """Copy a value with another one at a place."""
    if not at:
        return new
    copy = deepcopy(value)
    inner = copy
    for step in at[:-1]:
        inner = inner[step]
    inner[at[-1]] = new
    return copy


def without(value: Any, at: Place, name: str) -> Any:
    """Copy a value without one field of the object at a place."""
    copy = deepcopy(value)
    inner = copy
    for step in at:
        inner = inner[step]
    del inner[name]
    return copy


def dotted(at: Place) -> str:
    """Spell a place as `data.path` does."""
    return ".".join(map(str, at))
