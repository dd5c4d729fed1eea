"""Check JSON-like values against declared types, by pydantic's validation engine.

One rule for the wire, the settings and the arguments of tools: nothing is
converted (but an integer counts as a number), and bounds stand in the type.
A `TypedDict` ignores fields it does not know and stays a dict; a data class
refuses them and becomes an instance, defaults filled in.

`pydantic.TypeAdapter` would do the same for more than ten times the price: its
import, its plugin search and its own reading of the types cost more than a whole
server start. This module knows the part of `typing` that is used, and anything
else is a TypeError, which the tests would see. The engine loads at the first check.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

Schema = dict[str, Any]

LARGEST_INTEGER = 2**53 - 1
"""Largest integer that every client holds exactly. Source: RFC 8259, section 6."""

_PLAIN: dict[Any, Schema] = {
    str: {"type": "str", "strict": True},
    int: {"type": "int", "strict": True},
    float: {"type": "float", "strict": True, "allow_inf_nan": False},
    bool: {"type": "bool", "strict": True},
    NoneType: {"type": "none"},
    Any: {"type": "any"},
}
_TAG_FIELDS = ("type", "kind")


class Bounds(NamedTuple):
    """Least and most: characters of a text, entries of a list, value of a number."""

    least: float
    most: float | None = None


class Misfit(Exception):
    """A value that is not what its type says.

    Attributes:
        place: Names and indexes that lead to the first part that does not fit.
        kind: The engine's word for what is wrong, such as `int_type`.
        reason: A sentence about it, without the value.
        details: What the type asks for, such as `{"ge": 1}`.
        value: The part itself.
    """

    def __init__(
        self,
        reason: str,
        *,
        place: tuple[str | int, ...],
        kind: str,
        details: dict[str, Any],
        value: Any,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        self.kind = kind
        self.details = details
        self.value = value


def fit(shape: Any, value: Any) -> Any:
    """Return `value` as the type says, in new containers.

    Raises:
        Misfit: It, or something inside, does not fit.
    """
    from pydantic_core import ValidationError

    try:
        return validator(shape).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        details = first.get("ctx", {})
        place = [*first["loc"], *details.get("tag", "").split()]
        raise Misfit(
            first["msg"],
            place=tuple(part for part in place if not str(part).startswith("<")),
            kind=first["type"],
            details=details,
            value=first["input"],
        ) from None


@cache
def validator(shape: Any) -> "SchemaValidator":
    """Build the validator of a type, once."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(core_schema(shape))


def core_schema(shape: Any) -> Schema:
    """Describe a type to the engine.

    Members of a union are labelled `<Class>`, so that the place in an error tells
    them from fields.
    """
    if shape in _PLAIN:
        return _PLAIN[shape]
    if is_typeddict(shape):
        return _table(shape)
    if is_dataclass(shape):
        return _record(shape)
    arguments = get_args(shape)
    origin = get_origin(shape)
    if origin is Annotated:
        base, *notes = arguments
        schema = core_schema(base)
        for note in notes:
            if isinstance(note, Bounds):
                schema = _bounded(schema, note)
        return schema
    if origin is Literal:
        return {"type": "literal", "expected": list(arguments)}
    if origin is list:
        return {"type": "list", "items_schema": core_schema(arguments[0])}
    if origin is dict:
        key, value = map(core_schema, arguments)
        return {"type": "dict", "keys_schema": key, "values_schema": value}
    if origin in (Union, UnionType):
        return _union(arguments)
    raise TypeError(f"{shape} is no type that values can be checked against")


def _bounded(schema: Schema, bounds: Bounds) -> Schema:
    if schema["type"] == "nullable":
        return {**schema, "schema": _bounded(schema["schema"], bounds)}
    is_number = schema["type"] in ("int", "float")
    low, high = ("ge", "le") if is_number else ("min_length", "max_length")
    most = {} if bounds.most is None else {high: bounds.most}
    return {**schema, low: bounds.least, **most}


def _table(shape: Any) -> Schema:
    entries = {
        name: {
            "type": "typed-dict-field",
            "schema": core_schema(_field_type(annotation)),
            "required": name in shape.__required_keys__,
        }
        for name, annotation in shape.__annotations__.items()
    }
    return {"type": "typed-dict", "fields": entries}


def _field_type(annotation: Any) -> Any:
    """Take the type of a field that may be absent out of its `NotRequired`."""
    is_optional = get_origin(annotation) is NotRequired
    return get_args(annotation)[0] if is_optional else annotation


def _record(shape: Any) -> Schema:
    types = get_type_hints(shape, include_extras=True)
    entries = [
        {
            "type": "dataclass-field",
            "name": entry.name,
            "kw_only": True,
            "schema": _with_default(core_schema(types[entry.name]), entry),
        }
        for entry in fields(shape)
    ]
    return {
        "type": "dataclass",
        "cls": shape,
        "slots": "__slots__" in vars(shape),
        "post_init": hasattr(shape, "__post_init__"),
        "fields": [entry["name"] for entry in entries],
        "schema": {
            "type": "dataclass-args",
            "dataclass_name": shape.__name__,
            "extra_behavior": "forbid",
            "fields": entries,
        },
    }


def _with_default(schema: Schema, entry: Any) -> Schema:
    if entry.default is not MISSING:
        return {"type": "default", "schema": schema, "default": entry.default}
    if entry.default_factory is not MISSING:
        factory = entry.default_factory
        return {"type": "default", "schema": schema, "default_factory": factory}
    return schema


def _union(members: tuple[Any, ...]) -> Schema:
    if NoneType in members:
        (member,) = (each for each in members if each is not NoneType)
        return {"type": "nullable", "schema": core_schema(member)}
    tag = _tag_field(members)
    if tag is None:
        labelled = [(core_schema(member), _label(member)) for member in members]
        return {"type": "union", "choices": labelled}
    labels = {
        value: _label(member) for member in members for value in _tags(member, tag)
    }
    return {
        "type": "tagged-union",
        "discriminator": _chooser(tag, labels),
        "choices": {_label(member): core_schema(member) for member in members},
        "custom_error_type": "tag",
        "custom_error_message": f"`{tag}` should be one of {', '.join(labels)}",
        "custom_error_context": {"tag": tag},
    }


def _tag_field(members: tuple[Any, ...]) -> str | None:
    """Find the field whose fixed values tell the members of a union apart."""
    for tag in _TAG_FIELDS:
        if all(_tags(member, tag) for member in members):
            return tag
    return None


def _label(member: Any) -> str:
    return f"<{member.__name__}>"


def _tags(member: Any, tag: str) -> tuple[Any, ...]:
    annotation = member.__annotations__.get(tag)
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _chooser(tag: str, labels: dict[str, str]) -> Callable[[Any], str | None]:
    def choose(value: Any) -> str | None:
        found = value.get(tag) if isinstance(value, dict) else None
        return labels.get(found) if isinstance(found, str) else None

    return choose
