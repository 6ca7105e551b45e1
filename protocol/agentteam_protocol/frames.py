"""
What server and daemon say to each other over their WebSocket, version 1.

A WebSocket message is one `Envelope`. Numbered frames are at least once: they have a
sequence number per direction, are kept until the peer's receipt (`ack`) and sent
again after a reconnect. The others (handshake, queries, live words) are not repeated.
Every handler is idempotent by the identity in the frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.control import (
    ControlAction,
    ControlResult,
    Method,
    Resolution,
)
from agentteam_protocol.delivery import (
    DeliveryState,
    Diagnostic,
    Evidence,
    InterruptPolicy,
    MessageRef,
)
from agentteam_protocol.ids import (
    AgentId,
    ApprovalId,
    ControlId,
    DaemonId,
    DeliveryId,
    Generation,
    RunId,
    SendId,
    TargetId,
)

VERSION = 1


# --- handshake, not numbered -------------------------------------------------


@frozen
class Hello:
    """
    The daemon's first frame.

    `received` is the last numbered frame of ours that it has made durable, of the
    server that it names (empty: none yet). `boot` names the daemon's process: another
    one than before means that its sessions start again, so every lease gets a new epoch.
    """

    version: int
    daemon: DaemonId
    name: str
    server: str = ""
    received: int = 0
    runtimes: Mapping[str, Mapping[str, Any]] = field(
        factory=dict[str, Mapping[str, Any]]
    )
    boot: str = ""


@frozen
class Welcome:
    """The server's answer; `received` as in `Hello`, the other way round."""

    version: int
    server: str
    received: int


@frozen
class Refused:
    """The server will not have this daemon; the connection ends after this."""

    problem: str
    what_to_do: str


# --- server to daemon, numbered ----------------------------------------------


@frozen
class AgentGranted:
    """
    The daemon holds the agent's lease from now on, under `epoch`.

    Sent again with the same epoch when the agent's settings change. `frontiers` are
    the contiguous sequences the server knows as seen, by target id.
    """

    agent: AgentId
    name: str
    runtime: str
    epoch: int
    workdir: str | None = None
    model: str | None = None
    approval_policy: ApprovalPolicy = ApprovalPolicy.ask
    auto_reply: bool = True
    options: Mapping[str, Any] = field(factory=dict[str, Any])
    frontiers: Mapping[TargetId, int] = field(factory=dict[TargetId, int])


@frozen
class AgentRevoked:
    """The lease is gone. `forget`: the agent was deleted, so dispose of its session."""

    agent: AgentId
    epoch: int
    forget: bool = False


@frozen
class AgentDeliver:
    """
    Deliver a message (`agent:deliver`); without a policy it is ordinary (R16).

    Repeated until the daemon's `DeliveryReceived`.
    """

    delivery: DeliveryId
    agent: AgentId
    message: MessageRef
    interrupt_policy: InterruptPolicy | None = None
    attempt: int = 1
    floor: int | None = None  # the target's head when the agent joined


@frozen
class AgentControl:
    control: ControlId
    agent: AgentId
    action: ControlAction
    run_id: RunId | None = None
    who: str = ""


@frozen
class AgentResolve:
    """A person decided about a delivery: dismiss it (redeliver is an `AgentDeliver`)."""

    delivery: DeliveryId
    agent: AgentId
    resolution: Resolution


@frozen
class ApprovalDecide:
    approval: ApprovalId
    agent: AgentId
    outcome: ApprovalOutcome
    who: str = ""


@frozen
class SendJudged:
    """The server's word on a visible send: forwarded at `seq`, held or rejected."""

    send: SendId
    agent: AgentId
    verdict: str  # forwarded | held | rejected
    seq: int | None = None
    target: TargetId | None = None
    reason: str = ""
    unseen: tuple[MessageRef, ...] = ()


@frozen
class AgentIntervene:
    """One of the seven methods, for hosts that speak HTTP."""

    control: ControlId
    agent: AgentId
    method: Method
    arguments: Mapping[str, Any] = field(factory=dict[str, Any])


# --- daemon to server, numbered ----------------------------------------------


@frozen
class DeliveryReceived:
    """The delivery is durable at the daemon: the outbox may stop repeating it."""

    delivery: DeliveryId
    attempt: int = 1


@frozen
class DeliveryReported:
    delivery: DeliveryId
    agent: AgentId
    state: DeliveryState
    attempt: int
    gen: Generation | None = None
    evidence: Evidence | None = None
    diagnostic: Diagnostic | None = None
    note: str = ""


@frozen
class ControlReported:
    control: ControlId
    agent: AgentId
    result: ControlResult
    run_id: RunId | None = None


@frozen
class ActivityReported:
    agent: AgentId
    kind: ActivityKind
    run_id: RunId | None = None
    gen: Generation | None = None
    delivery: DeliveryId | None = None
    words: Mapping[str, str] = field(factory=dict[str, str])
    detail: Mapping[str, Any] = field(factory=dict[str, Any])
    at: str = ""


@frozen
class StatusReported:
    """What `GET /api/agents/{a}` shows of the session; the latest one wins."""

    agent: AgentId
    epoch: int
    running: bool
    phase: str
    parked: bool
    run_id: RunId | None = None
    gen: Generation | None = None
    run_started_at: str | None = None
    problem: Diagnostic | None = None
    capabilities: Mapping[str, Any] = field(factory=dict[str, Any])
    waiting: int = (
        0  # messages that the agent has not read, in its inbox or its runtime
    )


