"""When a call runs, asks, or is denied.

| policy  | read_only | other risks             |
| ------- | --------- | ----------------------- |
| on-risk | run       | ask                     |
| always  | ask       | ask                     |
| never   | run       | deny, without a question |
"""

from typing import Literal

from scv.config.settings import APPROVAL_POLICIES, ApprovalPolicy
from scv.core.ports import Risk
from scv.values import frozen


@frozen
class Verdict:
    """What the policy says of one call, and the rule in words."""

    action: Literal["run", "ask", "deny"]
    reason: str


def judge(policy: ApprovalPolicy, risk: Risk) -> Verdict:
    """Apply the table."""
    if policy == "always":
        return Verdict("ask", "policy always: every call asks")
    if risk == "read_only":
        return Verdict("run", f"policy {policy}: read_only calls run")
    if policy == "never":
        return Verdict("deny", f"policy never: {risk} calls are denied")
    return Verdict("ask", f"policy on-risk: {risk} calls ask")


def stricter(first: ApprovalPolicy, second: ApprovalPolicy) -> ApprovalPolicy:
    """Choose the one that allows less."""
    return max(first, second, key=APPROVAL_POLICIES.index)
