"""A delivery: one message on its way to one agent, and what is claimed of it."""

from __future__ import annotations

import enum

from attrs import frozen

from agentteam_protocol.ids import (
    MessageId,
    TargetId,
)


class InterruptPolicy(enum.StrEnum):
    """Absent (None) is an ordinary delivery; there is no third way (R3, R19)."""

    interrupt_current_run = "interrupt_current_run"


class DeliveryState(enum.StrEnum):
    queued = "queued"
    accepted = "accepted"  # the runtime's transport took it; it may still drop it
    surfaced = "surfaced"  # the runtime's own evidence: it is in the model's input
    failed = "failed"
    blocked = "blocked"
    cancelled = "cancelled"
    superseded = "superseded"
    unknown = "unknown"


# A wait for a delivery ends in one of these; `unknown` waits for a person, not for us.
TERMINAL = frozenset(DeliveryState) - {DeliveryState.queued, DeliveryState.accepted}


@frozen
class Evidence:
    """What proves that the model has the message: the runtime's own sign, named."""

    kind: str
    at: str = ""
    detail: str = ""


@frozen
class Diagnostic:
    """Why something did not happen, and what a person can do about it."""

    problem: str
    what_to_do: str


class AuthorKind(enum.StrEnum):
    user = "user"
    agent = "agent"


@frozen
class Author:
    kind: AuthorKind
    name: str


@frozen
class MessageRef:
    """The part of a visible message that a daemon needs; the body goes along (R10)."""

    id: MessageId
    target: TargetId
    target_seq: int
    body: str
    author: Author
    target_name: str = ""
    direct: bool = True
