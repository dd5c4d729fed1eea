"""Check JSON values against wire types; imports pydantic at the first check."""

from functools import cache
from typing import Any

from scv.errors import InvalidParams
from scv.wire.methods import METHODS


@cache
def adapter(wire_type: Any) -> Any:
    """Build the validator of a wire type, once."""
    from pydantic import TypeAdapter

    return TypeAdapter(wire_type)


def check(wire_type: Any, value: Any) -> Any:
    """Return `value` as the wire type, without unknown fields.

    Raises:
        InvalidParams: `data["path"]` names the first field that does not fit.
    """
    from pydantic import ValidationError

    try:
        return adapter(wire_type).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # names of union members are capitalised; fields never are
        path = ".".join(
            part for part in map(str, first["loc"]) if not part[:1].isupper()
        )
        raise InvalidParams(
            f"params{'.' + path if path else ''}: {first['msg']}",
            data={"code": "params.invalid", "retryable": False, "path": path},
        ) from None


def check_params(method: str, params: Any) -> Any:
    """Check the params of a method of the table."""
    return check(METHODS[method].params, {} if params is None else params)
