"""Cheap frozen data classes are data classes."""

from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any

import pytest

from scv.values import frozen


@frozen
class Point:
    """A place."""

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list)
    secret: str = field(default="", repr=False)
    payload: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")

    @property
    def total(self) -> int:
        """Both together."""
        return self.x + self.y


@frozen
class Other:
    x: int
    y: int = 0


def test_fields_are_given_by_place_by_name_or_by_default() -> None:
    assert (Point(1).x, Point(1).y, Point(1).names) == (1, 0, [])
    assert Point(1, 2).total == Point(y=2, x=1).total == 3
    assert Point(1).names is not Point(1).names


def test_wrong_arguments_are_refused_with_the_name_of_the_class() -> None:
    make: Any = Point
    for arguments, named in (((), {}), ((1,), {"z": 2}), ((1, 2, [], "", 5, 6), {})):
        with pytest.raises(TypeError, match=r"Point\.__init__"):
            make(*arguments, **named)


def test_equal_content_of_one_class_is_equal() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2, payload=1) == Point(1, 2, payload=2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, secret="a") != Point(1, secret="b")
    alike: list[object] = [Point(1, 2), (1, 2)]
    assert Other(1, 2) not in alike
    assert hash(Other(1, 2)) == hash(Other(1, 2))
    assert len({Other(1), Other(1), Other(2)}) == 2


def test_nothing_can_be_changed_or_added() -> None:
    point: Any = Point(1)

    for name in ("x", "z"):
        with pytest.raises(FrozenInstanceError):
            setattr(point, name, 5)
        with pytest.raises(FrozenInstanceError):
            delattr(point, name)
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_a_secret_is_left_out_of_repr() -> None:
    assert repr(Point(1, secret="s")) == "Point(x=1, y=0, names=[], payload=None)"


def test_the_standard_functions_work() -> None:
    point = Point(1, names=["a"])

    assert [each.name for each in fields(Other)] == ["x", "y"]
    assert replace(point, y=5) == Point(1, 5, ["a"])
    assert asdict(Other(1)) == {"x": 1, "y": 0}
    match point:
        case Point(x, y=0):
            assert x == 1
        case _:
            pytest.fail("did not match")


def test_a_rule_between_fields_is_kept() -> None:
    with pytest.raises(ValueError, match="negative"):
        Point(-1)
    with pytest.raises(ValueError, match="negative"):
        replace(Point(1), x=-1)
