"""The table of methods, the handlers and the types tell the same story."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any, is_typeddict

import pytest

from scv.server.handlers import HANDLERS
from scv.shapes import validator
from scv.wire import approval, blob, event, item, lifecycle, schema, session, turn
from scv.wire.errors import CODES, MEANINGS, RETRYABLE, refuse
from scv.wire.event import EVENTS, NOT_DURABLE
from scv.wire.methods import METHODS
from scv.wire.schema_hash import SCHEMA_HASH
from tests.wire.samples import SCHEMA, resolve

ROOT = Path(__file__).parents[2]
NOUNS = (approval, blob, event, item, lifecycle, schema, session, turn)


def wire_types() -> dict[str, Any]:
    return {
        name: value
        for noun in NOUNS
        for name, value in vars(noun).items()
        if is_typeddict(value) and value.__module__ == noun.__name__
    }


def test_every_request_to_the_server_has_a_handler_and_no_other() -> None:
    to_server = {name for name, method in METHODS.items() if method.to == "server"}

    assert set(HANDLERS) == to_server


@pytest.mark.parametrize("name", HANDLERS)
def test_mutating_methods_take_an_operation_id_and_store_their_result(
    name: str,
) -> None:
    method = METHODS[name]
    takes_make_op = "make_op" in inspect.signature(HANDLERS[name]).parameters

    assert ("opId" in method.params.__required_keys__) == method.mutating
    assert takes_make_op == method.mutating
    assert not (method.mutating and method.observer)


def test_every_type_says_what_it_is() -> None:
    silent = [name for name, each in wire_types().items() if not own_docstring(each)]

    assert silent == []


def own_docstring(wire_type: Any) -> str:
    return (wire_type.__dict__.get("__doc__") or "").strip()


def test_no_two_types_share_a_name() -> None:
    names = [
        name
        for noun in NOUNS
        for name, value in vars(noun).items()
        if is_typeddict(value) and value.__module__ == noun.__name__
    ]

    assert len(names) == len(set(names))


def test_every_type_has_a_validator() -> None:
    for each in wire_types().values():
        assert validator(each) is validator(each)


def test_the_schema_names_the_fields_that_the_types_have() -> None:
    for name, each in wire_types().items():
        described = SCHEMA["$defs"][name]

        assert list(described["properties"]) == list(each.__annotations__), name
        assert set(described.get("required", [])) == each.__required_keys__, name


def test_the_schema_holds_every_method_and_event() -> None:
    assert list(SCHEMA["methods"]) == list(METHODS)
    assert list(SCHEMA["events"]) == list(EVENTS)
    for name, described in SCHEMA["events"].items():
        assert described["durable"] == (name not in NOT_DURABLE)


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    def follow(value: Any) -> None:
        if isinstance(value, dict):
            resolve(value)
            for inner in value.values():
                follow(inner)
        elif isinstance(value, list):
            for inner in value:
                follow(inner)

    follow(SCHEMA)


def test_every_error_code_is_explained_and_used_once() -> None:
    assert list(MEANINGS) == list(CODES)
    assert len(set(CODES.values())) == len(CODES)
    assert set(CODES) > RETRYABLE
    # outside what JSON-RPC and LSP reserve
    assert all(4200 <= code < 4300 for code in CODES.values())


def test_a_refusal_carries_its_stable_name() -> None:
    error = refuse("session.busy", "a turn is running", turnId="t_1")

    assert error.code == 4241
    assert error.data == {"code": "session.busy", "retryable": False, "turnId": "t_1"}


def test_the_hash_names_the_schema() -> None:
    assert len(SCHEMA_HASH) == 32
    assert int(SCHEMA_HASH, 16) > 0


def test_checking_params_does_not_load_pydantic_itself() -> None:
    """Its import alone costs more than the checks of a whole session."""
    code = (
        "import sys; from scv.wire.validate import check_params;"
        "check_params('scv/session/list', {});"
        "print('pydantic' in sys.modules, 'annotated_types' in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )

    assert (done.stdout, done.stderr) == ("False False\n", "")
