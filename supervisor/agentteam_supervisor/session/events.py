"""
What the session machine is told: past participles, with no behaviour.

`ref` names a waiting caller; the machine answers each exactly once with a `Reply`.
Events of the runtime come as they are in `agentteam_runtimes.driver`, wrapped with the
incarnation that sent them.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.ids import (
    ApprovalId,
    DeliveryId,
    Generation,
    ItemId,
    RunId,
    SendId,
    TargetId,
)
from agentteam_protocol.inbox import Item
from agentteam_runtimes.driver import (
    CallRef,
    Capabilities,
    ItemOutcome,
    RuntimeEvent,
    Survivor,
    TurnRef,
)

# --- from people and hosts ----------------------------------------------------


@frozen
class Delivered:
    """
    A delivery arrived, with or without a policy.

    `floor` is the target's head when the agent joined. The same delivery and attempt
    again changes nothing.
    """

    item: Item
    floor: int | None = None


@frozen
class Sent:
    """Host input: followup, steer, inject and send, told apart by lane and `wakes`."""

    items: tuple[Item, ...]
    ref: int | None = None


@frozen
class CancelRequested:
    cause: str = ""
    keep_inbox: bool = False
    ref: int | None = None


@frozen
class StopRequested:
    """Stop names a run (R15)."""

    run_id: RunId | None
    who: str = ""
    ref: int | None = None


@frozen
class ResumeRequested:
    ref: int | None = None


@frozen
class Dismissed:
    """A person withdrew a delivery that is queued, or let go of an unknown one."""

    delivery: DeliveryId


@frozen
class PolicyChosen:
    policy: ApprovalPolicy


@frozen
class MaintenanceRequested:
    task: str
    ref: int | None = None


@frozen
class IdleAwaited:
    """The caller waits until the session is quiescent."""

    ref: int


@frozen
class DisposeRequested:
    ref: int | None = None


@frozen
class ShutdownRequested:
    ref: int | None = None


@frozen
class LeaseLost:
    """The epoch is over; nothing may be reported under it."""


@frozen
class Loaded:
    """The journal was read and repaired: settle and start what is due."""


# --- from the runtime, by way of the actor ---------------------------------------


@frozen
class FromRuntime:
    """A batch of the runtime's own events, in their order."""

    inc: int
    events: tuple[RuntimeEvent, ...]


@frozen
class RuntimeReady:
    """The handshake is done; `settled` is what its history says of old entries."""

    inc: int
    capabilities: Capabilities
    settled: Mapping[ItemId, ItemOutcome] = field(factory=dict[ItemId, ItemOutcome])
    in_process: bool = False
    identity: str = ""
    history_lost: bool = False


@frozen
class StartFailed:
    """The runtime did not come up, with whatever patience the actor has."""

    inc: int
    diagnostic: Diagnostic


@frozen
class ProcessGone:
    """
    The incarnation is over and its tree is gone, or each survivor is named.

    `fault` is set when its output stream broke ("line over limit").
    """

    inc: int
    returncode: int | None = None
    detail: str = ""
    fault: str = ""
    survivors: tuple[Survivor, ...] = ()


@frozen
class KillFailed:
    """The process is still alive after SIGKILL and its deadline."""

    inc: int
    survivors: tuple[Survivor, ...] = ()


@frozen
class SubmitAccepted:
    batch: str
    turn: TurnRef


@frozen
class SubmitFailed:
    """`written` False: not a byte left, so the batch may be sent again."""

    batch: str
    written: bool
    problem: str


@frozen
class SteerAccepted:
    item: ItemId


@frozen
class SteerFailed:
    item: ItemId
    written: bool
    problem: str


@frozen
class InterruptTaken:
    """The runtime took the interrupt; its turn's end is still to come."""

    inc: int


@frozen
class InterruptFailed:
    inc: int
    problem: str
    named: TurnRef | None = None


@frozen
class Swept:
    """What the cut turn had started is gone, or named."""

    inc: int
    survivors: tuple[Survivor, ...] = ()


@frozen
class Settled:
    """The runtime's history was read for entries that its receipt left open."""

    inc: int
    items: Mapping[ItemId, ItemOutcome]


@frozen
class DeadlinePassed:
    """`name` as in `SetDeadline`; one that was cleared or replaced never comes."""

    name: str


# --- from services ---------------------------------------------------------------


@frozen
class PreStepDecided:
    """`items` None: rejected, with the reason. Else what enters the step."""

    batch: str
    items: tuple[Item, ...] | None
    reason: str = ""


@frozen
class ApprovalAnswered:
    """An answerer decided; `ref` waits for whether it came in time."""

    approval: ApprovalId
    outcome: ApprovalOutcome
    ref: int | None = None


@frozen
class SendAnswered:
    """The server's verdict on a visible send, or that nobody knows it."""

    send: SendId
    verdict: str  # forwarded | held | rejected | unknown
    seq: int | None = None
    target: TargetId | None = None
    text: str = ""  # words for the agent
    shown: Mapping[TargetId, tuple[int, ...]] = field(
        factory=dict[TargetId, tuple[int, ...]]
    )


@frozen
class HistoryRead:
    """`read_history` got its answer: `seqs` of `target` are in `text`."""

    call: CallRef
    gen: Generation
    target: TargetId | None
    seqs: tuple[int, ...]
    text: str
    error: bool = False


@frozen
class MaintenanceEnded:
    """`id` as in `Maintain`: an old task may end while a new one runs."""

    value: str = ""
    problem: str = ""
    id: str = ""


Event = (
    Delivered
    | Sent
    | CancelRequested
    | StopRequested
    | ResumeRequested
    | Dismissed
    | PolicyChosen
    | MaintenanceRequested
    | IdleAwaited
    | DisposeRequested
    | ShutdownRequested
    | LeaseLost
    | Loaded
    | FromRuntime
    | RuntimeReady
    | StartFailed
    | ProcessGone
    | KillFailed
    | SubmitAccepted
    | SubmitFailed
    | SteerAccepted
    | SteerFailed
    | InterruptTaken
    | InterruptFailed
    | Swept
    | Settled
    | DeadlinePassed
    | PreStepDecided
    | ApprovalAnswered
    | SendAnswered
    | HistoryRead
    | MaintenanceEnded
)
