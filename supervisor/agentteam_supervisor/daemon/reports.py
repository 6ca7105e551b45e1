"""
What the server is told of a session: journal events projected to frames. Pure.

`Reporting` is a fold of the journal like the ledger, so that a restart goes on where
it stopped: the lines of an open urgent stay in the order requested, stopping,
interrupted, then started or failed, and none comes twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from agentteam_protocol import journal as j
from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.approval import ApprovalRequest
from agentteam_protocol.codec import to_wire
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.frames import (
    ActivityReported,
    ApprovalReported,
    DeliveryReported,
    FenceReported,
    Frame,
    FrontierReported,
    RunReported,
    StatusReported,
)
from agentteam_protocol.ids import (
    AgentId,
    ApprovalId,
    DeliveryId,
    Generation,
    TargetId,
)
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.state import Fence, Ledger, Session, changed

if TYPE_CHECKING:
    from agentteam_protocol.inbox import Item

# These belong to the run that has just ended.
_OF_LAST_RUN = frozenset({ActivityKind.interrupted, ActivityKind.run_ended})


class Told(enum.Enum):
    """How far the lines of an urgent have come."""

    requested = enum.auto()
    stopping = enum.auto()
    interrupted = enum.auto()


@frozen
class Urgent:
    who: str
    told: Told


@frozen(slots=False)  # see `changed`
class Reporting:
    """What the next report has to know of the events before it."""

    ledger: Ledger
    run: RunReported | None = None  # the open one, or the last
    stopped_by: str = ""
    stopping: bool = False  # a line says that the run is being stopped by a control
    urgents: Mapping[DeliveryId, Urgent] = field(factory=dict[DeliveryId, Urgent])
    asks: Mapping[ApprovalId, ApprovalRequest] = field(
        factory=dict[ApprovalId, ApprovalRequest]
    )
    # A delivery's report moves its frontier at the server by itself.
    surfaced: tuple[TargetId, int] | None = None


def begin(agent: AgentId) -> Reporting:
    """Make the state before the first event."""
    return Reporting(empty(agent))


def report(
    before: Reporting, event: j.JournalEvent, at: str, after: Ledger | None = None
) -> tuple[Reporting, list[Frame]]:
    """
    Take in one event; give the frames that it is worth.

    A session has folded it already: `after` spares the second fold.
    """
    if after is None:
        after = fold(before.ledger, event)
    rule = _RULES.get(type(event))
    if rule is None:
        return changed(before, ledger=after), []
    report = _Report(before, at, after)
    rule(report, event)
    return changed(report.state, ledger=after), report.frames


def status(
    session: Session, run_started_at: str | None, capabilities: Mapping[str, Any]
) -> StatusReported:
    """Say what the agent's page shows of it now."""
    ledger = session.ledger
    turn = ledger.turn
    return StatusReported(
        agent=ledger.agent,
        epoch=ledger.gen.epoch,
        running=session.running,
        phase=session.live.phase.value,
        parked=ledger.parked,
        run_id=turn.run_id if turn else None,
        gen=turn.gen if turn else ledger.gen,
        run_started_at=run_started_at if turn else None,
        problem=ledger.problem,
        capabilities=capabilities,
        waiting=ledger.waiting,
    )


class _Report:
    """One call of `report`: a working copy of the state and the frames so far."""

    def __init__(self, state: Reporting, at: str, after: Ledger) -> None:
        self.state = state
        self.at = at
        self.after = after
        self.frames: list[Frame] = []

    @property
    def ledger(self) -> Ledger:
        return self.state.ledger

    def set(self, **changes: Any) -> None:
        self.state = changed(self.state, **changes)

    def line(
        self,
        kind: ActivityKind,
        delivery: DeliveryId | None = None,
        detail: Mapping[str, Any] | None = None,
        **words: str,
    ) -> None:
        run = self.state.run
        here = run is not None and (
            self.ledger.turn is not None or kind in _OF_LAST_RUN
        )
        self.frames.append(
            ActivityReported(
                agent=self.ledger.agent,
                kind=kind,
                run_id=run.run_id if run and here else None,
                gen=run.gen if run and here else self.ledger.gen,
                delivery=delivery,
                words={k: w for k, w in words.items() if w},
                detail=detail or {},
                at=self.at,
            )
        )

    # --- the lines of urgents ---------------------------------------------------

    def tell(self, delivery: DeliveryId, told: Told | None) -> None:
        urgents = dict(self.state.urgents)
        if told is None:
            del urgents[delivery]
        else:
            urgents[delivery] = evolve(urgents[delivery], told=told)
        self.set(urgents=urgents)

    def requested(self, delivery: DeliveryId, item: Item) -> None:
        who = f"@{item.author.name.removeprefix('@')}" if item.author else ""
        urgent = Urgent(who, Told.requested)
        self.set(urgents={**self.state.urgents, delivery: urgent})
        self.line(ActivityKind.requested, delivery, who=who)
        if self.ledger.fence is Fence.hold:
            self.stopping(delivery)

    def stopping(self, delivery: DeliveryId) -> None:
        self.tell(delivery, Told.stopping)
        self.line(ActivityKind.stopping, delivery)

    def waiting(self, told: Told) -> list[DeliveryId]:
        return [d for d, urgent in self.state.urgents.items() if urgent.told is told]


