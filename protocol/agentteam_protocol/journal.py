"""
Events of a session's journal, the only durable thing of a session.

Live state is their fold; an event says what happened, never what to do.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from attrs import field, frozen

from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, Diagnostic, Evidence
from agentteam_protocol.ids import (
    ApprovalId,
    DeliveryId,
    Generation,
    ItemId,
    MessageId,
    RunId,
    TargetId,
)
from agentteam_protocol.inbox import Item


class TurnOutcome(enum.StrEnum):
    completed = "completed"
    aborted = "aborted"
    blocked = "blocked"
    error = "error"
    max_tokens = "max-tokens"
    interrupted = "interrupted"  # the supervisor itself died during the turn


class SpliceReason(enum.StrEnum):
    """Why entries joined or left the inbox."""

    accepted = "accepted"  # new input
    claimed = "claimed"  # taken for a batch or a steer
    requeued = "requeued"  # back at its place, nothing was lost
    cancelled = "cancelled"
    superseded = "superseded"
    withdrawn = "withdrawn"
    shown = "shown"  # read_history or an attachment showed it already
    blocked = "blocked"
    failed = "failed"
    settled = "settled"


@frozen
class InboxSpliced:
    """Entries left the lanes, then entries joined them, each at its position."""

    reason: SpliceReason
    removed: tuple[ItemId, ...] = ()
    added: tuple[Item, ...] = ()


@frozen
class TurnStart:
    turn: int
    run_id: RunId
    gen: Generation


@frozen
class StepStart:
    """`items` are the entries that it is submitted with, in their order."""

    turn: int
    step: int
    items: tuple[ItemId, ...] = ()


@frozen
class UserMessage:
    """An entry is in the model's input of this turn, by the runtime's evidence."""

    turn: int
    item: ItemId
    body: str
    delivery: DeliveryId | None = None
    message: MessageId | None = None


@frozen
class AssistantMessage:
    """`partial`: the prefix that people saw of a message that a cut ended."""

    turn: int
    text: str
    partial: bool = False


@frozen
class ToolCall:
    turn: int
    call_id: str
    name: str
    input: str = ""


@frozen
class ToolResult:
    """`error` is a code: ABORTED_BEFORE_DISPATCH, TOOL_OUTCOME_UNKNOWN or the tool's."""

    turn: int
    call_id: str
    output: str = ""
    error: str | None = None


@frozen
class StepEnd:
    turn: int
    step: int


@frozen
class TurnEnd:
    """`usage` is the runtime's own count, by its names; empty: it told none."""

    turn: int
    outcome: TurnOutcome
    cause: CutCause | None = None
    detail: str = ""
    usage: Mapping[str, int] = field(factory=dict[str, int])


@frozen
class InterruptRequested:
    gen: Generation
    run_id: RunId
    cause: CutCause
    delivery: DeliveryId | None = None
    who: str = ""


@frozen
class FenceHeld:
    gen: Generation


@frozen
class FenceReopened:
    """Every stage of the ladder failed, so the run goes on (t26)."""

    gen: Generation


@frozen
class FenceClosed:
    """`gen` is fenced for ever and `opened` is the generation that is open now."""

    gen: Generation
    opened: Generation


@frozen
class FenceLate:
    """Something of a generation that is not open: diagnostic history, never live."""

    gen: Generation | None
    what: str
    detail: str = ""


@frozen
class ApprovalAsked:
    turn: int
    request: ApprovalRequest


@frozen
class ApprovalDecided:
    turn: int
    id: ApprovalId
    outcome: ApprovalOutcome


@frozen
class ApprovalPolicySet:
    policy: ApprovalPolicy


@frozen
class DeliveryChanged:
    """
    A delivery entered `state`.

    `queued` with attempt + 1 is a redelivery. A note says what a person should
    know without a change of state ("may have been seen twice").
    """

    delivery: DeliveryId
    state: DeliveryState
    attempt: int = 1
    gen: Generation | None = None
    evidence: Evidence | None = None
    diagnostic: Diagnostic | None = None
    note: str = ""


