"""Bounds on fields: what `Annotated` carries in wire types."""

from typing import NamedTuple

LARGEST_INTEGER = 2**53 - 1
"""Largest integer that every client holds exactly. Source: RFC 8259, section 6."""


class Bounds(NamedTuple):
    """Least and most: characters of a text, entries of a list, value of a number."""

    least: int
    most: int
