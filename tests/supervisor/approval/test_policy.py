"""What is decided before anybody is asked, and what counts as an answer."""

from __future__ import annotations

import pytest

from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_supervisor.approval.policy import (
    decide_before_dispatch,
    effective_policy,
    parse_policy,
    read_outcome,
)


@pytest.mark.req("R80", "R81", "R76")
@pytest.mark.parametrize(
    ("policy", "aborted", "outcome"),
    [
        (ApprovalPolicy.ask, False, None),
        (ApprovalPolicy.ask, True, ApprovalOutcome.cancelled),
        (ApprovalPolicy.never, False, ApprovalOutcome.rejected),
        (ApprovalPolicy.never, True, ApprovalOutcome.cancelled),
    ],
)
def test_cut_goes_before_policy_and_policy_before_answerers(
    policy: ApprovalPolicy, aborted: bool, outcome: ApprovalOutcome | None
) -> None:
    assert decide_before_dispatch(policy, aborted=aborted) is outcome


@pytest.mark.req("R89")
@pytest.mark.parametrize("bad", ["always", "", "ASK", None, True, 1, ["ask"], {}])
def test_policy_outside_the_vocabulary_is_a_type_error(bad: object) -> None:
    with pytest.raises(TypeError, match="not an approval policy"):
        parse_policy(bad)


@pytest.mark.req("R74")
@pytest.mark.parametrize("good", ["ask", "never"])
def test_policy_of_the_vocabulary_is_taken(good: str) -> None:
    assert parse_policy(good) is ApprovalPolicy(good)
    assert parse_policy(ApprovalPolicy(good)) is ApprovalPolicy(good)


@pytest.mark.req("R91")
def test_override_outranks_the_default_in_both_directions() -> None:
    ask, never = ApprovalPolicy.ask, ApprovalPolicy.never
    assert effective_policy(ask, None) is ask
    assert effective_policy(ask, never) is never
    assert effective_policy(never, ask) is ask


@pytest.mark.req("R77", "R82", "R92")
@pytest.mark.bug("B23")
@pytest.mark.parametrize(
    "rogue", ["yes", "ALLOW", "Allowed-Once", "", True, 1, None, {}, ["allowed-once"]]
)
def test_answer_outside_the_vocabulary_is_no_answer(rogue: object) -> None:
    assert read_outcome(rogue) is ApprovalOutcome.unavailable


@pytest.mark.parametrize("outcome", list(ApprovalOutcome))
def test_answer_of_the_vocabulary_is_taken(outcome: ApprovalOutcome) -> None:
    assert read_outcome(outcome) is outcome
    assert read_outcome(outcome.value) is outcome
