"""What the server takes as params is what schema.json promises, for every method."""

from typing import Any

import pytest

from scv.errors import InvalidParams
from scv.wire.validate import check_params
from tests.wire.samples import (
    MOST_MEMBERS,
    TO_SERVER,
    dotted,
    misfits,
    params_schema,
    places,
    replaced,
    sample,
    without,
)

each_method = pytest.mark.parametrize("method", TO_SERVER)
each_member = pytest.mark.parametrize("turn", range(MOST_MEMBERS))


def refused_path(method: str, params: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        check_params(method, params)
    assert caught.value.code == -32602
    assert caught.value.data["code"] == "params.invalid"
    path = caught.value.data["path"]
    assert isinstance(path, str)
    return path


@each_method
@each_member
def test_params_that_fit_the_schema_are_taken_as_they_are(
    method: str, turn: int
) -> None:
    schema = params_schema(method)
    for whole in (True, False):
        params = sample(schema, turn, whole=whole)

        assert check_params(method, params) == params


@each_method
@each_member
def test_rpc_12_unknown_fields_are_ignored_at_every_depth(
    method: str, turn: int
) -> None:
    schema = params_schema(method)
    params = sample(schema, turn)
    for at, inner in places(schema, turn):
        if "properties" in inner:
            known = sample(inner, turn)
            newer = replaced(params, at, {**known, "Later": {"a": [1]}, "<x>": None})

            assert check_params(method, newer) == params


@each_method
@each_member
def test_rpc_12_a_wrong_value_is_refused_by_the_name_of_its_field(
    method: str, turn: int
) -> None:
    schema = params_schema(method)
    params = sample(schema, turn)
    for at, inner in places(schema, turn):
        for wrong in misfits(inner):
            path = refused_path(method, replaced(params, at, wrong))

            # what is no member of a union is refused by its tag, `input.0.type`
            assert path in (dotted(at), dotted((*at, "type"))), (at, wrong)


@each_method
@each_member
def test_rpc_12_a_missing_field_is_named(method: str, turn: int) -> None:
    schema = params_schema(method)
    params = sample(schema, turn)
    for at, inner in places(schema, turn):
        for name in inner.get("required", []):
            path = refused_path(method, without(params, at, name))

            assert path == dotted((*at, name))


@each_method
def test_rpc_12_params_that_are_no_object_are_refused(method: str) -> None:
    required = params_schema(method).get("required", [])

    assert refused_path(method, [1, 2]) == ""
    assert refused_path(method, []) == ""
    if required:
        assert refused_path(method, None) == required[0]
    else:
        assert check_params(method, None) == {}
