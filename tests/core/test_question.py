"""Approval texts: every string in them is inert and bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scv.core.ports import PreparedCall
from scv.core.question import SUBJECT_CHARACTERS, build
from scv.core.visible import show_hidden

pytestmark = pytest.mark.anyio

TEXT = st.text() | st.text(alphabet="\x1b\r\n\u202e\u2066a ;", max_size=300)
SUBJECT = st.recursive(
    TEXT | st.none() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def texts_of(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return []
    return [text for part in parts for text in texts_of(part)]


async def built(
    summary: str, subject: Any, title: str = "t"
) -> tuple[Any, list[bytes]]:
    blobs: list[bytes] = []

    async def put_blob(data: bytes) -> str:
        blobs.append(data)
        return f"b_{len(blobs)}"

    call = PreparedCall({}, "process", title, summary, {"type": "other", "x": subject})
    return await build(call, put_blob, approvalId="a_1"), blobs


@given(TEXT, SUBJECT, TEXT)
async def test_every_text_is_inert(summary: str, subject: Any, title: str) -> None:
    approval, _ = await built(summary, subject, title)

    for text in texts_of(approval):
        assert show_hidden(text) == text
    assert len(approval["summary"]) < 2200
    assert approval["shortened"] is (approval["summary"] != show_hidden(summary))
    assert "\n" not in approval["title"]
    assert approval["options"][0]["kind"] == "deny"
    assert approval["safeOption"] == "deny"


async def test_a_long_text_is_cut_and_kept_whole_in_a_blob() -> None:
    text = "a\x1b" * SUBJECT_CHARACTERS
    approval, blobs = await built("s", {"patch": text, "hunks": [{"lines": ["+x"]}]})

    subject = approval["subject"]["x"]
    assert len(subject["patch"]) < SUBJECT_CHARACTERS + 200
    assert subject["blobId"] == "b_1"
    assert "hunks" not in subject
    assert blobs == [show_hidden(text).encode()]


async def test_what_is_short_is_whole() -> None:
    approval, blobs = await built("one\ntwo", "x" * SUBJECT_CHARACTERS)

    assert approval["summary"] == "one\ntwo"
    assert approval["shortened"] is False
    assert approval["subject"]["x"] == "x" * SUBJECT_CHARACTERS
    assert blobs == []
