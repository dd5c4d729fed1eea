"""Check JSON values against wire types."""

from typing import Any

from scv.errors import InvalidParams
from scv.shapes import Misfit, fit
from scv.wire.methods import METHODS


def check(wire_type: Any, value: Any) -> Any:
    """Return `value` as the wire type, without unknown fields.

    Raises:
        InvalidParams: `data["path"]` names the first field that does not fit.
    """
    try:
        return fit(wire_type, value)
    except Misfit as misfit:
        path = ".".join(map(str, misfit.place))
        raise InvalidParams(
            f"params{'.' + path if path else ''}: {misfit.reason}",
            data={"code": "params.invalid", "retryable": False, "path": path},
        ) from None


def check_params(method: str, params: Any) -> Any:
    """Check the params of a method of the table."""
    return check(METHODS[method].params, {} if params is None else params)
