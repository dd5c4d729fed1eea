"""Keep a bounded, readable part of what a command prints.

Head and tail stay in memory; everything together goes to a file without a name
while it is small enough to be worth keeping. Text leaves this module as a model
or a person may see it: valid Unicode without terminal sequences.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import IO

from scv.values import frozen

WHOLE_LIMIT_BYTES = 16_777_216
"""Longest output that is kept whole beside head and tail."""

_SLACK_BYTES = 256  # so that a cut through a sequence or a character is not seen
_BLOCK_BYTES = 65_536
_LONGEST_LINE_BYTES = 1_048_576

_UNPLAIN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"  # colours, cursor, erasing
    # titles, links, images: whole when ended on the same line, else only the opening
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*"
    "(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]?"
)
_LINE_END = re.compile("(?<!\r)\r+\n|[\x0b\x0c]")  # looks at a run of them once
_ERASED = re.compile("[^\n\x08]\x08")
_DROPPED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")


def plain_text(text: str) -> str:
    """Take out terminal sequences and control characters; keep line feeds and tabs.

    Backspaces erase. Carriage returns before a line feed go; a line that was
    rewritten more than twice shows its first and its last state.
    """
    if _UNPLAIN.search(text) is None:
        return text
    text = _LINE_END.sub("\n", _SEQUENCE.sub("", text))
    for _ in range(32):
        shorter = _ERASED.sub("", text)
        if len(shorter) == len(text):
            break
        text = shorter
    if "\r" in text:
        text = "\n".join(map(_states, text.split("\n")))
    return _DROPPED.sub("", text)


def _states(line: str) -> str:
    if "\r" not in line:
        return line
    states = [state for state in line.split("\r") if state.strip()]
    if len(states) <= 3:
        return "\n".join(states)
    return f"{states[0]}\n[… rewritten {len(states) - 2} times …]\n{states[-1]}"


@frozen
class CapturedText:
    """Output for a model: `is_cut` when its middle is missing, `has_replacements`
    when bytes that are not UTF-8 became U+FFFD."""

    text: str
    is_cut: bool
    has_replacements: bool


class Capture:
    """Takes bytes as they come, in memory of a few times the limit."""

    def __init__(self, limit_bytes: int) -> None:
        """Set the longest text to give out, in bytes of UTF-8."""
        self.total_bytes = 0
        self._limit = limit_bytes
        self._kept = limit_bytes // 2 + _SLACK_BYTES
        self._head = bytearray()
        self._tail = bytearray()
        self._file: IO[bytes] | None = None
        self._is_whole = True

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._keep_whole(data)
        self.total_bytes += len(data)
        missing = self._kept - len(self._head)
        if missing > 0:
            self._head += data[:missing]
            data = data[missing:]
        if len(data) >= self._kept:
            self._tail[:] = data[-self._kept :]
        elif data:
            self._tail += data
            if len(self._tail) > 2 * self._kept:
                del self._tail[: -self._kept]

    def text(self) -> CapturedText:
        """Give what was printed: all of it, or head and tail with a line between."""
        head, tail = bytes(self._head), bytes(self._tail[-self._kept :])
        if self.total_bytes <= self._limit:
            text, replaced = _decode(bytes(self._head + self._tail))
            encoded = text.encode()
            if len(encoded) <= self._limit:
                return CapturedText(text, False, replaced)
            first = last = encoded
        else:
            head_text, head_replaced = _decode(_without_open_end(head))
            tail_text, tail_replaced = _decode(_from_a_start(tail))
            replaced = head_replaced or tail_replaced
            first, last = head_text.encode(), tail_text.encode()
        half = self._limit // 2
        # what was valid stays valid: only the character at the cut is left out
        start = first[: self._limit - half].decode("utf-8", "ignore")
        end = last[max(0, len(last) - half) :].decode("utf-8", "ignore")
        gap = f"[… the middle is cut out; {self.total_bytes} bytes in all …]"
        return CapturedText(f"{start}\n{gap}\n{end}", True, replaced)

    def recent(self, *, lines: int = 10, limit_bytes: int = 2048) -> str:
        """Give the newest lines as plain text."""
        newest = bytes(self._tail[-limit_bytes:])
        if len(newest) < limit_bytes:
            newest = bytes(self._head + self._tail)[-limit_bytes:]
        if len(newest) < self.total_bytes:
            newest = _from_a_start(newest)
        text, _ = _decode(newest)
        return "\n".join(text.split("\n")[-lines:])

    def whole(self) -> bytes | None:
        """Give all of a cut output as plain UTF-8 text; None when too long to keep.

        Blocks for up to some tenths of a second: call it in a thread.
        """
        if not self._is_whole:
            return None
        if self._file is None:
            return _decode(bytes(self._head + self._tail))[0].encode()
        try:
            self._file.seek(0)
            return b"".join(_decode(part)[0].encode() for part in _parts(self._file))
        except OSError:  # no room for its last bytes
            return None

    def close(self) -> None:
        """Give the disk space back."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it still held does not matter
                self._file.close()
            self._file = None

    def _keep_whole(self, data: bytes) -> None:
        total = self.total_bytes + len(data)
        if not self._is_whole or total <= self._limit:
            return
        try:
            if total > WHOLE_LIMIT_BYTES:
                self._is_whole = False
                self.close()
            elif self._file is None:
                import tempfile

                self._file = tempfile.TemporaryFile()
                self._file.write(self._head + self._tail + data)
            else:
                self._file.write(data)
        except OSError:  # no room: head and tail are what counts
            self._is_whole = False
            self.close()


def _decode(data: bytes) -> tuple[str, bool]:
    try:
        return plain_text(data.decode("utf-8")), False
    except UnicodeDecodeError:
        return plain_text(data.decode("utf-8", "replace")), True


def _without_open_end(data: bytes) -> bytes:
    """Leave out the first bytes of a character whose rest was cut off."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2
            return data[:-back] if byte >= 0xC0 and back < length else data
    return data


def _from_a_start(data: bytes) -> bytes:
    """Leave out the rest of a line, or at least of a character, that began before."""
    line_end = data.find(b"\n", 0, _SLACK_BYTES)
    if line_end >= 0:
        return data[line_end + 1 :]
    for start in range(min(3, len(data))):
        if data[start] & 0xC0 != 0x80:
            return data[start:]
    return data[3:]


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    """Split at line ends where possible, so that no sequence is torn apart."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        rest += block
        end = rest.rfind(b"\n") + 1
        if end == 0 and len(rest) > _LONGEST_LINE_BYTES:
            end = len(_without_open_end(rest))
        if end:
            yield rest[:end]
            rest = rest[end:]
    yield rest
