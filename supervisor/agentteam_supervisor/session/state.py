"""
The state of a session: the ledger is the fold of its journal, the rest is live.

`Ledger` changes only by `fold`, so a restart that folds the journal has it exactly as
it was. `Live` is what a restart does without.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import field, frozen

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, Diagnostic, InterruptPolicy
from agentteam_protocol.frontier import Frontier
from agentteam_protocol.ids import (
    AgentId,
    ApprovalId,
    DeliveryId,
    Generation,
    ItemId,
    MessageId,
    RunId,
    SendId,
    TargetId,
)
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes.driver import AskRef, CallRef, Capabilities, TurnRef
from agentteam_supervisor.session.prompt import Notes

T = TypeVar("T")


def changed(state: T, /, **changes: Any) -> T:
    """
    Give a copy of a state with some fields changed.

    Every event makes several, so this copies the fields as one dictionary: a sixth of
    what `attrs.evolve` takes, and the reason why these classes have no slots.
    """
    copy: T = object.__new__(type(state))
    fields = copy.__dict__
    fields.update(state.__dict__)
    if not changes.keys() <= fields.keys():
        raise TypeError(f"{type(state).__name__} has not all of {', '.join(changes)}")
    fields.update(changes)
    return copy


class Phase(enum.StrEnum):
    offline = "Offline"
    starting = "Starting"
    idle = "Idle"
    running = "Running"
    converging = "Converging"
    recovering = "Recovering"
    maintenance = "Maintenance"
    closed = "Closed"


class Fence(enum.StrEnum):
    """Of the current generation; every older one is FENCED for ever."""

    open = "open"
    hold = "hold"
    fenced = "fenced"


@frozen(slots=False)  # see `changed`
class OpenTurn:
    """The turn that is open in the journal, and its open brackets."""

    number: int
    run_id: RunId
    gen: Generation
    steps: int = 0
    step_open: bool = False
    calls: tuple[str, ...] = ()  # tool calls without a result yet
    # Open asks, each with the tool call that it gates.
    asks: Mapping[ApprovalId, str | None] = field(factory=dict[ApprovalId, str | None])
    read: bool = False  # something of it
    withheld: frozenset[str] = frozenset()  # calls that were never allowed to start
    allowed: frozenset[str] = frozenset()  # calls that an answer let start
    cause: CutCause | None = None  # the first cut's, once it was requested
    target: TargetId | None = None  # where it was asked, for the auto-reply
    sent_to: frozenset[TargetId] = frozenset()


@frozen
class InFlight:
    """An entry in the runtime's hands; `carried` ones are never sent again."""

    item: Item
    gen: Generation
    carried: bool = False


@frozen
class Unfinished:
    """What a person asked, in this target, and no run has brought to an end."""

    target: TargetId | None


@frozen(slots=False)  # see `changed`
class DeliveryView:
    state: DeliveryState
    attempt: int
    policy: InterruptPolicy | None
    message: MessageId | None
    target: TargetId | None
    seq: int | None
    item: Item
    kept: bool = False  # superseded while the runtime had it: it may be read there


@frozen(slots=False)  # see `changed`
class Ledger:
    agent: AgentId
    gen: Generation
    fence: Fence = Fence.open
    turn: OpenTurn | None = None
    turns: int = 0
    lanes: Mapping[Lane, tuple[Item, ...]] = field(
        factory=lambda: dict.fromkeys(Lane, ())
    )
    position: int = 0
    park: int = 0
    in_flight: Mapping[ItemId, InFlight] = field(factory=dict[ItemId, InFlight])
    deliveries: Mapping[DeliveryId, DeliveryView] = field(
        factory=dict[DeliveryId, DeliveryView]
    )
    frontiers: Mapping[TargetId, Frontier] = field(factory=dict[TargetId, Frontier])
    urgent_park: int = 0  # the park mark of urgent entries: a Stop's
    policy: ApprovalPolicy | None = None
    inc: int = 0
    alive: bool = False
    identity: str = ""
    resume: str | None = None
    problem: Diagnostic | None = None
    failed: Unfinished | None = None  # by an error, which is that problem
    closed: bool = False
    # What the last turn that read something read, until one completes: a kill may come
    # before the runtime has recorded it.
    just_read: tuple[Item, ...] = ()
    notes: Notes = field(factory=Notes)

    @property
    def runnable(self) -> bool:
        """
        Tell whether a turn is due.

        An urgent entry makes one due unless a Stop came after it; any other wakes only
        above the park mark.
        """
        if any(i.position > self.urgent_park for i in self.lanes[Lane.urgent]):
            return True
        return any(
            item.wakes and item.position > self.park
            for lane in (Lane.next_step, Lane.next_turn)
            for item in self.lanes[lane]
        )

    @property
    def parked(self) -> bool:
        """Tell whether something waits that only a resume, or newer input, sets off."""
        if self.runnable:
            return False
        lanes = self.lanes.values()
        if any(item.wakes for items in lanes for item in items):
            return True
        return self.turn is None and (self.failed is not None or bool(self.kept))

    @property
    def kept(self) -> tuple[Item, ...]:
        """List what the runtime keeps for its next input."""
        return tuple(f.item for f in self.in_flight.values() if f.carried)

    @property
    def waiting(self) -> int:
        """Count the messages that the agent has not read."""
        lanes = (item for items in self.lanes.values() for item in items)
        return len({i.message for i in (*lanes, *self.kept) if i.message is not None})


