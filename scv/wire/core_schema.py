"""Turn wire types into schemas of pydantic's validation engine.

`pydantic.TypeAdapter` would do the same for more than ten times the price: its
import, its plugin search and its own reading of the types cost more than a whole
server start. Wire types use a small part of `typing`, and this module knows
exactly that part; anything else is a TypeError, which the tests would see.
"""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    is_typeddict,
)

Schema = dict[str, Any]

_PLAIN = {str: "str", int: "int", bool: "bool", NoneType: "none", Any: "any"}
_TAG_FIELDS = ("type", "kind")


def core_schema(wire_type: Any) -> Schema:
    """Describe a wire type to the engine: strict, unknown fields ignored.

    Members of a union are labelled `<Class>`, so that the place in an error tells
    them from fields.
    """
    if wire_type in _PLAIN:
        return {"type": _PLAIN[wire_type]}
    if is_typeddict(wire_type):
        return _table(wire_type)
    arguments = get_args(wire_type)
    origin = get_origin(wire_type)
    if origin is Annotated:
        base, bounds = arguments
        low, high = ("ge", "le") if base is int else ("min_length", "max_length")
        return {**core_schema(base), low: bounds.least, high: bounds.most}
    if origin is Literal:
        return {"type": "literal", "expected": list(arguments)}
    if origin is list:
        return {"type": "list", "items_schema": core_schema(arguments[0])}
    if origin is dict:
        key, value = map(core_schema, arguments)
        return {"type": "dict", "keys_schema": key, "values_schema": value}
    if origin in (Union, UnionType):
        return _union(arguments)
    raise TypeError(f"{wire_type} is no wire type")


def _table(wire_type: Any) -> Schema:
    fields = {
        name: {
            "type": "typed-dict-field",
            "schema": core_schema(field_type(annotation)),
            "required": name in wire_type.__required_keys__,
        }
        for name, annotation in wire_type.__annotations__.items()
    }
    return {"type": "typed-dict", "fields": fields}


def field_type(annotation: Any) -> Any:
    """Take the type of a field that may be absent out of its `NotRequired`."""
    is_optional = get_origin(annotation) is NotRequired
    return get_args(annotation)[0] if is_optional else annotation


def _union(members: tuple[Any, ...]) -> Schema:
    if NoneType in members:
        (member,) = (each for each in members if each is not NoneType)
        return {"type": "nullable", "schema": core_schema(member)}
    tag = tag_field(members)
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
        "custom_error_context": {"field": tag},
    }


def tag_field(members: tuple[Any, ...]) -> str | None:
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
