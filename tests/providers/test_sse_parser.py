"""The event parser alone, on bytes cut at every place."""

import random
import time
from itertools import pairwise

import pytest

from scv.errors import ResponseLimit
from scv.providers.sse import SseParser


def parse(*chunks: bytes, limit: int = 1000) -> list[tuple[bytes, bytes]]:
    parser = SseParser(limit)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return [*events, *parser.finish()]


CASES = [
    (b"data: a\n\n", [(b"", b"a")]),
    (b"data:a\n\ndata:  b\n\n", [(b"", b"a"), (b"", b" b")]),
    (b"event: x\ndata: a\n\n", [(b"x", b"a")]),
    (b"event:x\r\ndata:a\r\n\r\n", [(b"x", b"a")]),
    (b"data: a\rdata: b\r\rdata: c\r\r", [(b"", b"a\nb"), (b"", b"c")]),
    (b"data: a\r\n\rdata: b\n\r\n", [(b"", b"a"), (b"", b"b")]),
    (b"data: a\ndata: b\ndata\ndata:\n\n", [(b"", b"a\nb\n\n")]),
    (b"data: a\nevent: late\n\n", [(b"late", b"a")]),
    (b"event: x\nid: 7\nretry: 10\ndata: a\n\n", [(b"x", b"a")]),
    (b": ping\n\nevent: ping\n\ndata:\n\ndata\n\n\n\n\ndata: a\n\n", [(b"", b"a")]),
    (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a")]),
    (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\ndata: b\n\n", [(b"", b"b")]),
    ("data: \u4f60\u2028\u2029\x85\x0b\x0c\n\n".encode(),
     [(b"", "\u4f60\u2028\u2029\x85\x0b\x0c".encode())]),
    (b"data: whole line, no blank one\n", [(b"", b"whole line, no blank one")]),
    (b"datas: a\ndata : b\nDATA: c\n\n", []),
    (b"", []),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "expected"), CASES)
def test_every_cut_gives_the_same_events(stream, expected):
    assert parse(stream) == expected
    assert parse(*(stream[i : i + 1] for i in range(len(stream)))) == expected
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == expected
        assert parse(stream[:cut], b"", stream[cut:]) == expected


def test_random_cuts_of_random_streams_agree(seed):
    dice = random.Random(seed)
    parts = [b"data: x", b"data:", b"event: e", b":c", b"\n", b"\r\n", b"\r", b"\n\n"]
    for _ in range(300):
        stream = b"".join(dice.choices([*parts, "\u2028é".encode()], k=30))
        cuts = sorted(dice.choices(range(len(stream) + 1), k=6))
        edges = [0, *cuts, len(stream)]
        pieces = [stream[a:b] for a, b in pairwise(edges)]
        assert parse(*pieces, limit=9999) == parse(stream, limit=9999)


def test_a_cr_at_the_end_of_a_chunk_ends_its_line_at_once():
    parser = SseParser(100)

    assert parser.feed(b"data: a\r\r") == [(b"", b"a")]
    assert parser.feed(b"\ndata: b\n\n") == [(b"", b"b")]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_an_event_at_the_limit_passes_and_one_byte_more_does_not(step):
    fits = b"data: " + b"x" * 94 + b"\n\n"
    too_long = b"data: " + b"x" * 95 + b"\n\n"

    def cut(stream):
        return [stream[i : i + step] for i in range(0, len(stream), step)]

    assert len(parse(*cut(fits * 3), limit=100)) == 3
    with pytest.raises(ResponseLimit) as caught:
        parse(*cut(fits + too_long), limit=100)
    assert caught.value.code == "response_limit"


def test_an_endless_event_is_refused_before_it_ends():
    parser = SseParser(1000)

    for _ in range(10):
        parser.feed(b"x" * 100)
    with pytest.raises(ResponseLimit):
        parser.feed(b"x")


def test_twenty_thousand_events_cost_little():
    data = b"".join(
        b'event: response.output_text.delta\ndata: {"delta":"tok","n":%d}\n\n' % i
        for i in range(20_000)
    )
    chunks = [data[i : i + 65_536] for i in range(0, len(data), 65_536)]
    parser = SseParser(1 << 20)

    before = time.process_time()
    count = sum(len(parser.feed(chunk)) for chunk in chunks)
    spent = time.process_time() - before

    assert count == 20_000
    assert spent < 5 * 0.1  # goal: well under 0.1 s
