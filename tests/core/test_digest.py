"""The digest is bound to everything an answer decides on."""

import dataclasses
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scv.core.digest import call_digest, canonical, policy_revision
from scv.core.ports import PreparedCall, Target

CALL = PreparedCall(
    arguments={"command": "touch é", "timeout_seconds": 600},
    risk="process",
    title="Run a shell command",
    summary="touch é",
    subject={"type": "command", "command": "touch é", "cwd": "/srv/app"},
    targets=(Target("a.txt", "0" * 64, "replace"),),
    executable="/bin/bash",
)
FIELDS = {
    "session_id": "s_1",
    "item_id": "i_1",
    "tool": "bash",
    "workspace": "/srv/app",
    "policy_rev": "p",
}


def digest(call: PreparedCall = CALL, **fields: Any) -> str:
    return call_digest(call, **{**FIELDS, **fields})


def test_the_digest_is_the_documented_one() -> None:
    subject = {
        "arguments": CALL.arguments,
        "executable": "/bin/bash",
        "itemId": "i_1",
        "policyRev": "p",
        "sessionId": "s_1",
        "targets": [{"baseSha256": "0" * 64, "mode": "replace", "path": "a.txt"}],
        "tool": "bash",
        "v": 1,
        "workspace": "/srv/app",
    }
    text = json.dumps(subject, separators=(",", ":"), ensure_ascii=False)
    assert digest() == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("field", FIELDS)
def test_every_circumstance_changes_it(field: str) -> None:
    assert digest(**{field: FIELDS[field] + "x"}) != digest()


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"command": "touch e", "timeout_seconds": 600}},
        {"arguments": {"command": "touch é", "timeout_seconds": 601}},
        {"arguments": {"command": "touch é", "timeout_seconds": "600"}},
        {"targets": ()},
        {"targets": (Target("a.txt", None, "replace"),)},
        {"targets": (Target("a.txt", "0" * 64, "create"),)},
        {"targets": (Target("b.txt", "0" * 64, "replace"),)},
        {"executable": None},
        {"executable": "/bin/sh"},
    ],
)
def test_every_part_of_the_call_changes_it(change: dict[str, Any]) -> None:
    assert digest(dataclasses.replace(CALL, **change)) != digest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_keys_means_nothing(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical(turned) == canonical(value)
    decoded = canonical(value).decode("utf-8", "surrogatepass")
    assert json.loads(decoded) == value


@given(JSON, JSON)
def test_other_values_have_other_bytes(first: Any, second: Any) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (canonical(first) == canonical(second)) == same


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical({"x": float("nan")})


def test_another_policy_is_another_revision() -> None:
    revisions = {
        policy_revision({"approval_policy": policy})
        for policy in ("on-risk", "always", "never")
    }
    assert len(revisions) == 3
