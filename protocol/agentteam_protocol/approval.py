"""Who may say yes: closed vocabularies of the approval service."""

from __future__ import annotations

import enum

from attrs import frozen

from agentteam_protocol.ids import (
    ApprovalId,
    RunId,
)


class ApprovalPolicy(enum.StrEnum):
    ask = "ask"
    never = "never"


class ApprovalOutcome(enum.StrEnum):
    """`allowed_once` is the only grant; everything else is a no."""

    allowed_once = "allowed-once"
    rejected = "rejected"
    cancelled = "cancelled"
    unavailable = "unavailable"


@frozen
class ApprovalRequest:
    """One ask for one action of one run; `input` is JSON, shortened for people."""

    id: ApprovalId
    run_id: RunId
    tool_name: str
    input: str = ""
    call_id: str | None = None
    reason: str | None = None
    asked_at: str = ""
