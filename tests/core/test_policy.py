"""The whole approval table, and which of two policies is the stricter."""

from itertools import product

import pytest

from scv.config.settings import APPROVAL_POLICIES, ApprovalPolicy
from scv.core.policy import judge, stricter
from scv.core.ports import Risk

POLICIES: list[ApprovalPolicy] = ["on-risk", "always", "never"]
RISKS: list[Risk] = ["read_only", "filesystem", "process", "delegate", "network"]


@pytest.mark.parametrize(("policy", "risk"), list(product(POLICIES, RISKS)))
def test_the_table(policy: ApprovalPolicy, risk: Risk) -> None:
    verdict = judge(policy, risk)

    if policy == "always":
        assert verdict.action == "ask"
    elif risk == "read_only":
        assert verdict.action == "run"
    else:
        assert verdict.action == ("deny" if policy == "never" else "ask")
    assert policy in verdict.reason


@pytest.mark.parametrize(("first", "second"), list(product(POLICIES, POLICIES)))
def test_the_stricter_of_two(first: ApprovalPolicy, second: ApprovalPolicy) -> None:
    chosen = stricter(first, second)

    assert chosen in (first, second)
    assert chosen == stricter(second, first)
    for risk in RISKS[1:]:  # what changes something is never allowed more
        actions = ["run", "ask", "deny"]
        rank = actions.index(judge(chosen, risk).action)
        assert rank == max(
            actions.index(judge(each, risk).action) for each in (first, second)
        )


def test_never_is_the_strictest() -> None:
    assert list(APPROVAL_POLICIES) == POLICIES
    assert APPROVAL_POLICIES[-1] == "never"
