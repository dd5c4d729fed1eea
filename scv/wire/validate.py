"""Check JSON values against wire types; loads the engine at the first check."""

from functools import cache
from typing import TYPE_CHECKING, Any

from scv.errors import InvalidParams
from scv.wire.core_schema import core_schema
from scv.wire.methods import METHODS

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator


@cache
def validator(wire_type: Any) -> "SchemaValidator":
    """Build the validator of a wire type, once."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(core_schema(wire_type))


def check(wire_type: Any, value: Any) -> Any:
    """Return `value` as the wire type, without unknown fields.

    Raises:
        InvalidParams: `data["path"]` names the first field that does not fit.
    """
    from pydantic_core import ValidationError

    try:
        return validator(wire_type).validate_python(value, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = [*first["loc"], *first.get("ctx", {}).get("field", "").split()]
        path = ".".join(part for part in map(str, place) if not part.startswith("<"))
        raise InvalidParams(
            f"params{'.' + path if path else ''}: {first['msg']}",
            data={"code": "params.invalid", "retryable": False, "path": path},
        ) from None


def check_params(method: str, params: Any) -> Any:
    """Check the params of a method of the table."""
    return check(METHODS[method].params, {} if params is None else params)
