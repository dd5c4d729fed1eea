"""The chunked decoder alone: every cut, and what it refuses."""

import random

import pytest

from scv.providers.chunked import ChunkedDecoder

WHOLE = [
    (b"0\r\n\r\n", b"", b""),
    (b"3\r\nabc\r\n0\r\n\r\n", b"abc", b""),
    (b"3\r\nabc\r\n2;ext=\"1\"\r\nde\r\nA \r\n0123456789\r\n0\r\n\r\n",
     b"abcde0123456789", b""),
    (b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", b"0\r\n\r\n", b""),
    (b"003\nabc\n0\n\n", b"abc", b""),
    (b"1\r\na\r\n0\r\nTrailer: x\r\nMore: y\r\n\r\n", b"a", b""),
    (b"1\r\na\r\n0\r\n\r\nHTTP/1.1 200", b"a", b"HTTP/1.1 200"),
]  # fmt: skip


def decode(*chunks):
    decoder = ChunkedDecoder()
    body = b"".join(decoder.feed(chunk) for chunk in chunks if not decoder.is_done)
    return body, decoder


@pytest.mark.parametrize(("stream", "body", "surplus"), WHOLE)
def test_every_cut_gives_the_same_body(stream, body, surplus):
    got, decoder = decode(stream)
    assert (got, decoder.is_done, decoder.surplus) == (body, True, surplus)

    assert decode(*(stream[i : i + 1] for i in range(len(stream))))[0] == body
    for cut in range(len(stream)):
        got, decoder = decode(stream[:cut], stream[cut:])
        assert got == body
        assert decoder.is_done


@pytest.mark.parametrize(
    "stream",
    [b"x\r\n", b"\r\n", b"-1\r\na\r\n", b"0x1\r\na\r\n", b"1_0\r\na", b"+1\r\na\r\n",
     b"2\r\nabc\r\n", b"1\r\nab\r\n", b"f" * 16 + b"\r\n", b"1;" + b"x" * 5000,
     b"0\r\n" + b"x" * 5000],
)  # fmt: skip
def test_broken_framing_is_refused(stream):
    with pytest.raises(ValueError, match="chunk"):
        decode(stream)


def test_random_chunks_at_random_cuts(seed):
    dice = random.Random(seed)
    for _ in range(200):
        parts = [dice.randbytes(dice.choice([1, 2, 15, 16, 300])) for _ in range(9)]
        stream = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
        pieces, at = [], 0
        while at < len(stream):
            size = dice.choice([1, 2, 3, 50, 500])
            pieces.append(stream[at : at + size])
            at += size
        got, decoder = decode(*pieces)
        assert got == b"".join(parts)
        assert decoder.is_done
