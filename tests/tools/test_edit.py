"""`edit` makes all its replacements or none, and says why when it makes none."""

from typing import Any

import pytest

from scv.errors import BadArguments, NotFound, ToolError
from tests.tools.conftest import Toolbox

pytestmark = pytest.mark.anyio


async def check(
    box: Toolbox, before: bytes, edits: list[dict[str, Any]], after: bytes
) -> None:
    (box.workspace / "f").write_bytes(before)
    found = await box.found("edit", path="f", edits=edits)
    assert found["edits"] == len(edits)
    assert (box.workspace / "f").read_bytes() == after


async def problem(box: Toolbox, before: bytes, *edits: dict[str, Any]) -> str:
    (box.workspace / "f").write_bytes(before)
    error = await box.fails(ToolError, "edit", path="f", edits=list(edits))
    assert (box.workspace / "f").read_bytes() == before
    return error.message


async def test_edits_apply_in_order_to_the_result_so_far(box: Toolbox) -> None:
    await check(
        box,
        b"a = 1\nb = 2\n",
        [{"old": "a = 1", "new": "a = 3"}, {"old": "a = 3\nb", "new": "c"}],
        b"c = 2\n",
    )


async def test_all_replaces_every_occurrence_and_new_may_be_empty(box: Toolbox) -> None:
    await check(box, b"xaxbx", [{"old": "x", "new": "", "all": True}], b"ab")
    await check(box, b"once", [{"old": "on", "new": "", "all": True}], b"ce")


async def test_line_ends_and_other_bytes_stay_as_they_are(box: Toolbox) -> None:
    await check(
        box,
        "\ufeffeins\r\nzwei\r\nünf\tx \n".encode(),
        [{"old": "zwei\r\n", "new": "2\r\n"}],
        "\ufeffeins\r\n2\r\nünf\tx \n".encode(),
    )


async def test_byte_order_mark_is_no_part_of_the_text(box: Toolbox) -> None:
    await check(box, b"\xef\xbb\xbfx", [{"old": "x", "new": ""}], b"\xef\xbb\xbf")
    message = await problem(box, b"\xef\xbb\xbfx", {"old": "\ufeffx", "new": "y"})
    assert "0 times" in message


async def test_result_carries_the_diff_for_clients(box: Toolbox) -> None:
    (box.workspace / "f").write_text("a\nb\n")

    result = await box.run("edit", path="f", edits=[{"old": "b", "new": "c"}])

    assert result.diff == "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"


async def test_failure_names_the_edit_the_count_and_the_nearest_lines(
    box: Toolbox,
) -> None:
    text = b"def alpha():\n    return one\n\ndef beta():\n    return two\n"

    message = await problem(
        box,
        text,
        {"old": "one", "new": "1"},
        {"old": "    retrun two", "new": "    return 2"},
    )
    assert "edit 2 of 2" in message
    assert "0 times" in message
    assert "5:     return two" in message

    message = await problem(box, text, {"old": "return", "new": "yield"})
    assert "edit 1 of 1" in message
    assert "2 times" in message
    assert "lines 2, 5" in message


async def test_overlapping_occurrences_are_ambiguous(box: Toolbox) -> None:
    assert "2 times" in await problem(box, b"aaa", {"old": "aa", "new": "b"})


async def test_wrong_line_ends_are_explained(box: Toolbox) -> None:
    message = await problem(box, b"a\r\nb\r\n", {"old": "a\nb", "new": "c"})
    assert "\\r\\n" in message
    message = await problem(box, b"a\nb\n", {"old": "a\r\nb", "new": "c"})
    assert "\\n alone" in message


async def test_edit_done_already_is_mentioned(box: Toolbox) -> None:
    message = await problem(box, b"new text\n", {"old": "old stuff", "new": "new text"})
    assert "already" in message


async def test_white_space_difference_shows_the_line_as_it_is(box: Toolbox) -> None:
    message = await problem(box, b"\tif x:\n", {"old": "    if x:\n", "new": ""})
    assert "1: \tif x:" in message


async def test_refusals(box: Toolbox) -> None:
    await box.fails(NotFound, "edit", path="no", edits=[{"old": "a", "new": "b"}])
    (box.workspace / "f").write_bytes(b"x\xe9")
    error = await box.fails(
        ToolError, "edit", path="f", edits=[{"old": "x", "new": ""}]
    )
    assert "offset 1" in error.message
    (box.workspace / "f").write_bytes(b"x")
    for edits in (
        [],
        [{"old": "", "new": "b"}],
        [{"old": "x", "new": "x"}],
        [{"old": "x"}],
        [{"old": "x", "new": "y", "count": 1}],
        [{"old": "x", "new": None}],
    ):
        await box.fails(BadArguments, "edit", path="f", edits=edits)
    assert (box.workspace / "f").read_bytes() == b"x"
