"""Arguments of tools: one strict rule for all of them.

A tool declares its arguments as a frozen data class. Values are never converted,
unknown fields are refused, and the message names the field, what it takes, and
what came. `null` counts as left out where a field is optional. A rule between
fields is a ValueError of `__post_init__`.
"""

from dataclasses import asdict, fields
from typing import Any, TypeVar

from scv.errors import BadArguments
from scv.shapes import Misfit, fit

_LONGEST_VALUE_SHOWN = 60
_JSON_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
    "NoneType": "null",
}
_EXPECTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
}

A = TypeVar("A")


def parse_arguments(shape: type[A], arguments: dict[str, Any]) -> A:
    """Turn a model's JSON object into a tool's arguments.

    Raises:
        BadArguments: With the dotted name of the first bad field.
    """
    try:
        parsed: A = fit(shape, arguments)
    except Misfit as misfit:
        field = ".".join(map(str, misfit.place))
        message = _explain(shape, misfit, field)
        raise BadArguments(message, field=field or None) from None
    return parsed


def as_json(arguments: Any) -> dict[str, Any]:
    """Write arguments as the JSON object they came from, without what is left out."""
    return asdict(arguments, dict_factory=_without_none)


def _without_none(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if value is not None}


def encode(text: str, field: str) -> bytes:
    """Encode text of a model's arguments as UTF-8.

    Raises:
        BadArguments: It holds half a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArguments(
            f"`{field}`: not valid Unicode text: a lone surrogate at character "
            f"{error.start}",
            field=field,
        ) from None


def _explain(shape: Any, misfit: Misfit, field: str) -> str:
    kind, context = misfit.kind, misfit.details
    if kind == "unexpected_keyword_argument":
        known = ", ".join(f"`{each.name}`" for each in fields(shape))
        where = "" if "." not in field else " in that place"
        return f"unknown field `{field}`{where}; this tool takes {known}"
    if kind == "missing":
        return f"the field `{field}` is required"
    if kind == "value_error":  # a rule between fields, in its own words
        return str(context["error"])
    if kind in _EXPECTED:
        expected = _EXPECTED[kind]
    elif kind == "literal_error":
        expected = f"one of {context['expected']}"
    elif kind == "greater_than_equal":
        expected = f"a number that is at least {context['ge']}"
    elif kind == "less_than_equal":
        expected = f"a number that is at most {context['le']}"
    elif kind == "too_short":
        expected = f"at least {context['min_length']} of them"
    elif kind == "too_long":
        expected = f"at most {context['max_length']} of them"
    elif kind == "string_too_short":
        expected = f"a text of at least {context['min_length']} characters"
    elif kind == "string_too_long":
        expected = f"a text of at most {context['max_length']} characters"
    elif kind == "string_unicode":
        expected = "valid Unicode text (a lone surrogate is none)"
    else:
        expected = misfit.reason
    return f"`{field}`: expected {expected}, but got {_shown(misfit.value)}"


def _shown(value: Any) -> str:
    name = _JSON_TYPES.get(type(value).__name__, type(value).__name__)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = ascii(value)
        if len(text) > _LONGEST_VALUE_SHOWN:
            text = text[:_LONGEST_VALUE_SHOWN] + "…"
        return f"{name} {text}"
    return name