@frozen
class FenceReported:
    """In one stream with reports and sends, so that the server can judge sends."""

    agent: AgentId
    gen: Generation
    fence: str  # open | hold | fenced


@frozen
class FrontierReported:
    """Seen through `read_history` or an attachment; deliveries move it by themselves."""

    agent: AgentId
    target: TargetId
    seqs: tuple[int, ...]
    gen: Generation


@frozen
class RunReported:
    """One line of the ledger of turns: sent when the turn opens and when it ends."""

    agent: AgentId
    run_id: RunId
    turn: int
    gen: Generation
    started_at: str
    ended_at: str | None = None
    outcome: str | None = None
    cause: str | None = None
    detail: str = ""
    deliveries: tuple[DeliveryId, ...] = ()
    usage: Mapping[str, int] = field(factory=dict[str, int])
    draft: str | None = None  # a reply that was held, or the part of it before a cut


@frozen
class ApprovalReported:
    """`outcome` None: it was asked and is open."""

    agent: AgentId
    request: ApprovalRequest
    gen: Generation
    outcome: ApprovalOutcome | None = None


@frozen
class SendRequested:
    """
    A visible send on its way to the server's compare-and-set.

    Never replayed on a lost link: the daemon asks by its id with `SendAsked`.
    """

    send: SendId
    agent: AgentId
    gen: Generation
    target: str  # id or name
    text: str
    auto_reply: bool = False


# --- not numbered -------------------------------------------------------------


@frozen
class SendAsked:
    """What became of this send? Answered with `SendJudged` (rejected: never seen)."""

    send: SendId
    agent: AgentId


@frozen
class Progressed:
    """Streaming text of the open generation; live only, may be dropped."""

    agent: AgentId
    run_id: RunId
    gen: Generation
    text: str


@frozen
class AgentTroubled:
    """
    What keeps the agent's session down, until its next `StatusReported`.

    Not numbered, since it is said when the daemon's log cannot take a numbered frame.
    """

    agent: AgentId
    epoch: int
    problem: Diagnostic


@frozen
class Query:
    """
    The server asks the daemon for something at once, past the numbered frames.

    `journal` (after, limit), or `stop` (runId, who) while the server cannot store one;
    that one is answered with its `result`.
    """

    ref: int
    agent: AgentId
    what: str
    arguments: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen
class Answer:
    ref: int
    ok: bool
    body: Mapping[str, Any] = field(factory=dict[str, Any])


@frozen
class HistoryAsked:
    """The agent reads a target (`read_history`); answered with `HistoryGiven`."""

    ref: int
    agent: AgentId
    target: str
    after: int | None = None
    limit: int = 100


@frozen
class HistoryGiven:
    ref: int
    target: TargetId | None
    messages: tuple[MessageRef, ...] = ()
    problem: str = ""


@frozen
class Receipt:
    """Nothing to say but the envelope's `ack`."""


Frame = (
    Hello
    | Welcome
    | Refused
    | AgentGranted
    | AgentRevoked
    | AgentDeliver
    | AgentControl
    | AgentResolve
    | ApprovalDecide
    | SendJudged
    | AgentIntervene
    | DeliveryReceived
    | DeliveryReported
    | ControlReported
    | ActivityReported
    | StatusReported
    | FenceReported
    | FrontierReported
    | RunReported
    | ApprovalReported
    | SendRequested
    | SendAsked
    | Progressed
    | AgentTroubled
    | Query
    | Answer
    | HistoryAsked
    | HistoryGiven
    | Receipt
)

FRAME_KINDS: Mapping[type, str] = {
    Hello: "link:hello",
    Welcome: "link:welcome",
    Refused: "link:refused",
    AgentGranted: "agent:granted",
    AgentRevoked: "agent:revoked",
    AgentDeliver: "agent:deliver",
    AgentControl: "agent:control",
    AgentResolve: "agent:resolve",
    ApprovalDecide: "approval:decide",
    SendJudged: "send:judged",
    AgentIntervene: "agent:intervene",
    DeliveryReceived: "delivery:received",
    DeliveryReported: "delivery:reported",
    ControlReported: "control:reported",
    ActivityReported: "activity:reported",
    StatusReported: "status:reported",
    FenceReported: "fence:reported",
    FrontierReported: "frontier:reported",
    RunReported: "run:reported",
    ApprovalReported: "approval:reported",
    SendRequested: "send:requested",
    SendAsked: "send:asked",
    Progressed: "run:progressed",
    AgentTroubled: "agent:troubled",
    Query: "query",
    Answer: "answer",
    HistoryAsked: "history:asked",
    HistoryGiven: "history:given",
    Receipt: "link:receipt",
}

# These alone are kept, numbered and repeated. `SendRequested` is numbered for its
# place in the stream, but a link drops it instead of repeating it.
NUMBERED: frozenset[type] = frozenset(
    {
        AgentGranted,
        AgentRevoked,
        AgentDeliver,
        AgentControl,
        AgentResolve,
        ApprovalDecide,
        SendJudged,
        AgentIntervene,
        DeliveryReceived,
        DeliveryReported,
        ControlReported,
        ActivityReported,
        StatusReported,
        FenceReported,
        FrontierReported,
        RunReported,
        ApprovalReported,
    }
)


@frozen
class Envelope:
    """
    One WebSocket message: a batch of frames in order.

    `seq` is the number of its first numbered frame, the others follow it by one each;
    `ack` is the last number of the other direction that is durable here.
    """

    frames: tuple[Frame, ...] = ()
    seq: int | None = None
    ack: int = 0
