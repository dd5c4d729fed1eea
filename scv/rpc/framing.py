"""Frames of the LSP base protocol, as pure data: bytes in, bodies out.

A frame is a header block, an empty line and `Content-Length` bytes of body.
Nothing here reads or writes; the decoder may be fed any splitting of a stream
and finds the same frames, at a cost linear in the bytes fed.

Source: docs/protocol.md, "Transports and framing".
"""

from scv.errors import FrameTooLarge, InvalidMessage, ProtocolError

HEADER_LIMIT_BYTES = 8 * 1024
"""Longest header block; the longest one in use is about 90 bytes."""

_USUAL = b"Content-Length: "  # the whole header of nearly every client
_END_OF_HEADER = b"\r\n\r\n"
_PARSE_ERROR = -32700
_LENGTH_DIGITS = 15
"""More significant digits than any limit has: refused without building the number."""


def encode_frame(body: bytes) -> bytes:
    """Put the header before a body."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameDecoder:
    """Cut a byte stream into bodies.

    A header that breaks the rules ends the stream, because nothing tells where
    the next frame starts: the error is the last thing `feed` ever returns.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._scanned = 0  # start of the buffer in which no header end was found
        self._length: int | None = None  # of the body, once its header is read
        self._is_broken = False

    def feed(self, data: bytes) -> list[bytes | ProtocolError]:
        """Take the next bytes and return the bodies they complete.

        A declared length over the limit is refused before any of the body is kept.
        """
        if self._is_broken:
            return []
        source: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            source = self._buffer
        found: list[bytes | ProtocolError] = []
        at = 0
        try:
            while True:
                if self._length is None:
                    end = self._find_header_end(source, at)
                    if end < 0:
                        break
                    self._length = self._read_header(bytes(source[at:end]))
                    at = end + len(_END_OF_HEADER)
                end = at + self._length
                if len(source) < end:
                    break
                found.append(bytes(source[at:end]))
                at, self._length = end, None
        except ProtocolError as error:
            found.append(error)
            self._is_broken = True
            self._buffer.clear()
            return found
        if source is data:
            self._buffer += data[at:] if at else data
        elif at:
            del self._buffer[:at]
        return found

    def _find_header_end(self, source: bytes | bytearray, at: int) -> int:
        """Find the empty line after a header, or -1 when it has not come yet."""
        scanned, self._scanned = self._scanned, 0
        end = source.find(_END_OF_HEADER, at + max(0, scanned - 3))
        if (end if end >= 0 else len(source)) - at > HEADER_LIMIT_BYTES:
            raise _broken(f"the header is longer than {HEADER_LIMIT_BYTES} bytes")
        if end < 0:
            # Waiting for the right end after a bare line feed would be a hang.
            fresh = source[at + scanned - 1 :] if scanned else b" " + source[at:]
            if fresh.count(b"\n", 1) != fresh.count(b"\r\n"):
                raise _broken("header lines must end with CR LF")
            self._scanned = len(source) - at
        return end

    def _read_header(self, block: bytes) -> int:
        if block.startswith(_USUAL) and block[len(_USUAL) :].isdigit():
            return self._check_length(block[len(_USUAL) :])
        length: int | None = None
        for line in block.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            name, value = name.lower(), value.strip(b" \t")
            if not colon or b"\n" in line:
                raise _broken("a header line must be `Name: value`")
            if name == b"content-length":
                if length is not None or not value.isdigit():
                    raise _broken("Content-Length must be given once, in digits only")
                length = self._check_length(value)
            elif name == b"content-type":
                _check_charset(value)
        if length is None:
            raise _broken("a frame needs a Content-Length header")
        return length

    def _check_length(self, digits: bytes) -> int:
        if len(digits) > _LENGTH_DIGITS:
            digits = digits.lstrip(b"0") or b"0"
        if (
            len(digits) <= _LENGTH_DIGITS
            and (length := int(digits)) <= self._limit_bytes
        ):
            return length
        raise too_large(self._limit_bytes)


def too_large(limit_bytes: int) -> FrameTooLarge:
    """Build the error for a body over the limit, either way."""
    return FrameTooLarge(
        f"a message must not be longer than {limit_bytes} bytes",
        data={"code": "limit.message", "retryable": False, "maxBytes": limit_bytes},
    )


def _check_charset(content_type: bytes) -> None:
    for parameter in content_type.lower().split(b";")[1:]:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"charset" and value.strip(b' \t"') not in (
            b"utf-8",
            b"utf8",
        ):
            raise _broken("the charset must be utf-8")


def _broken(message: str) -> InvalidMessage:
    return InvalidMessage(f"bad frame: {message}", code=_PARSE_ERROR)