def _spliced(r: _Report, e: j.InboxSpliced) -> None:
    if e.reason is not j.SpliceReason.accepted:
        return
    for item in e.added:
        if item.policy is not None and item.delivery is not None:
            r.requested(item.delivery, item)


def _interrupt_requested(r: _Report, e: j.InterruptRequested) -> None:
    for delivery in r.waiting(Told.requested):
        r.stopping(delivery)
    if e.cause is CutCause.urgent or r.state.stopping:
        return
    who = f"@{e.who.removeprefix('@')}" if e.who else ""
    r.set(stopping=True, stopped_by=who)
    r.line(ActivityKind.stopping, None, {"cause": e.cause.value}, who=who)


def _fence_held(r: _Report, e: j.FenceHeld) -> None:
    r.frames.append(FenceReported(r.ledger.agent, e.gen, Fence.hold.value))


def _fence_reopened(r: _Report, e: j.FenceReopened) -> None:
    r.set(stopping=False, stopped_by="")
    r.frames.append(FenceReported(r.ledger.agent, e.gen, Fence.open.value))


def _fence_closed(r: _Report, e: j.FenceClosed) -> None:
    agent = r.ledger.agent
    r.frames.append(FenceReported(agent, e.gen, Fence.fenced.value))
    r.frames.append(FenceReported(agent, e.opened, Fence.open.value))
    _interrupted(r)  # nothing, when nobody asked for it: the process went by itself


def _interrupted(r: _Report) -> None:
    for delivery in r.waiting(Told.stopping):
        r.tell(delivery, Told.interrupted)
        r.line(ActivityKind.interrupted, delivery)
    if r.state.stopping:
        r.line(ActivityKind.interrupted, who=r.state.stopped_by)
        r.set(stopping=False)


def _turn_start(r: _Report, e: j.TurnStart) -> None:
    run = RunReported(r.ledger.agent, e.run_id, e.turn, e.gen, started_at=r.at)
    r.set(run=run, stopping=False, stopped_by="")
    r.frames.append(run)
    r.set(ledger=r.after)  # the line below is the new run's
    r.line(ActivityKind.run_started)


def _user_message(r: _Report, e: j.UserMessage) -> None:
    if r.state.run is not None and e.delivery is not None:
        deliveries = (*r.state.run.deliveries, e.delivery)
        r.set(run=evolve(r.state.run, deliveries=deliveries))


def _turn_end(r: _Report, e: j.TurnEnd) -> None:
    if r.state.run is None or r.ledger.turn is None:
        return
    run = evolve(
        r.state.run,
        ended_at=r.at,
        outcome=e.outcome.value,
        cause=e.cause.value if e.cause else None,
        detail=e.detail,
        usage=e.usage,
    )
    r.set(run=run)
    r.frames.append(run)
    detail = {"cause": run.cause, "detail": e.detail}
    stopped_by = r.state.stopped_by if e.cause is CutCause.stop else ""
    r.line(
        ActivityKind.run_ended,
        None,
        {k: v for k, v in detail.items() if v},
        outcome=e.outcome.value,
        stopped_by=stopped_by,
    )


def _delivery_changed(r: _Report, e: j.DeliveryChanged) -> None:
    evidence = e.evidence
    if evidence is not None and not evidence.at:
        evidence = evolve(evidence, at=r.at)
    r.frames.append(
        DeliveryReported(
            delivery=e.delivery,
            agent=r.ledger.agent,
            state=e.state,
            attempt=e.attempt,
            gen=e.gen,
            evidence=evidence,
            diagnostic=e.diagnostic,
            note=e.note,
        )
    )
    view = r.ledger.deliveries.get(e.delivery)
    if e.state is DeliveryState.surfaced and view is not None:
        seen = view.target is not None and view.seq is not None
        r.set(surfaced=(view.target, view.seq) if seen else None)
    _urgent_changed(r, e)


