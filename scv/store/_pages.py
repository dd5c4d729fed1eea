"""Read rows straight from the pages of a damaged database.

Tables without rowids are index trees, so every leaf and inner page holds whole
rows: each page is read for itself, whatever happened to the pages above it.
What is not a row, or not one of ours, fails its checksum later.

Source: https://www.sqlite.org/fileformat2.html, sections 1.5 to 2.1 and 4.1.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any

from scv.store._schema import PAGE_BYTES

_LARGEST_LOCAL = (PAGE_BYTES - 12) * 64 // 255 - 23
_SMALLEST_LOCAL = (PAGE_BYTES - 12) * 32 // 255 - 23
_HEADER = {0x0A: 8, 0x02: 12}  # index leaf, inner index page
_FRAME_HEADER = 24
_MAX_PAYLOAD = 1 << 30
_LONGEST_HEAD = 100
"""No table of ours has columns enough for a longer record header."""
_MOST_SEARCHED = 5_000
"""Pages searched byte by byte, at some milliseconds each."""


def log_tail(path: str) -> int:
    """Count the bytes of a write-ahead log behind its last complete transaction.

    Frames that an earlier round of the log left behind do not count.
    """
    with open(path, "rb") as file:
        header = file.read(32)
        size = file.seek(0, 2)
        if len(header) < 32:
            return size
        frame_bytes = _FRAME_HEADER + PAGE_BYTES
        end = offset = 32
        while offset < size:
            file.seek(offset)
            frame = file.read(_FRAME_HEADER)
            if len(frame) == _FRAME_HEADER and frame[8:16] != header[16:24]:
                return offset - end
            offset += frame_bytes
            if offset <= size and frame[4:8] != b"\0\0\0\0":
                end = offset
        return size - end


def read_rows(main: int, log: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield whatever can be decoded as a row, of any table or index.

    First what the pages point to; then, in pages that this left unexplained,
    whatever begins at any byte. `main` and `log` are descriptors.
    """
    pages = _Pages(main, log)
    free = pages.free()
    broken = []
    for number in range(1, pages.count + 1):
        if number not in free:
            yield from pages.rows(number)
            if not pages.is_sound:
                broken.append(number)
    unexplained = [number for number in broken if number not in pages.overflow]
    for number in unexplained[:_MOST_SEARCHED]:
        yield from pages.search(number)


class _Pages:
    """Pages of the file as they are after the log's complete transactions."""

    def __init__(self, main: int, log: int | None) -> None:
        self._main, self._log = main, log
        self._changed = {} if log is None else _logged_pages(log)
        self.count = max(os.fstat(main).st_size // PAGE_BYTES, *self._changed, 0)
        self.overflow: set[int] = set()
        self.is_sound = True

    def page(self, number: int) -> bytes:
        """One page; short or empty when it does not exist."""
        if not 0 < number <= self.count:
            return b""
        offset = self._changed.get(number)
        if offset is not None and self._log is not None:
            return os.pread(self._log, PAGE_BYTES, offset)
        return os.pread(self._main, PAGE_BYTES, (number - 1) * PAGE_BYTES)

    def free(self) -> set[int]:
        """Pages on the free list, as far as it can be followed."""
        found: set[int] = set()
        trunk = _number(self.page(1), 32)
        while 0 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            page = self.page(trunk)
            count = min(_number(page, 4), PAGE_BYTES // 4 - 2)
            found.update(_number(page, 8 + 4 * index) for index in range(count))
            trunk = _number(page, 0)
        return found

    def rows(self, number: int) -> Iterator[tuple[Any, ...]]:
        """Decode the cells of one page; then `is_sound` says whether all made sense."""
        page = self.page(number)
        self.is_sound = len(page) == PAGE_BYTES and page[0] in _HEADER
        if not self.is_sound:
            return
        header = _HEADER[page[0]]
        for index in range(min(_short(page, 3), PAGE_BYTES // 2)):
            position = _short(page, header + 2 * index) + header - 8
            row = self._row(page, position)
            if row is None:
                self.is_sound = False
            else:
                yield row

    def search(self, number: int) -> Iterator[tuple[Any, ...]]:
        """Try every byte of a page as the beginning of a row."""
        page = self.page(number)
        for position in range(len(page)):
            row = self._row(page, position)
            if row is not None and len(row) > 1:
                yield row

    def _row(self, page: bytes, position: int) -> tuple[Any, ...] | None:
        try:
            return _record(self._payload(page, position))
        except (ValueError, IndexError):
            return None

    def _payload(self, page: bytes, position: int) -> bytes:
        size, position = _varint(page, position)
        if not 0 < size < _MAX_PAYLOAD:
            raise ValueError
        if size <= _LARGEST_LOCAL:
            if position + size > PAGE_BYTES:
                raise ValueError
            return page[position : position + size]
        local = _SMALLEST_LOCAL + (size - _SMALLEST_LOCAL) % (PAGE_BYTES - 4)
        if local > _LARGEST_LOCAL:
            local = _SMALLEST_LOCAL
        if position + local + 4 > PAGE_BYTES or page[position] > _LONGEST_HEAD:
            raise ValueError
        parts = [page[position : position + local]]
        following, rest, chain = _number(page, position + local), size - local, set()
        while rest > 0:
            content = self.page(following)
            if len(content) < PAGE_BYTES or following in chain:
                raise ValueError
            chain.add(following)
            parts.append(content[4 : 4 + rest])
            following, rest = _number(content, 0), rest - (PAGE_BYTES - 4)
        self.overflow |= chain
        return b"".join(parts)


def _logged_pages(log: int) -> dict[int, int]:
    """Find the newest image of each page in complete transactions of the log."""
    done: dict[int, int] = {}
    running: dict[int, int] = {}
    salts = os.pread(log, 32, 0)[16:24]
    frame_bytes = _FRAME_HEADER + PAGE_BYTES
    for offset in range(32, os.fstat(log).st_size - frame_bytes + 1, frame_bytes):
        frame = os.pread(log, _FRAME_HEADER, offset)
        if frame[8:16] != salts:
            break
        running[_number(frame, 0)] = offset + _FRAME_HEADER
        if _number(frame, 4):
            done.update(running)
            running.clear()
    return done


def _record(payload: bytes) -> tuple[Any, ...]:
    head, position = _varint(payload, 0)
    if head > _LONGEST_HEAD:
        raise ValueError
    kinds = []
    while position < head:
        kind, position = _varint(payload, position)
        kinds.append(kind)
    position, values = head, []
    for kind in kinds:
        size = _size(kind)
        if position + size > len(payload):
            raise ValueError
        values.append(_value(kind, payload[position : position + size]))
        position += size
    return tuple(values)


def _size(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind]


def _value(kind: int, data: bytes) -> Any:
    if kind >= 12:
        return data.decode() if kind % 2 else data
    if kind in (0, 8, 9):
        return None if kind == 0 else kind - 8
    if kind == 7:
        return struct.unpack(">d", data)[0]
    return int.from_bytes(data, "big", signed=True)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[position + count]
        if count == 8:
            return value << 8 | byte, position + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position + count + 1
    raise ValueError


def _number(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big")


def _short(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 2], "big")
