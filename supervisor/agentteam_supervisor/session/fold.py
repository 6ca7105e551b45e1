"""
Fold the journal into the ledger.

The machine changes the ledger by no other way, so the state before a crash and the
state after reading the journal are equal by construction. An event that needs an open
turn and finds none is the tail of a crash between two turns: it changes nothing
(intervention spec §9.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import TERMINAL, AuthorKind, DeliveryState
from agentteam_protocol.frontier import Frontier
from agentteam_protocol.ids import AgentId, DeliveryId, Generation, TargetId
from agentteam_supervisor.session.pending import spliced
from agentteam_supervisor.session.state import (
    DeliveryView,
    Fence,
    InFlight,
    Ledger,
    OpenTurn,
    Unfinished,
    changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_protocol.inbox import Item

# Settled deliveries are remembered to recognise a repeat; the server stops repeating
# a delivery at its receipt, so the oldest can be forgotten.
MAX_SETTLED = 1024


def empty(agent: AgentId, epoch: int = 1) -> Ledger:
    """Make the ledger of a session that has no journal yet."""
    return Ledger(agent=agent, gen=Generation(epoch, 1))


def fold(ledger: Ledger, event: j.JournalEvent) -> Ledger:
    """Apply one event."""
    after = _RULES[type(event)](ledger, event)
    notes = after.notes.after(event)
    return after if notes is after.notes else changed(after, notes=notes)


def _spliced(ledger: Ledger, e: j.InboxSpliced) -> Ledger:
    deliveries = ledger.deliveries
    if e.reason is j.SpliceReason.accepted:
        new = {i.delivery: _view(i) for i in e.added if i.delivery is not None}
        deliveries = _bounded({**deliveries, **new})
    return changed(
        ledger,
        lanes=spliced(ledger.lanes, e.removed, e.added),
        position=max([ledger.position, *(i.position for i in e.added)]),
        deliveries=deliveries,
    )


def _view(item: Item) -> DeliveryView:
    return DeliveryView(
        state=DeliveryState.queued,
        attempt=item.attempt,
        policy=item.policy,
        message=item.message,
        target=item.target,
        seq=item.seq,
        item=item,
    )


def _bounded(
    deliveries: dict[DeliveryId, DeliveryView],
) -> dict[DeliveryId, DeliveryView]:
    if len(deliveries) <= 2 * MAX_SETTLED:
        return deliveries
    settled = [d for d, view in deliveries.items() if view.state in TERMINAL]
    for delivery in settled[: max(0, len(settled) - MAX_SETTLED)]:
        del deliveries[delivery]
    return deliveries


def _turn_start(ledger: Ledger, e: j.TurnStart) -> Ledger:
    turn = OpenTurn(number=e.turn, run_id=e.run_id, gen=e.gen)
    return changed(ledger, turn=turn, turns=e.turn)


def _step_start(ledger: Ledger, e: j.StepStart) -> Ledger:
    return _in_turn(ledger, steps=e.step, step_open=True)


def _step_end(ledger: Ledger, _: j.StepEnd) -> Ledger:
    return _in_turn(ledger, step_open=False)


def _in_turn(ledger: Ledger, **changes: Any) -> Ledger:
    if ledger.turn is None:
        return ledger
    return changed(ledger, turn=changed(ledger.turn, **changes))


def _user_message(ledger: Ledger, e: j.UserMessage) -> Ledger:
    view = ledger.deliveries.get(e.delivery) if e.delivery else None
    flight = ledger.in_flight.get(e.item)
    item = view.item if view is not None else flight.item if flight else None
    if item is None:
        return ledger
    if view is not None:
        item = evolve(item, attempt=view.attempt)
    before = ledger.just_read if ledger.turn is not None and ledger.turn.read else ()
    ledger = _in_turn(changed(ledger, just_read=(*before, item)), read=True)
    if item.target is None or _by_agent(item):
        return ledger
    return _in_turn(ledger, target=item.target)


def _by_agent(item: Item) -> bool:
    """
    Tell whether another agent asked: its turn owes nobody an automatic reply.

    Else two agents of one target would answer each other for ever.
    """
    return item.author is not None and item.author.kind is AuthorKind.agent


def _tool_call(ledger: Ledger, e: j.ToolCall) -> Ledger:
    if ledger.turn is None:
        return ledger
    return _in_turn(ledger, calls=(*ledger.turn.calls, e.call_id))


def _tool_result(ledger: Ledger, e: j.ToolResult) -> Ledger:
    if ledger.turn is None:
        return ledger
    calls = tuple(c for c in ledger.turn.calls if c != e.call_id)
    return _in_turn(ledger, calls=calls)


def _turn_end(ledger: Ledger, e: j.TurnEnd) -> Ledger:
    done = e.outcome is j.TurnOutcome.completed
    return changed(ledger, turn=None, just_read=() if done else ledger.just_read)


def _forgotten(ledger: Ledger, e: j.InputForgotten) -> Ledger:
    rest = tuple(item for item in ledger.just_read if item.id != e.item)
    return changed(ledger, just_read=rest)


def _interrupt_requested(ledger: Ledger, e: j.InterruptRequested) -> Ledger:
    if ledger.turn is None or ledger.turn.cause is not None:
        return ledger
    return _in_turn(ledger, cause=e.cause)


def _held(ledger: Ledger, _: j.FenceHeld) -> Ledger:
    return changed(ledger, fence=Fence.hold)


def _reopened(ledger: Ledger, _: j.FenceReopened) -> Ledger:
    return _in_turn(changed(ledger, fence=Fence.open), cause=None)


def _fenced(ledger: Ledger, e: j.FenceClosed) -> Ledger:
    return changed(ledger, gen=e.opened, fence=Fence.open)


def _asked(ledger: Ledger, e: j.ApprovalAsked) -> Ledger:
    turn = ledger.turn
    if turn is None:
        return ledger
    call = e.request.call_id
    withheld = {call} if call and call not in turn.allowed else set[str]()
    return _in_turn(
        ledger,
        asks={**turn.asks, e.request.id: call},
        withheld=turn.withheld | withheld,
    )


def _decided(ledger: Ledger, e: j.ApprovalDecided) -> Ledger:
    turn = ledger.turn
    if turn is None:
        return ledger
    call = turn.asks.get(e.id)
    started = e.outcome is ApprovalOutcome.allowed_once and call is not None
    allowed = frozenset({call} if started and call else ())
    return _in_turn(
        ledger,
        asks={a: c for a, c in turn.asks.items() if a != e.id},
        withheld=turn.withheld - allowed,
        allowed=turn.allowed | allowed,
    )


def _policy(ledger: Ledger, e: j.ApprovalPolicySet) -> Ledger:
    return changed(ledger, policy=e.policy)


def _delivery(ledger: Ledger, e: j.DeliveryChanged) -> Ledger:
    view = ledger.deliveries.get(e.delivery)
    if view is None:
        return ledger
    superseded = e.state is DeliveryState.superseded
    kept = superseded and view.item.id in ledger.in_flight
    view = changed(view, state=e.state, attempt=e.attempt, kept=kept)
    return changed(ledger, deliveries={**ledger.deliveries, e.delivery: view})


def _in_flight(ledger: Ledger, e: j.ItemsInFlight) -> Ledger:
    gone = frozenset(e.removed)
    flights = {i: f for i, f in ledger.in_flight.items() if i not in gone}
    flights |= {item.id: InFlight(item, ledger.gen) for item in e.added}
    for item in e.carried:
        if item in flights:
            flights[item] = evolve(flights[item], carried=True)
    return changed(ledger, in_flight=flights)


def _frontier(ledger: Ledger, e: j.FrontierMoved) -> Ledger:
    before = ledger.frontiers.get(e.target, Frontier())
    after = before.raised(e.floor or 0).saw(e.seqs)
    return changed(ledger, frontiers={**ledger.frontiers, e.target: after})


def _process(ledger: Ledger, e: j.RunProcess) -> Ledger:
    return changed(ledger, inc=e.inc, alive=e.alive, identity=e.identity)


def _session(ledger: Ledger, e: j.RunSession) -> Ledger:
    return changed(ledger, resume=e.token or None)


def _parked(ledger: Ledger, e: j.RunParked) -> Ledger:
    urgent = ledger.urgent_park if e.urgent is None else e.urgent
    return changed(ledger, park=e.position, urgent_park=urgent)


def _problem(ledger: Ledger, e: j.RunProblem) -> Ledger:
    failed = Unfinished(e.target) if e.run is not None else None
    return changed(ledger, problem=e.diagnostic, failed=failed)


def _send(ledger: Ledger, e: j.SendDecided) -> Ledger:
    if e.seq is None:
        return ledger
    # An agent has seen what it wrote itself, or every second reply would be held.
    ledger = _frontier(ledger, j.FrontierMoved(e.target, (e.seq,)))
    turn = ledger.turn
    if turn is None or e.auto_reply or e.gen != turn.gen:
        return ledger
    return _in_turn(ledger, sent_to=turn.sent_to | {TargetId(e.target)})


def _closed(ledger: Ledger, _: j.SessionClosed) -> Ledger:
    return changed(ledger, closed=True)


def _epoch(ledger: Ledger, e: j.EpochBegun) -> Ledger:
    return changed(ledger, gen=e.gen, fence=Fence.open, alive=False)


def _same(ledger: Ledger, _: Any) -> Ledger:
    """Change nothing: a record for people, or one that only closes a bracket."""
    return ledger


_RULES: dict[type, Callable[[Ledger, Any], Ledger]] = {
    j.InboxSpliced: _spliced,
    j.TurnStart: _turn_start,
    j.StepStart: _step_start,
    j.UserMessage: _user_message,
    j.AssistantMessage: _same,
    j.ToolCall: _tool_call,
    j.ToolResult: _tool_result,
    j.StepEnd: _step_end,
    j.TurnEnd: _turn_end,
    j.InterruptRequested: _interrupt_requested,
    j.FenceHeld: _held,
    j.FenceReopened: _reopened,
    j.FenceClosed: _fenced,
    j.FenceLate: _same,
    j.ApprovalAsked: _asked,
    j.ApprovalDecided: _decided,
    j.ApprovalPolicySet: _policy,
    j.DeliveryChanged: _delivery,
    j.ItemsInFlight: _in_flight,
    j.FrontierMoved: _frontier,
    j.RunProcess: _process,
    j.RunSession: _session,
    j.RunParked: _parked,
    j.RunProblem: _problem,
    j.RunNotice: _same,
    j.InputForgotten: _forgotten,
    j.SendDecided: _send,
    j.SessionClosed: _closed,
    j.EpochBegun: _epoch,
}
