"""Cursors of lists: opaque to clients, checked when they come back."""

import base64
import binascii

from scv.shapes import LARGEST_INTEGER
from scv.wire.errors import refuse


def encode_cursor(place: tuple[int, str]) -> str:
    """Name a place in a list."""
    return base64.urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode()


def decode_cursor(cursor: str) -> tuple[int, str]:
    """Read a cursor.

    Raises:
        RequestRefused: 4203, not one of ours.
    """
    try:
        number, _, text = base64.urlsafe_b64decode(cursor).decode().partition(":")
        place = int(number)
        if not text or abs(place) > LARGEST_INTEGER:
            raise ValueError("no place")
        return place, text
    except (ValueError, binascii.Error):
        raise refuse("cursor.invalid", "this cursor is none of this server") from None