class Stage(enum.StrEnum):
    """How far a cut has come; the order is the ladder's."""

    interrupting = "interrupting"
    sweeping = "sweeping"
    settling = "settling"
    terminating = "terminating"
    killing = "killing"


@frozen
class Cut:
    """The cut that is converging. The first cause is in the ledger's open turn."""

    stage: Stage
    strict: bool  # escalates by the stages' deadlines, not after the long one
    park_before: tuple[int, int]  # the park mark, and that of urgent entries
    phase_before: Phase
    retried: bool = False  # a refused interrupt was sent again, with the named turn
    sent: bool = False  # the interrupt has left
    stuck: bool = False  # an ask was open that the runtime cannot take back


class BatchStage(enum.StrEnum):
    pre_step = "pre_step"
    submitting = "submitting"
    taken = "taken"


@frozen
class Pending:
    """The batch of the open turn that the runtime has not named yet, or has."""

    id: str
    items: tuple[Item, ...]
    stage: BatchStage
    more: bool = False  # at a step boundary: the runtime has something to go on with
    broken: str = ""  # written under a cut, with a fault: it may run or not


@frozen
class OpenAsk:
    approval: ApprovalId
    ask: AskRef
    gen: Generation
    inc: int


@frozen
class OpenSend:
    """A visible send under way; without `call` it is an auto-reply."""

    send: SendId
    gen: Generation
    target: str
    text: str
    call: CallRef | None
    inc: int
    turn: int


@frozen
class Chunk:
    """A list of the text pieces that people saw, newest first."""

    text: str
    before: Chunk | None = field(default=None, eq=False, repr=False)

    def joined(self) -> str:
        pieces: list[str] = []
        chunk: Chunk | None = self
        while chunk is not None:
            pieces.append(chunk.text)
            chunk = chunk.before
        return "".join(reversed(pieces))


@frozen(slots=False)  # see `changed`
class Live:
    phase: Phase = Phase.offline
    serial: int = 0  # for ids, unique within an epoch
    capabilities: Capabilities | None = None
    in_process: bool = False
    batch: Pending | None = None
    runtime_turn: TurnRef | None = None
    # The runtime's turn id to the generation that it belongs to, newest last.
    turns: Mapping[str, Generation] = field(factory=dict[str, Generation])
    # Steers without an answer yet, each with the key of its attempt.
    steering: Mapping[ItemId, str] = field(factory=dict[ItemId, str])
    lost: Pending | None = None  # submitted by a turn that is over, not answered yet
    interrupts: int = 0  # sent to this incarnation and not answered yet
    histories: int = 0  # `Settle`s without an answer yet
    named: str | None = None  # the runtime's session, told before it was ready
    cleared: int = 0  # what a cancel found in flight at or below never comes back
    cut: Cut | None = None
    ended: Ended | None = None  # the runtime's turn is over, its entries are settled
    asks: Mapping[ApprovalId, OpenAsk] = field(factory=dict[ApprovalId, OpenAsk])
    sends: Mapping[SendId, OpenSend] = field(factory=dict[SendId, OpenSend])
    # Reads under way: generation and call, to the incarnation that called.
    reads: Mapping[tuple[Generation, str], int] = field(
        factory=dict[tuple[Generation, str], int]
    )
    said: Chunk | None = field(default=None, eq=False, repr=False)
    ladder_failed: bool = False
    going_on: Unfinished | None = (
        None  # a person asked for it while there was no process
    )
    maintenance: Maintenance | None = None
    idle_waiters: tuple[int, ...] = ()
    closing: CutCause | None = None
    leaving: bool = False  # the last process is being closed
    closing_refs: tuple[int, ...] = ()
    late: Mapping[str, int] = field(factory=dict[str, int])


@frozen
class Maintenance:
    ref: int | None  # None: nobody waits for its value
    id: str
    aborted: bool = False


@frozen
class Ended:
    """A turn's end that waits for its entries to be settled."""

    status: str
    detail: str
    text: str
    usage: Mapping[str, int] = field(factory=dict[str, int])
    advice: str = ""


@frozen(slots=False)  # see `changed`
class Session:
    """What `step` takes and gives."""

    ledger: Ledger
    live: Live = field(factory=Live)
    auto_reply: bool = True
    default_policy: ApprovalPolicy = ApprovalPolicy.ask
    runtime: str = ""  # what people call the runtime

    def is_open(self, gen: Generation) -> bool:
        """Tell whether an effect of `gen` may still leave."""
        return gen == self.ledger.gen and self.ledger.fence is Fence.open

    @property
    def running(self) -> bool:
        """What the outside world sees: idle or running, nothing else (R111, R112)."""
        return self.ledger.turn is not None

    @property
    def quiescent(self) -> bool:
        """No active driver, no live run, no maintenance, nothing runnable (R105)."""
        return (
            self.live.phase in (Phase.idle, Phase.offline, Phase.closed)
            and self.ledger.turn is None
            and not self.ledger.runnable
        )