def _urgent_changed(r: _Report, e: j.DeliveryChanged) -> None:
    urgent = r.state.urgents.get(e.delivery)
    if urgent is None:
        return
    match e.state:
        case DeliveryState.queued | DeliveryState.accepted:
            return
        case DeliveryState.surfaced:
            r.line(ActivityKind.started, e.delivery, who=urgent.who)
        case _:
            problem = e.diagnostic.problem if e.diagnostic else e.state.value
            what_to_do = e.diagnostic.what_to_do if e.diagnostic else ""
            r.line(
                ActivityKind.failed,
                e.delivery,
                {"state": e.state.value, "whatToDo": what_to_do},
                who=urgent.who,
                problem=problem,
            )
    r.tell(e.delivery, None)


def _frontier_moved(r: _Report, e: j.FrontierMoved) -> None:
    own = r.state.surfaced == (e.target, e.seqs[0]) if len(e.seqs) == 1 else False
    if e.seqs and not own:
        frame = FrontierReported(r.ledger.agent, e.target, e.seqs, r.ledger.gen)
        r.frames.append(frame)


def _asked(r: _Report, e: j.ApprovalAsked) -> None:
    request = e.request if e.request.asked_at else evolve(e.request, asked_at=r.at)
    r.set(asks={**r.state.asks, request.id: request})
    r.frames.append(ApprovalReported(r.ledger.agent, request, _run_gen(r)))
    detail = {"approval": request.id}
    r.line(ActivityKind.approval_asked, None, detail, tool=request.tool_name)


def _decided(r: _Report, e: j.ApprovalDecided) -> None:
    request = r.state.asks.get(e.id)
    if request is None:
        return
    r.set(asks={k: v for k, v in r.state.asks.items() if k != e.id})
    r.frames.append(ApprovalReported(r.ledger.agent, request, _run_gen(r), e.outcome))
    r.line(
        ActivityKind.approval_decided,
        None,
        {"approval": e.id},
        tool=request.tool_name,
        outcome=e.outcome.value,
    )


def _run_gen(r: _Report) -> Generation:
    turn = r.ledger.turn
    return turn.gen if turn else r.ledger.gen


def _notice(r: _Report, e: j.RunNotice) -> None:
    r.line(
        ActivityKind.notice,
        None,
        {"detail": e.detail} if e.detail else None,
        text=e.text,
    )


def _problem(r: _Report, e: j.RunProblem) -> None:
    if e.diagnostic is not None:
        detail = to_wire(e.diagnostic)
        r.line(ActivityKind.notice, None, detail, text=e.diagnostic.problem)


def _send_decided(r: _Report, e: j.SendDecided) -> None:
    """A reply that was not published stays a visible draft of its run."""
    run = r.state.run
    if e.auto_reply and e.seq is None and run is not None and e.text:
        r.set(run=evolve(run, draft=e.text))
        r.frames.append(evolve(run, draft=e.text))


def _spoken(r: _Report, e: j.AssistantMessage) -> None:
    """What people saw of a reply that was cut stays readable, as its draft."""
    run = r.state.run
    if e.partial and run is not None:
        r.set(run=evolve(run, draft=e.text))


def _epoch_begun(r: _Report, e: j.EpochBegun) -> None:
    r.frames.append(FenceReported(r.ledger.agent, e.gen, Fence.open.value))
    _interrupted(r)  # what was being stopped has ended with the supervisor


_RULES: dict[type, Callable[[_Report, Any], None]] = {
    j.InboxSpliced: _spliced,
    j.InterruptRequested: _interrupt_requested,
    j.FenceHeld: _fence_held,
    j.FenceReopened: _fence_reopened,
    j.FenceClosed: _fence_closed,
    j.TurnStart: _turn_start,
    j.UserMessage: _user_message,
    j.AssistantMessage: _spoken,
    j.TurnEnd: _turn_end,
    j.DeliveryChanged: _delivery_changed,
    j.FrontierMoved: _frontier_moved,
    j.ApprovalAsked: _asked,
    j.ApprovalDecided: _decided,
    j.RunNotice: _notice,
    j.RunProblem: _problem,
    j.SendDecided: _send_decided,
    j.EpochBegun: _epoch_begun,
}
