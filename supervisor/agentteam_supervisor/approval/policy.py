"""
What is decided about an ask before anybody is asked, and what an answer is worth.

| order | if | outcome |
|---|---|---|
| 1 | the run is cut already | cancelled |
| 2 | the policy is `never` | rejected |
| 3 | else | what the answerers say; anything outside the vocabulary is unavailable |

No row gives `allowed-once` by default (R92).
"""

from __future__ import annotations

from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy

_POLICIES = {policy.value: policy for policy in ApprovalPolicy}
_WORDS = {outcome.value: outcome for outcome in ApprovalOutcome}


def parse_policy(value: object) -> ApprovalPolicy:
    """Take a policy from outside; raises `TypeError` before anything is changed (R89)."""
    if isinstance(value, str) and value in _POLICIES:
        return _POLICIES[value]
    words = ", ".join(ApprovalPolicy)
    raise TypeError(f"not an approval policy: {value!r} (one of {words})")


def effective_policy(
    default: ApprovalPolicy, override: ApprovalPolicy | None
) -> ApprovalPolicy:
    """A session's own choice outranks the default in both directions (R91)."""
    return default if override is None else override


def decide_before_dispatch(
    policy: ApprovalPolicy, *, aborted: bool
) -> ApprovalOutcome | None:
    """Decide without an answerer; None: the answerers decide (R80, R81)."""
    if aborted:
        return ApprovalOutcome.cancelled
    match policy:
        case ApprovalPolicy.never:
            return ApprovalOutcome.rejected
        case ApprovalPolicy.ask:
            return None


def read_outcome(answer: object) -> ApprovalOutcome:
    """Take an answerer's word; what is not in the vocabulary is no answer (R82)."""
    if isinstance(answer, str):
        return _WORDS.get(answer, ApprovalOutcome.unavailable)
    return ApprovalOutcome.unavailable
