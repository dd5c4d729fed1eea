"""From the parts of a prompt to the text a model reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scv.core.prompt import prompt_text, shown_path
from scv.errors import InvalidParams, ProtocolError


def test_text_alone_is_not_touched() -> None:
    text = "  a\n\n```\n\x1b b  "
    assert prompt_text([{"type": "text", "text": text}]) == text


@given(st.text(alphabet="`ab\n", max_size=40).filter(str.strip))
def test_attached_text_cannot_end_its_fence(text: str) -> None:
    told = prompt_text([{"type": "buffer", "label": "b", "text": text}])
    label, fence, *body, end = told.split("\n")
    assert label == "Buffer b:"
    assert fence == end
    assert set(fence) == {"`"}
    assert "\n".join(body) == text
    assert fence not in text


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": ""}],
        [{"type": "text", "text": " \n\t\u3000"}, {"type": "text", "text": ""}],
    ],
)
def test_a_blank_prompt_is_refused(parts: list[dict[str, str]]) -> None:
    with pytest.raises(InvalidParams) as caught:
        prompt_text(parts)
    assert caught.value.data["path"] == "input"


def test_the_limit_counts_bytes_of_all_parts() -> None:
    half = {"type": "text", "text": "é" * (64 * 1024)}
    prompt_text([half, {"type": "text", "text": "x" * (128 * 1024 - 2)}])
    with pytest.raises(ProtocolError) as caught:
        prompt_text([half, {"type": "text", "text": "x" * (128 * 1024)}])
    assert caught.value.data["code"] == "limit.message"
    assert caught.value.code == 4261
    assert caught.value.data["maxBytes"] == 256 * 1024


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///srv/a%20b.py", "/srv/a b.py"),
        ("/plain/path", "/plain/path"),
        ("untitled:Untitled-1", "untitled:Untitled-1"),
        ("file:///%E4%BD%A0", "/你"),
        ("C:\\no\\uri", "C:\\no\\uri"),
    ],
)
def test_uris_are_shown_as_paths(uri: str, path: str) -> None:
    assert shown_path(uri) == path