@frozen
class ItemsInFlight:
    """The runtime's hands: entries handed over and not surfaced, with their stage."""

    added: tuple[Item, ...] = ()
    removed: tuple[ItemId, ...] = ()
    carried: tuple[ItemId, ...] = ()


@frozen
class FrontierMoved:
    """Sequences of a target that this agent has seen; `floor` when it joined."""

    target: TargetId
    seqs: tuple[int, ...] = ()
    floor: int | None = None


@frozen
class RunProcess:
    """A process was opened for the session (`inc` counts them), or is gone."""

    inc: int
    alive: bool
    identity: str = ""
    detail: str = ""


@frozen
class RunSession:
    """
    The runtime named its own session: what resume asks for.

    `lost`: it is a new one, and the history of the one before is not available.
    """

    token: str
    lost: bool = False


@frozen
class RunParked:
    """
    Nothing at or before this position runs without a newer waking entry.

    `urgent` is the same for what was marked urgent: only a person's Stop (or a host's
    cancel) sets it, and a resume takes it back. None: as it was.
    """

    position: int
    urgent: int | None = None


@frozen
class RunProblem:
    """
    The session cannot run (or, with None, can again).

    With `run` that run ended in an error, and the session waits for a person; `target`
    is where it was asked.
    """

    diagnostic: Diagnostic | None
    run: RunId | None = None
    target: TargetId | None = None


@frozen
class RunNotice:
    """A line for people that changes nothing: a lost history, a survivor's name."""

    text: str
    detail: str = ""


@frozen
class InputForgotten:
    """
    The runtime's history lacks what its model had read: a kill came before it was kept.

    `text` is all that the model read of it; the next input tells it again.
    """

    item: ItemId
    text: str
    delivery: DeliveryId | None = None


@frozen
class SendDecided:
    """What became of a visible send; `seq` when it was forwarded."""

    gen: Generation
    target: TargetId
    verdict: str
    send_id: str = ""
    seq: int | None = None
    text: str = ""
    auto_reply: bool = False


@frozen
class SessionClosed:
    cause: CutCause


@frozen
class EpochBegun:
    """This log is continued under a new epoch; older generations are all fenced."""

    gen: Generation
    damaged: int = 0  # bytes or records set aside because they could not be read


JournalEvent = (
    InboxSpliced
    | TurnStart
    | StepStart
    | UserMessage
    | AssistantMessage
    | ToolCall
    | ToolResult
    | StepEnd
    | TurnEnd
    | InterruptRequested
    | FenceHeld
    | FenceReopened
    | FenceClosed
    | FenceLate
    | ApprovalAsked
    | ApprovalDecided
    | ApprovalPolicySet
    | DeliveryChanged
    | ItemsInFlight
    | FrontierMoved
    | RunProcess
    | RunSession
    | RunParked
    | RunProblem
    | RunNotice
    | InputForgotten
    | SendDecided
    | SessionClosed
    | EpochBegun
)

KINDS: Mapping[type, str] = {
    InboxSpliced: "inbox/spliced",
    TurnStart: "turn/start",
    StepStart: "step/start",
    UserMessage: "user/message",
    AssistantMessage: "assistant/message",
    ToolCall: "tool/call",
    ToolResult: "tool/result",
    StepEnd: "step/end",
    TurnEnd: "turn/end",
    InterruptRequested: "interrupt/requested",
    FenceHeld: "fence/held",
    FenceReopened: "fence/reopened",
    FenceClosed: "fence/closed",
    FenceLate: "fence/late",
    ApprovalAsked: "approval/asked",
    ApprovalDecided: "approval/decided",
    ApprovalPolicySet: "approval/policy",
    DeliveryChanged: "delivery/changed",
    ItemsInFlight: "delivery/in_flight",
    FrontierMoved: "delivery/frontier",
    RunProcess: "run/process",
    RunSession: "run/session",
    RunParked: "run/parked",
    RunProblem: "run/problem",
    RunNotice: "run/notice",
    InputForgotten: "delivery/forgotten",
    SendDecided: "send/decided",
    SessionClosed: "run/closed",
    EpochBegun: "run/epoch",
}


@frozen
class Entry:
    """A journal event at its place: `seq` counts per session, `at` is only shown."""

    seq: int
    at: str
    event: JournalEvent
