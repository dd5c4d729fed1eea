"""Server-sent events without I/O: bytes in, events out.

Only CR, LF and CRLF end a line (never U+2028, as text splitting would have it).
A CR ends its line at once, also as the last byte of a chunk; an LF that follows
in the next chunk belongs to it. One leading byte-order mark is skipped. Sizes
are checked on the bytes, before anything is decoded.

Source: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6.
"""

from scv.errors import ResponseLimit

_BOM = b"\xef\xbb\xbf"


Event = tuple[bytes, bytes]
"""Name (empty when the stream gave none) and data; plain, because there are many."""


class SseParser:
    """Splits a byte stream into events; feed it chunks of any size.

    Args:
        max_event_bytes: Most bytes between two blank lines, field names included.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []  # the unfinished event, lines ended by LF
        self._held = 0  # bytes in the pieces
        self._skip_lf = False
        self._started = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Return the events that `chunk` completes.

        Raises:
            ResponseLimit: An event, finished or not, is over the limit.
        """
        if not self._started:
            chunk = self._begin(chunk)
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._pieces.append(chunk)
        self._held += len(chunk)
        if b"\n" not in chunk:
            if self._held > self._limit:
                raise self._too_large()
            return []
        blocks = b"".join(self._pieces).split(b"\n\n")
        rest = blocks.pop()
        self._pieces, self._held = [rest], len(rest)
        if len(rest) - rest.endswith(b"\n") > self._limit:
            raise self._too_large()
        return self._events(blocks)

    def finish(self) -> list[Event]:
        """Return the event that lacks only its blank line when the stream ends."""
        rest = b"".join(self._pieces)
        self._pieces, self._held = [], 0
        return self._events([rest])

    def _begin(self, chunk: bytes) -> bytes:
        head = b"".join(self._pieces) + chunk
        self._pieces, self._held = [], 0
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._pieces, self._held = [head], len(head)
            return b""
        self._started = True
        return head.removeprefix(_BOM)

    def _events(self, blocks: list[bytes]) -> list[Event]:
        events: list[Event] = []
        limit = self._limit
        for block in blocks:
            if len(block) > limit:
                raise self._too_large()
            # The two shapes nearly all events have; anything else goes line by line.
            if block.startswith(b"data: "):
                name, data = b"", block[6:]
            elif block.startswith(b"event: "):
                name, _, data = block[7:].partition(b"\ndata: ")
            else:
                data = b""
            if not data or b"\n" in data or b"\n" in name:
                name, data = _fields(block)
            if data:
                events.append((name, data))
        return events

    def _too_large(self) -> ResponseLimit:
        return ResponseLimit(
            f"one event of the model's answer is over {self._limit} bytes",
            code="response_limit",
        )


def _fields(block: bytes) -> tuple[bytes, bytes]:
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return name, b"\n".join(data)
