"""Answers to approvals, bound to the digest of what was shown."""

from typing import Any, Literal

Json = dict[str, Any]
Kind = Literal["allow_once", "deny", "deny_stop"]

DEFER: Json = {"defer": True}
"""Leave the question to other front ends."""


def decide(approval: Json, kind: Kind, feedback: str = "") -> Json:
    """Build the answer of a kind; the question's safe option where it has none."""
    option_id = approval["safeOption"]
    for option in approval["options"]:
        if option["kind"] == kind:
            option_id = option["id"]
            break
    decision = {"optionId": option_id, "digest": approval["digest"]}
    if feedback:
        decision["feedback"] = feedback[:FEEDBACK_CHARACTERS]
    return decision


FEEDBACK_CHARACTERS = 4096
"""Longest reason the protocol takes."""
