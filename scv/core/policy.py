"""When a call runs, asks, or is denied.

| policy  | read_only | other risks             |
| ------- | --------- | ----------------------- |
| on-risk | run       | ask                     |
| always  | ask       | ask                     |
| never   | run       | deny, without a question |
"""

from dataclasses import dataclass
from typing import Literal

from scv.core.ports import Risk

Policy = Literal["on-risk", "always", "never"]
STRICTNESS: dict[str, int] = {"on-risk": 0, "always": 1, "never": 2}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the policy says of one call, and the rule in words."""

    action: Literal["run", "ask", "deny"]
    reason: str


def judge(policy: Policy, risk: Risk) -> Verdict:
    """Apply the table."""
    if policy == "always":
        return Verdict("ask", "policy always: every call asks")
    if risk == "read_only":
        return Verdict("run", f"policy {policy}: read_only calls run")
    if policy == "never":
        return Verdict("deny", f"policy never: {risk} calls are denied")
    return Verdict("ask", f"policy on-risk: {risk} calls ask")


def stricter(first: Policy, second: Policy) -> Policy:
    """Choose the one that allows less."""
    return first if STRICTNESS[first] >= STRICTNESS[second] else second
