"""
What the session machine wants done: imperatives, performed by the actor in order.

An effect class with `waits = True` leaves only after the records before it are
durable (write-ahead). One that carries `gen` and waits leaves only if that generation
is still OPEN then (`Session.is_open`); else the actor feeds back what was not done: a
`SubmitFailed(written=False)`, a `SteerFailed(written=False)`, or it denies the ask.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import frozen

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.ids import ApprovalId, Generation, ItemId, RunId, SendId
from agentteam_protocol.inbox import Item
from agentteam_protocol.journal import JournalEvent
from agentteam_runtimes.driver import AskRef, CallRef, TurnRef
from agentteam_supervisor.session.state import Ledger


@frozen
class Record:
    """Make a journal event durable; `after` is the ledger with it."""

    waits: ClassVar[bool] = False
    event: JournalEvent
    after: Ledger


@frozen
class OpenRuntime:
    """
    Start incarnation `inc`; answered by `RuntimeReady` or `StartFailed`.

    `unsettled` are the entries to look up in its history first. `paced`: the last one
    died by itself, so restart intensity applies; our own kills do not count. `why` it
    died, for people to read when it is not started any more.
    """

    waits: ClassVar[bool] = False
    inc: int
    resume: str | None
    unsettled: tuple[Item, ...] = ()
    paced: bool = False
    why: str = ""


@frozen
class CloseRuntime:
    """End incarnation `inc` the clean way, bounded; answered by `ProcessGone`."""

    waits: ClassVar[bool] = False
    inc: int


@frozen
class PreStep:
    """Ask the listeners of `agent/pre-step`; answered by `PreStepDecided`."""

    waits: ClassVar[bool] = False
    batch: str
    items: tuple[Item, ...]


@frozen
class Submit:
    """Answered by `SubmitAccepted` or `SubmitFailed`."""

    waits: ClassVar[bool] = True
    inc: int
    gen: Generation
    batch: str
    items: tuple[Item, ...]
    turn: TurnRef | None = None  # set: go on with this turn's next step


@frozen
class SteerItem:
    """Answered by `SteerAccepted` or `SteerFailed`."""

    waits: ClassVar[bool] = True
    inc: int
    gen: Generation
    turn: TurnRef
    item: Item


@frozen
class CancelTurn:
    """Cancel the turn scope: timers, answerers, the loop's model call and tools."""

    waits: ClassVar[bool] = False
    run_id: RunId


@frozen
class Interrupt:
    """Answered by `InterruptTaken` or `InterruptFailed`."""

    waits: ClassVar[bool] = False
    inc: int
    turn: TurnRef | None


@frozen
class Sweep:
    """End what the run started; answered by `Swept`."""

    waits: ClassVar[bool] = False
    inc: int
    run_id: RunId


@frozen
class Terminate:
    """Ask the whole incarnation to end; its end comes as `ProcessGone`."""

    waits: ClassVar[bool] = False
    inc: int


@frozen
class Kill:
    """End the whole incarnation; answered by `ProcessGone` or `KillFailed`."""

    waits: ClassVar[bool] = False
    inc: int


@frozen
class Settle:
    """Look these entries up in the runtime's history; answered by `Settled`."""

    waits: ClassVar[bool] = False
    inc: int
    items: tuple[Item, ...]


@frozen
class SetDeadline:
    """
    Feed `DeadlinePassed(name)` after the limit of that name.

    Names: start, interrupt, interrupt_soft, sweep, settle, terminate, kill,
    maintenance, silence. Set again, the earlier of both holds.
    """

    waits: ClassVar[bool] = False
    name: str


@frozen
class ClearDeadline:
    waits: ClassVar[bool] = False
    name: str


@frozen
class Consult:
    """Ask the answerers; answered by `ApprovalAnswered`."""

    waits: ClassVar[bool] = True
    request: ApprovalRequest


@frozen
class WithdrawAsk:
    """Nobody need answer this any more."""

    waits: ClassVar[bool] = False
    approval: ApprovalId


@frozen
class Deny:
    """Tell the runtime no, at once."""

    waits: ClassVar[bool] = False
    inc: int
    ask: AskRef
    outcome: ApprovalOutcome


@frozen
class Allow:
    """Tell the runtime yes, once its record is durable and its run still open."""

    waits: ClassVar[bool] = True
    inc: int
    gen: Generation
    ask: AskRef


@frozen
class JudgeSend:
    """Take a visible send to the server's compare-and-set; `SendAnswered` follows."""

    waits: ClassVar[bool] = True
    send: SendId
    gen: Generation
    target: str
    text: str
    auto_reply: bool = False


@frozen
class ReadTarget:
    """Fetch history for the agent; answered by `HistoryRead`."""

    waits: ClassVar[bool] = True
    call: CallRef
    gen: Generation
    target: str
    after: int | None = None


@frozen
class ToolReply:
    """Answer a call of an agent tool, in words that the agent can act on."""

    waits: ClassVar[bool] = True
    inc: int
    call: CallRef
    text: str
    error: bool = False


@frozen
class Progress:
    """Streaming text of the open generation, for people who watch."""

    waits: ClassVar[bool] = False
    run_id: RunId
    gen: Generation
    text: str


@frozen
class Maintain:
    """Run a maintenance task; answered by `MaintenanceEnded` with this id."""

    waits: ClassVar[bool] = False
    inc: int
    task: str
    id: str


@frozen
class AbortMaintenance:
    waits: ClassVar[bool] = False
    id: str


@frozen
class Received:
    """The receipt of a delivery: it is durable here."""

    waits: ClassVar[bool] = True
    item: ItemId
    attempt: int


@frozen
class Reply:
    """Answer the caller `ref`: a value, or an error by its name."""

    waits: ClassVar[bool] = True
    ref: int
    value: Any = None
    error: str = ""


@frozen
class Finish:
    """The session is closed: the actor ends after its records are durable."""

    waits: ClassVar[bool] = True


Effect = (
    Record
    | OpenRuntime
    | CloseRuntime
    | PreStep
    | Submit
    | SteerItem
    | CancelTurn
    | Interrupt
    | Sweep
    | Terminate
    | Kill
    | Settle
    | SetDeadline
    | ClearDeadline
    | Consult
    | WithdrawAsk
    | Deny
    | Allow
    | JudgeSend
    | ReadTarget
    | ToolReply
    | Progress
    | Maintain
    | AbortMaintenance
    | Received
    | Reply
    | Finish
)
