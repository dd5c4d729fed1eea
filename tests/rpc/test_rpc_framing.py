"""Frames: every splitting of a stream gives the same bodies and the same refusals."""

import pytest

from scv.errors import FrameTooLarge, ProtocolError
from scv.rpc import FrameDecoder, encode_frame

BODIES = [b"{}", b"", '{"text":"你好 🍸 é"}'.encode(), b"\r\n\r\n", b"x" * 300]


def check(stream: bytes, expected: list[bytes | type[ProtocolError]]) -> None:
    """Feed a stream whole, byte by byte, and split in two at every byte."""
    splittings = [[stream], [stream[i : i + 1] for i in range(len(stream))]]
    splittings += [[stream[:i], stream[i:]] for i in range(len(stream))]
    for pieces in splittings:
        decoder = FrameDecoder(1000)
        found = [frame for piece in pieces for frame in decoder.feed(piece)]
        assert [f if isinstance(f, bytes) else type(f) for f in found] == expected
        if expected and not isinstance(expected[-1], bytes):
            assert decoder.feed(encode_frame(b"{}")) == []


def test_frames_come_out_as_they_went_in_however_split() -> None:
    check(b"".join(map(encode_frame, BODIES)), list(BODIES))


@pytest.mark.parametrize(
    "header",
    [
        "content-length: 2",
        "CONTENT-LENGTH:2",
        "Content-Length: \t 002 ",
        f"Content-Length: {'0' * 5000}2",
        "Content-Type: application/vscode-jsonrpc; charset=utf8\r\nContent-Length: 2",
        "Content-Length: 2\r\ncontent-type: application/vscode-jsonrpc;charset=UTF-8",
        'Content-Length: 2\r\nContent-Type: a/b; charset="utf-8"; x=y',
        "Content-Type: application/json\r\nContent-Length: 2\r\nX-Other: a: b",
    ],
)
def test_every_legal_spelling_of_a_header_is_understood(header: str) -> None:
    frame = header.encode() + b"\r\n\r\n{}"

    check(frame + frame, [b"{}", b"{}"])


@pytest.mark.parametrize(
    "header",
    [
        "\r\n\r\n",
        "Content-Type: a/b\r\n\r\n",
        "Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
        "Content-Length: -2\r\n\r\n",
        "Content-Length: +2\r\n\r\n",
        "Content-Length: 2_0\r\n\r\n",
        "Content-Length: 0x2\r\n\r\n",
        "Content-Length: \r\n\r\n",
        "Content-Length: ²\r\n\r\n",
        "Content-Length 2\r\n\r\n",
        "Content-Length: 2\r\nContent-Type: a/b; charset=latin-1\r\n\r\n",
        "Content-Length: 2\n\n",
        "\nContent-Length: 2\r\n\r\n",
        "Content-Length: 2\r\nX: y\nZ: z\r\n\r\n",
        '{"jsonrpc":"2.0","id":1,"method":"initialize"}\n',
    ],
)
def test_a_malformed_header_ends_the_stream_behind_good_frames(header: str) -> None:
    check(encode_frame(b"{}") + header.encode(), [b"{}", error_of(header)])


def error_of(header: str) -> type[ProtocolError]:
    (error,) = FrameDecoder(1000).feed(header.encode())
    assert isinstance(error, ProtocolError)
    assert error.code == -32700
    return type(error)


@pytest.mark.parametrize("end", ["", "\r\n\r\n"])
def test_a_header_block_is_bounded(end: str) -> None:
    short = f"X: {'y' * 8000}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    long = f"X: {'y' * 8200}{end}".encode()

    assert FrameDecoder(10).feed(short) == [b"{}"]
    (error,) = FrameDecoder(10).feed(long)
    assert isinstance(error, ProtocolError)
    assert error.code == -32700


@pytest.mark.parametrize("length", ["1001", "99999999999", "9" * 7000])
def test_a_length_over_the_limit_is_refused_with_the_limit(length: str) -> None:
    (error,) = FrameDecoder(1000).feed(f"Content-Length: {length}\r\n\r\n".encode())

    assert isinstance(error, FrameTooLarge)
    assert error.code == 4261
    assert error.data["code"] == "limit.message"
    assert error.data["maxBytes"] == 1000


def test_a_length_over_the_limit_is_refused_however_split() -> None:
    check(b"Content-Length: 1001\r\n\r\n" + b"x" * 50, [FrameTooLarge])


def test_a_frame_of_exactly_the_limit_passes() -> None:
    assert FrameDecoder(1000).feed(encode_frame(b"x" * 1000)) == [b"x" * 1000]


def test_a_big_body_in_single_bytes_costs_linear_time() -> None:
    """Copying what is kept at every byte would move a terabyte here."""
    body = b"x" * 2_000_000
    decoder = FrameDecoder(len(body))
    frame = encode_frame(body)

    found = [out for i in range(len(frame)) for out in decoder.feed(frame[i : i + 1])]

    assert found == [body]
