"""A turn's way: opened, claimed for, submitted, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.ids import SendId
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes.driver import TurnRef, TurnStatus
from agentteam_supervisor.session import effects as fx, events as ev, setbacks
from agentteam_supervisor.session.pending import (
    first_of_target,
    next_batch,
    next_step_batch,
)
from agentteam_supervisor.session.repair import closing_records, closing_step
from agentteam_supervisor.session.settle import doubted, requeue
from agentteam_supervisor.session.state import (
    BatchStage,
    Chunk,
    Ended,
    OpenSend,
    OpenTurn,
    Pending,
    Phase,
)

if TYPE_CHECKING:
    from agentteam_supervisor.session.work import Work

# How many of the runtime's turn ids are remembered to recognise late events.
MAX_TURNS = 64
# The deadlines of a cut; none outlives it.
LADDER = ("interrupt", "interrupt_soft", "sweep", "terminate", "kill")

_OUTCOMES = {
    TurnStatus.completed: j.TurnOutcome.completed,
    TurnStatus.max_tokens: j.TurnOutcome.max_tokens,
    TurnStatus.interrupted: j.TurnOutcome.aborted,
    TurnStatus.failed: j.TurnOutcome.error,
}


def proceed(w: Work) -> None:
    """Go on where no turn is open: the urgent batch, the next turn, or Idle (t21-23)."""
    if w.live.closing is not None:
        leave(w)
    elif w.ledger.runnable:
        open_turn(w)
        claim(w)
    else:
        w.set(phase=Phase.idle)


def leave(w: Work) -> None:
    """Close the last process and end the session (t35, t35a, t35b)."""
    if w.ledger.alive and not w.live.leaving:
        w.set(phase=Phase.converging, leaving=True, cut=None)
        w.do(fx.CloseRuntime(w.ledger.inc), fx.SetDeadline("kill"))
        return
    closing = w.live.closing
    if closing is CutCause.disposed:
        disposed = Diagnostic(
            "the agent was removed", "send the message to another one"
        )
        waiting = tuple(i for items in w.ledger.lanes.values() for i in items)
        w.drop(waiting, j.SpliceReason.cancelled, DeliveryState.cancelled, disposed)
        for flight in tuple(w.ledger.in_flight.values()):
            w.record(j.ItemsInFlight(removed=(flight.item.id,)))
            w.change(flight.item, DeliveryState.cancelled, disposed)
        w.record(j.SessionClosed(closing))
    w.set(phase=Phase.closed, leaving=False, cut=None)
    for ref in w.live.closing_refs:
        w.reply(ref)
    w.do(*(fx.ClearDeadline(name) for name in LADDER), fx.Finish())


def wake(w: Work) -> None:
    """React to input that became runnable, in whatever phase."""
    if w.live.closing is not None or not w.ledger.runnable:
        return
    match w.phase:
        case Phase.idle:
            open_turn(w)
            claim(w)
        case Phase.offline:
            start(w)
        case Phase.starting | Phase.recovering if w.open_turn is None:
            open_turn(w)
        case _:
            pass


def start(
    w: Work, *, recovering: bool = False, paced: bool = False, why: str = ""
) -> None:
    """Bring a process up; a due turn is opened first, so that Stop can name it (t36)."""
    w.set(
        phase=Phase.recovering if recovering else Phase.starting,
        in_process=False,
        interrupts=0,
        histories=0,
        named=None,
    )
    if w.ledger.runnable and w.open_turn is None:
        open_turn(w)
    in_flight = tuple(f.item for f in w.ledger.in_flight.values())
    unsettled = in_flight + doubted(w) + w.ledger.just_read
    inc = w.ledger.inc + 1
    w.do(fx.OpenRuntime(inc, w.ledger.resume, unsettled, paced, why))


def open_turn(w: Work) -> None:
    w.record(j.TurnStart(w.ledger.turns + 1, w.next_run_id(), w.gen))


def claim(w: Work) -> None:
    """Take the turn's batch out of the lanes and ask the pre-step listeners."""
    setbacks.forget(w)
    _claim(w, next_batch(w.ledger.lanes, together=w.together))
    w.set(phase=Phase.running, runtime_turn=None, said=None, ended=None)


def _claim(w: Work, items: tuple[Item, ...], *, more: bool = False) -> None:
    batch = w.serial("bat")
    if items:
        w.record(
            j.InboxSpliced(j.SpliceReason.claimed, tuple(i.id for i in items)),
            j.ItemsInFlight(added=items),
        )
    w.set(batch=Pending(batch, items, BatchStage.pre_step, more))
    w.do(fx.PreStep(batch, items))


