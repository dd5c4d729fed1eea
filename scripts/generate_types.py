"""Read the wire types from their source: names, fields, and what is said of them.

The source is read, and not the classes, because the running types forget the names
of aliases (`Id`) and never knew the texts below fields.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WIRE = ROOT / "scv" / "wire"
NOUNS = (
    *("lifecycle", "session", "turn", "queue", "item", "event"),
    *("approval", "attention", "usage", "blob", "schema", "identifiers"),
)
PLAIN = {"str": "string", "int": "integer", "bool": "boolean", "Any": "any"}


@dataclass(frozen=True)
class Plain:
    """A JSON type, or `any`; for bounds see `Bounded`."""

    name: str


@dataclass(frozen=True)
class Bounded:
    """A text, list or number with a least and a most."""

    of: "Shape"
    least: int
    most: int


@dataclass(frozen=True)
class Named:
    """A type that is declared elsewhere."""

    name: str


@dataclass(frozen=True)
class ListOf:
    """A list."""

    of: "Shape"


@dataclass(frozen=True)
class MapOf:
    """An object with any keys."""

    of: "Shape"


@dataclass(frozen=True)
class Fixed:
    """One of some fixed values."""

    values: tuple[str | bool, ...]


@dataclass(frozen=True)
class AnyOf:
    """One of some shapes; null is `Plain("null")`."""

    members: tuple["Shape", ...]


Shape = Plain | Bounded | Named | ListOf | MapOf | Fixed | AnyOf


@dataclass(frozen=True)
class Field:
    """One field of a message."""

    name: str
    shape: Shape
    required: bool
    doc: str


@dataclass(frozen=True)
class Declared:
    """One declaration: a message with fields, or a name for another shape."""

    name: str
    noun: str
    doc: str
    fields: tuple[Field, ...] = ()
    shape: Shape | None = None


def declared_types() -> dict[str, Declared]:
    """Read every declaration of the wire, in the order of its source."""
    found: dict[str, Declared] = {}
    for noun in NOUNS:
        body = ast.parse((WIRE / f"{noun}.py").read_text()).body
        for node, doc in _with_docs(body):
            declared = _declaration(node, noun, doc)
            if declared is not None:
                found[declared.name] = declared
    return found


def _with_docs(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Pair every statement with the text that stands below it."""
    for node, below in zip(body, [*body[1:], None], strict=True):
        yield node, _text(below) or ""


def _text(node: ast.AST | None) -> str | None:
    match node:
        case ast.Expr(ast.Constant(str() as text)):
            return " ".join(text.split())
    return None


def _declaration(node: ast.stmt, noun: str, doc: str) -> Declared | None:
    match node:
        case ast.ClassDef(name=name, body=body):
            fields = tuple(
                _field(entry.target.id, entry.annotation, below)
                for entry, below in _with_docs(body)
                if isinstance(entry, ast.AnnAssign)
                and isinstance(entry.target, ast.Name)
            )
            return Declared(name, noun, ast.get_docstring(node) or "", fields)
        case ast.Assign([ast.Name(name)], ast.Call(args=[_, ast.Dict() as table])):
            fields = tuple(
                _field(ast.literal_eval(key), value, "")
                for key, value in zip(table.keys, table.values, strict=True)
                if key is not None
            )
            return Declared(name, noun, _late_docstring(noun, name), fields)
        case ast.Assign([ast.Name(name)], value) if _is_alias(name):
            return Declared(name, noun, doc, shape=read_shape(value))
    return None


def _is_alias(name: str) -> bool:
    return name[0].isupper() and not name.isupper()


def _late_docstring(noun: str, name: str) -> str:
    from importlib import import_module

    return str(getattr(import_module(f"scv.wire.{noun}"), name).__doc__)


def _field(name: str, annotation: ast.expr, doc: str) -> Field:
    match annotation:
        case ast.Subscript(ast.Name("NotRequired"), inner):
            return Field(name, read_shape(inner), False, doc)
    return Field(name, read_shape(annotation), True, doc)


def read_shape(node: ast.expr) -> Shape:
    """Read the shape that an annotation means."""
    match node:
        case ast.Constant(None):
            return Plain("null")
        case ast.Name(name):
            return Plain(PLAIN[name]) if name in PLAIN else Named(name)
        case ast.Attribute(attr=name):
            return Named(name)
        case ast.BinOp(left, ast.BitOr(), right):
            return AnyOf((*_members(read_shape(left)), *_members(read_shape(right))))
        case ast.Subscript(ast.Name("Literal"), values):
            found = ast.literal_eval(values)
            return Fixed(found if isinstance(found, tuple) else (found,))
        case ast.Subscript(ast.Name("list"), inner):
            return ListOf(read_shape(inner))
        case ast.Subscript(ast.Name("dict"), ast.Tuple([_, inner])):
            return MapOf(read_shape(inner))
        case ast.Subscript(
            ast.Name("Annotated"), ast.Tuple([base, ast.Call(args=[least, most])])
        ):
            return Bounded(read_shape(base), _number(least), _number(most))
    raise TypeError(f"{ast.unparse(node)} is no wire type")


def _members(shape: Shape) -> tuple[Shape, ...]:
    return shape.members if isinstance(shape, AnyOf) else (shape,)


def _number(node: ast.expr) -> int:
    from scv.shapes import LARGEST_INTEGER

    if isinstance(node, ast.Name):
        return {"LARGEST_INTEGER": LARGEST_INTEGER}[node.id]
    return int(ast.literal_eval(node))


def named_shape(wire_type: Any) -> Shape:
    """Name the type of a method's params or result, as it stands in the table."""
    members = getattr(wire_type, "__args__", None)
    if members is None:
        return Named(wire_type.__name__)
    return AnyOf(tuple(Named(member.__name__) for member in members))
