"""Output is bounded while it is read, and inert when it is shown."""

import os
import random
from pathlib import Path

import pytest

from scv.host.output import WHOLE_LIMIT_BYTES, Capture, CapturedText, plain_text


def captured(data: bytes, *, limit: int = 65_536, piece: int = 4096) -> CapturedText:
    capture = Capture(limit)
    for start in range(0, len(data), piece):
        capture.feed(data[start : start + piece])
    assert capture.total_bytes == len(data)
    text = capture.text()
    capture.close()
    return text


def whole(data: bytes, *, limit: int, piece: int = 4096) -> bytes | None:
    capture = Capture(limit)
    for start in range(0, len(data), piece):
        capture.feed(data[start : start + piece])
    kept = capture.whole()
    capture.close()
    return kept


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m \x1b]0;owned\x07 x\n", "red  x\n"),
        ("\x1b]0;a\x07between\x1b]0;b\x07", "between"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended\nnext", "0;never ended\nnext"),
        ("\x1bP1;2qdata\x1b\\after", "after"),
        ("\x9b31mred\x9d0;t\x9cx", "redx"),
        ("\x1b(B\x1b7\x1b=x\x1bM", "x"),
        ("\x1b[38;2;1;2;3mx\x1b[?25l\x1b[2K", "x"),
        ("cut off \x1b[3", "cut off "),
        ("a\x00b\x07c\x7fd\x85e", "abcde"),
        ("one\r\ntwo\r\r\n", "one\ntwo\n"),
        ("10%\r20%\rdone\n", "10%\n20%\ndone\n"),
        ("1\r2\r3\r4\r5\n", "1\n[… rewritten 3 times …]\n5\n"),
        ("N\x08NA\x08A _\x08x\n", "NA x\n"),
        ("50%\x08\x08\x0860%", "60%"),
        ("\x08x", "x"),
        ("page\x0cpage\x0bline", "page\npage\nline"),
        ("你好 🍸 é", "你好 🍸 é"),
    ],
)
def test_out_4_text_is_plain(raw: str, plain: str) -> None:
    assert plain_text(raw) == plain


def test_out_4_hostile_lines_take_linear_time() -> None:
    for piece in ("\x1b]", "\x9d", "\x1b[", "\r", "x\r", "\x08", "x\x08", "\x1b]0;x"):
        plain_text(piece * 200_000 + "x" * 200_000)


def test_out_1_undecodable_bytes_are_replaced_and_said() -> None:
    assert captured(b"\xff\xfeab\n") == CapturedText("\ufffd\ufffdab\n", False, True)
    assert captured("é".encode()) == CapturedText("é", False, False)


def test_out_2_no_surrogate_comes_out() -> None:
    for raw in (b"\xe1\n", b"\xed\xa0\x80", b"\xed\xb0\x80x", b"\xf4\x90\x80\x80"):
        text = captured(raw)
        assert text.has_replacements
        assert text.text.encode("utf-8")


def test_short_output_is_kept_exactly() -> None:
    assert captured(b"") == CapturedText("", False, False)
    assert captured(b"x") == CapturedText("x", False, False)
    assert captured(b"y" * 1000, limit=1000) == CapturedText("y" * 1000, False, False)


def test_head_and_tail_are_kept_with_the_total() -> None:
    data = b"".join(b"line %06d\n" % number for number in range(10_000))

    text = captured(data, limit=1000)

    assert text.is_cut
    assert text.text.startswith("line 000000\nline 000001\n")
    assert text.text.endswith("line 009998\nline 009999\n")
    assert f"{len(data)} bytes in all" in text.text


def test_a_cut_never_splits_a_character_or_sequence(seed: int) -> None:
    rng = random.Random(seed)
    pieces = ("a", "é", "你", "🍸", "\x1b[31m", "\n")
    for _ in range(200):
        data = "".join(rng.choices(pieces, k=rng.randrange(2000))).encode()
        limit, piece = rng.randrange(1, 600), rng.randrange(1, 50)

        text = captured(data, limit=limit, piece=piece)

        assert not text.has_replacements
        assert "\ufffd" not in text.text
        assert "\x1b" not in text.text
        assert text.is_cut or text.text == plain_text(data.decode())
        assert len(text.text.encode()) <= limit + 80


def test_replacements_do_not_break_the_limit() -> None:
    text = captured(b"\xff" * 1000, limit=1000)

    assert text.is_cut
    assert len(text.text.encode()) <= 1080


def test_cut_output_is_kept_whole_beside(seed: int) -> None:
    rng = random.Random(seed)
    lines = [f"\x1b[3{rng.randrange(8)}mé {rng.random()}\x1b[0m" for _ in range(20_000)]
    data = "\n".join(lines).encode()

    kept = whole(data, limit=1000, piece=rng.randrange(1, 70_000))

    assert kept == plain_text(data.decode()).encode()
    assert whole(b"\xff" * 1000, limit=1000) == "\ufffd".encode() * 1000
    assert whole("é".encode() * 3_000_000, limit=100) == "é".encode() * 3_000_000


def test_out_3_output_that_is_too_long_is_not_kept_whole() -> None:
    assert whole(b"y" * (WHOLE_LIMIT_BYTES + 1), limit=100, piece=65_536) is None


def test_nothing_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    capture = Capture(10)
    capture.feed(b"x" * 100)

    assert os.listdir(tmp_path) == []
    capture.close()


def test_newest_lines_are_plain_and_bounded() -> None:
    capture = Capture(10_000)
    assert capture.recent() == ""
    capture.feed(b"start\n")
    assert capture.recent() == "start\n"
    capture.feed(b"".join(b"\x1b[1mline %d\x1b[0m\n" % n for n in range(5000)))

    recent = capture.recent(lines=4)

    assert recent == "line 4997\nline 4998\nline 4999\n"
    capture.close()