def pre_step_decided(w: Work, e: ev.PreStepDecided) -> None:
    batch = w.live.batch
    if batch is None or batch.id != e.batch or batch.stage is not BatchStage.pre_step:
        return
    if w.phase is not Phase.running:
        return
    entered = e.items or ()
    boundary = w.live.runtime_turn is not None
    refused = tuple(i for i in batch.items if i.id not in {n.id for n in entered})
    _block(w, refused, e.reason)
    if not entered and not boundary:
        _reject(w, batch, e.reason)
        return
    if entered and entered != batch.items:
        w.record(j.ItemsInFlight(added=entered))
    _submit(w, evolve(batch, items=entered))


def _block(w: Work, items: tuple[Item, ...], reason: str) -> None:
    """A rejected entry is neither dropped in silence nor sent again (R109)."""
    if not items:
        return
    blocked = Diagnostic(
        f"a listener rejected the message: {reason or 'no reason given'}",
        "change the listener or the message, then deliver it again",
    )
    for item in items:
        w.change(item, DeliveryState.blocked, blocked)
    w.record(j.ItemsInFlight(removed=tuple(i.id for i in items)))


def _reject(w: Work, batch: Pending, reason: str) -> None:
    assert w.open_turn is not None
    end = j.TurnEnd(w.open_turn.number, j.TurnOutcome.blocked, detail=reason)
    w.record(*closing_records(w.open_turn), end)
    # Only what stood before the batch's last entry is parked with it (t13).
    last = max((i.position for i in batch.items), default=w.ledger.park)
    w.park(max(last, w.ledger.park))
    forget_turn(w)
    proceed(w)


def _submit(w: Work, batch: Pending) -> None:
    """Hand the batch over; without anything to go on with, the turn may stop here."""
    assert w.open_turn is not None
    turn = w.live.runtime_turn
    if turn is None or batch.items or batch.more:
        number, step = w.open_turn.number, w.open_turn.steps + 1
        w.record(j.StepStart(number, step, tuple(i.id for i in batch.items)))
    w.set(batch=evolve(batch, stage=BatchStage.submitting))
    w.do(fx.Submit(w.ledger.inc, w.gen, batch.id, batch.items, turn))


def name_turn(w: Work, batch: str, turn: TurnRef) -> bool:
    """
    Learn the runtime's name of the submitted turn; tell whether it is ours.

    Two signs tell it, in either order: the answer to the submission and the
    runtime's own `TurnStarted`.
    """
    pending = w.live.batch
    if pending is None or pending.id != batch or pending.stage is BatchStage.pre_step:
        return False
    if pending.stage is BatchStage.taken:
        return True
    turns = {**w.live.turns, turn.id: w.gen}
    for old in list(turns)[:-MAX_TURNS]:
        del turns[old]
    if w.live.runtime_turn is None and w.phase is Phase.running:
        # Its submission was said to have failed, yet here it is.
        w.set(ended=None)
        w.do(fx.ClearDeadline("settle"))
    w.set(runtime_turn=turn, turns=turns)
    w.do(fx.SetDeadline("silence"))
    _taken(w, pending)
    steer_waiting(w)
    return True


def _taken(w: Work, batch: Pending) -> None:
    w.set(batch=evolve(batch, stage=BatchStage.taken))
    for item in batch.items:
        if item.id in w.ledger.in_flight:
            w.change(item, DeliveryState.accepted)


def submitted(w: Work, batch: str) -> Pending | None:
    """Find the batch that the runtime was given and has not answered for."""
    found = w.live.batch
    if found is None or found.id != batch or found.stage is not BatchStage.submitting:
        return None
    return found


def submit_failed(w: Work, e: ev.SubmitFailed) -> None:
    batch = submitted(w, e.batch)
    if batch is None:
        submit_lost(w, e)
        return
    if not e.written:
        requeue(w, batch.items, again=True, problem=e.problem)
    end_later(w, Ended(TurnStatus.failed, e.problem, ""))


def submit_lost(w: Work, e: ev.SubmitFailed) -> None:
    """The turn is over, but its submission never left: nothing of it is in doubt."""
    lost = w.live.lost
    if lost is None or lost.id != e.batch:
        return
    w.set(lost=None)
    flights = w.ledger.in_flight
    ours = (i for i in lost.items if i.id in flights and flights[i.id].item == i)
    if not e.written:
        requeue(w, tuple(ours), again=False)
        wake(w)


