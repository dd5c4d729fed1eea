"""One strict rule for everything that comes from outside."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from scv.shapes import LARGEST_INTEGER, Bounds, Misfit, core_schema, fit


@dataclass(frozen=True, slots=True)
class Part:
    text: str
    times: int = 1


@dataclass(frozen=True)
class Order:
    parts: Annotated[list[Part], Bounds(1, 2)]
    ratio: Annotated[float, Bounds(0.5)] = 1
    name: Annotated[str | None, Bounds(2, 3)] = None
    kind: Literal["a", "b"] = "a"
    marks: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind == "b" and self.name is None:
            raise ValueError("`b` needs a name")


class Message(TypedDict):
    count: Annotated[int, Bounds(0, LARGEST_INTEGER)]
    note: NotRequired[str | None]


class Text(TypedDict):
    type: Literal["text"]
    text: str


class File(TypedDict):
    type: Literal["file"]
    path: str


PARTS: Any = [{"text": "x"}]


def test_a_data_class_comes_with_its_defaults() -> None:
    assert fit(Order, {"parts": PARTS}) == Order([Part("x", 1)])
    assert fit(Order, {"parts": PARTS, "ratio": 2}).ratio == 2.0


def test_defaults_are_not_shared() -> None:
    first, second = (fit(Order, {"parts": PARTS}) for _ in range(2))

    assert first.marks is not second.marks


@pytest.mark.parametrize(
    ("change", "place", "kind"),
    [
        ({"parts": []}, ("parts",), "too_short"),
        ({"parts": PARTS * 3}, ("parts",), "too_long"),
        ({"parts": "x"}, ("parts",), "list_type"),
        ({"parts": ["x"]}, ("parts", 0), "dataclass_type"),
        ({"parts": [{}]}, ("parts", 0, "text"), "missing"),
        ({"parts": [{"text": 1}]}, ("parts", 0, "text"), "string_type"),
        ({"parts": [{"text": "x", "times": "1"}]}, ("parts", 0, "times"), "int_type"),
        ({"parts": [{"text": "x", "times": 1.0}]}, ("parts", 0, "times"), "int_type"),
        ({"parts": [{"text": "x", "times": True}]}, ("parts", 0, "times"), "int_type"),
        (
            {"parts": [{"text": "x", "time": 1}]},
            ("parts", 0, "time"),
            "unexpected_keyword_argument",
        ),
        ({"ratio": "1"}, ("ratio",), "float_type"),
        ({"ratio": True}, ("ratio",), "float_type"),
        ({"ratio": 0.4}, ("ratio",), "greater_than_equal"),
        ({"ratio": math.nan}, ("ratio",), "finite_number"),
        ({"name": "x"}, ("name",), "string_too_short"),
        ({"name": "abcd"}, ("name",), "string_too_long"),
        ({"kind": "c"}, ("kind",), "literal_error"),
        ({"marks": {"x": 1}}, ("marks", "x"), "bool_type"),
        ({"kind": "b"}, (), "value_error"),
    ],
)
def test_what_does_not_fit_is_named(
    change: dict[str, Any], place: tuple[str | int, ...], kind: str
) -> None:
    with pytest.raises(Misfit) as caught:
        fit(Order, {"parts": PARTS, **change})

    assert (caught.value.place, caught.value.kind) == (place, kind)


def test_a_misfit_says_what_came_and_what_was_asked_for() -> None:
    with pytest.raises(Misfit) as caught:
        fit(Message, {"count": -1})

    assert caught.value.value == -1
    assert caught.value.details == {"ge": 0}
    assert "-1" not in caught.value.reason


def test_a_typed_dict_stays_a_dict_and_loses_what_it_does_not_know() -> None:
    assert fit(Message, {"count": 1, "new": 2}) == {"count": 1}
    assert fit(Message, {"count": 1, "note": None}) == {"count": 1, "note": None}


def test_the_tag_of_a_union_chooses_its_member() -> None:
    assert fit(Text | File, {"type": "file", "path": "x"})["path"] == "x"
    for bad, place in (
        ({"type": "image"}, ("type",)),
        ({"type": "file"}, ("path",)),
        ({}, ("type",)),
        (5, ("type",)),
    ):
        with pytest.raises(Misfit) as caught:
            fit(Text | File, bad)
        assert caught.value.place == place


@pytest.mark.parametrize("shape", [set, bytes, tuple[int, str], "str"])
def test_other_types_are_refused_at_once(shape: Any) -> None:
    with pytest.raises(TypeError, match="no type that values can be checked against"):
        core_schema(shape)
