"""Parts of UTF-8 text, chosen by byte offsets or by lines, never inside a character."""

from collections.abc import Callable

from scv.errors import BadArguments, ToolError
from scv.values import frozen

ReadBytes = Callable[[int, int], bytes]
"""Takes offset and length, both within the text."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@frozen
class Part:
    """Bytes `start` to `end` of a text."""

    start: int
    end: int
    data: bytes


def select(
    read: ReadBytes, total: int, *, offset: int, limit: int, limit_is_ours: bool
) -> Part:
    """Take up to `limit` bytes; a limit of ours gives way to a character boundary.

    Raises:
        BadArguments: The caller's own offset or limit is beyond the end or would
            split a character; the message names the nearest boundaries.
    """
    if offset > total:
        raise BadArguments(
            f"`offset` {offset} is beyond the end: there are {total} bytes in total",
            field="offset",
        )
    end = min(offset + limit, total)
    first = max(0, offset - 3)
    window = read(first, min(end + 3, total) - first)
    around = _character_around(window, offset - first)
    if around:
        before, after = around[0] + first, around[1] + first
        raise BadArguments(
            f"`offset` {offset} is inside a character; "
            f"the nearest boundaries are {before} and {after}",
            field="offset",
        )
    around = _character_around(window, end - first)
    if around:
        before, after = around[0] + first, around[1] + first
        if not limit_is_ours:
            below = f"{before - offset} or " if before > offset else ""
            raise BadArguments(
                f"`limit` {limit} ends inside a character; "
                f"send {below}{after - offset} instead",
                field="limit",
            )
        end = before if before > offset else after
    return Part(offset, end, window[offset - first : end - first])


def select_lines(
    data: bytes, *, start_line: int, line_count: int | None, limit: int
) -> tuple[Part, int, int]:
    """Take whole lines of a text held in memory, as many as fit into `limit` bytes.

    A first line that alone is longer is cut at a character. Returns the part, the
    number of its last line, and how many lines there are.

    Raises:
        BadArguments: There is no such line.
    """
    lines = data.count(b"\n") + (not data.endswith(b"\n") and data != b"")
    if start_line > max(lines, 1):
        raise BadArguments(
            f"`start_line` {start_line} is beyond the end: there are {lines} lines",
            field="start_line",
        )
    start = 0
    for _ in range(start_line - 1):
        start = data.index(b"\n", start) + 1
    end, last = start, start_line - 1
    while end < len(data) and (
        line_count is None or last - start_line + 1 < line_count
    ):
        newline = data.find(b"\n", end)
        after = newline + 1 if newline >= 0 else len(data)
        if after - start > limit:
            break
        end, last = after, last + 1
    if end == start and start < len(data):
        end = min(start + limit, len(data))
        around = _character_around(data, end)
        if around:
            end = around[0] if around[0] > start else around[1]
        last = start_line
    return Part(start, end, data[start:end]), max(last, 0), lines


def decode(part: Part, what: str) -> str:
    """Decode a part strictly.

    Raises:
        ToolError: It is not UTF-8; the message names the offset of the first bad byte.
    """
    try:
        return part.data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{what} is not UTF-8 text: byte 0x{part.data[error.start]:02x} at offset "
            f"{part.start + error.start}. Nothing is shown rather than wrong text; "
            "use `bash` with a converter such as iconv, or read a range without it."
        ) from None


def _character_around(data: bytes, position: int) -> tuple[int, int] | None:
    """Find the valid character that begins before `position` and ends after it."""
    if not 0 < position < len(data) or data[position] & 0xC0 != 0x80:
        return None
    for start in range(position - 1, max(-1, position - 4), -1):
        lead = data[start]
        if lead & 0xC0 == 0x80:
            continue
        length = 2 if lead >> 5 == 6 else 3 if lead >> 4 == 14 else 4
        try:
            data[start : start + length].decode()
        except UnicodeDecodeError:
            return None
        return (start, start + length) if start + length > position else None
    return None