def steer_waiting(w: Work) -> None:
    """Hand what waits to the running turn, as far as it can be steered (t6)."""
    for item in w.ledger.lanes[Lane.next_step]:
        if item.wakes:
            steer(w, item)


def steer(w: Work, item: Item) -> None:
    turn = w.live.runtime_turn
    if turn is None or not w.steers or not w.is_open or w.live.ended is not None:
        return
    if w.phase is not Phase.running or not first_of_target(w.ledger.lanes, item):
        return
    if item.id in w.live.steering:
        return  # an earlier steer of it is not answered yet
    w.record(
        j.InboxSpliced(j.SpliceReason.claimed, (item.id,)),
        j.ItemsInFlight(added=(item,)),
    )
    w.set(steering={**w.live.steering, item.id: item.key})
    w.do(fx.SteerItem(w.ledger.inc, w.gen, turn, item))


def step_ended(w: Work, *, more: bool) -> None:
    """A step boundary of a runtime that waits there (t11)."""
    turn, before = w.open_turn, w.live.batch
    assert turn is not None
    if before is not None and before.stage is BatchStage.pre_step:
        return  # it waits at this boundary already
    if before is not None and before.stage is BatchStage.submitting:
        _taken(w, before)
    go_on(w, more=more)


def go_on(w: Work, *, more: bool) -> None:
    turn = w.open_turn
    assert turn is not None
    if turn.step_open:
        w.record(*closing_step(turn))
    items = next_step_batch(w.ledger.lanes)
    if items:
        _claim(w, items, more=more)
    else:
        _submit(w, Pending(w.serial("bat"), (), BatchStage.submitting, more))


def end_later(w: Work, ended: Ended) -> None:
    """The runtime's turn is over: settle what is open, then end ours."""
    w.set(ended=ended)
    if open_items(w):
        ask_history(w)
    else:
        end_turn(w)


def ask_history(w: Work) -> None:
    w.set(histories=w.live.histories + 1)
    w.do(fx.Settle(w.ledger.inc, open_items(w)), fx.SetDeadline("settle"))


def open_items(w: Work) -> tuple[Item, ...]:
    """List what the runtime took and nobody knows the fate of."""
    return tuple(f.item for f in w.ledger.in_flight.values() if not f.carried)


def end_turn(w: Work) -> None:
    """Close the turn that ended by itself and go on (t12, t13)."""
    ended, turn = w.live.ended, w.open_turn
    assert ended is not None
    assert turn is not None
    status = TurnStatus(ended.status)
    withdraw_asks(w)
    w.record(
        *closing_records(turn),
        j.TurnEnd(
            turn.number, _OUTCOMES[status], detail=ended.detail, usage=ended.usage
        ),
    )
    # A submission that never reached the runtime is tried again, not parked (t13a).
    if status is TurnStatus.failed and w.live.runtime_turn is not None:
        w.park()
        setbacks.tell(w, turn, ended)
    if status is TurnStatus.completed:
        _auto_reply(w, turn, ended.text)
    forget_turn(w)
    proceed(w)


def withdraw_asks(w: Work) -> None:
    for approval in w.live.asks:
        w.do(fx.WithdrawAsk(approval))
    w.set(asks={})


def forget_turn(w: Work) -> None:
    batch = w.live.batch
    if batch is not None and batch.stage is BatchStage.submitting:
        w.set(lost=batch)
    w.do(fx.ClearDeadline("settle"), fx.ClearDeadline("silence"))
    w.set(
        batch=None,
        runtime_turn=None,
        ended=None,
        said=None,
        ladder_failed=False,
    )


def _auto_reply(w: Work, turn: OpenTurn, text: str) -> None:
    """Publish the final text where the turn was asked, unless it spoke there itself."""
    if not w.auto_reply or not text.strip():
        return
    if turn.target is None or turn.target in turn.sent_to:
        return
    send = SendId(w.serial("snd"))
    opened = OpenSend(send, w.gen, turn.target, text, None, w.ledger.inc, turn.number)
    w.set(sends={**w.live.sends, opened.send: opened})
    w.do(fx.JudgeSend(opened.send, w.gen, turn.target, text, auto_reply=True))


def keep_prefix(w: Work) -> None:
    """Keep the part of an unfinished message that people already saw."""
    said: Chunk | None = w.live.said
    if said is not None and w.open_turn is not None:
        text = said.joined()
        w.record(j.AssistantMessage(w.open_turn.number, text, partial=True))
        w.set(said=None)
