"""
The session machine: `step(session, event) -> (session, effects)`.

Pure: no await, no clock, no I/O. The actor beside it performs the effects and feeds
back what came of them. Theory of operation, as the table of its transitions; each row
is a test of the same name in tests/supervisor/session/test_table*.py.

| row | phase | event | result |
|---|---|---|---|
| t1 | Idle | waking input | splice; turn/start, claim, pre-step, submit |
| t2 | Idle | input that does not wake | splice only |
| t3 | Idle | urgent | urgent lane; a turn of the same generation, no interrupt |
| t4 | Idle | cancel | nothing queued or keep_inbox: no event; else lanes cleared |
| t5 | Idle | run_maintenance | Maintenance |
| t6 | Running | ordinary delivery, steer | steered if the runtime can, else its lane |
| t7 | any | steer refused | back at its place; superseded if an urgent copy waits |
| t8 | Running, Converging | surfaced | user/message, delivery, frontier |
| t9 | Running | inject | next_step lane, no wake |
| t10 | Running | followup | next_turn lane |
| t11 | Running | step boundary | claim next_step, pre-step, next step; none: stop |
| t12 | Running | turn done | settle, turn/end; runnable: next turn; else Idle |
| t13 | Running | turn failed, or rejected | settle, turn/end, park; an error is told |
| t13a | Running | submit refused | lane, attempt + 1; written: settle; mute: cut |
| t13b | Running | silence limit | cut with cause silent, no park |
| t14 | Running | cancel, Stop, urgent | HOLD, asks cancelled, interrupt; Converging |
| t15 | any | Stop of another run, of none | stale_run, not_running; nothing changes |
| t16 | Converging | cancel, Stop, urgent | joins: first cause, strictest escalation |
| t17 | Converging, Recovering, Maintenance | input | its lane |
| t18 | Converging | turn ended | settle, sweep, turn/end aborted, FENCED, gen + 1 |
| t19 | Converging | deadline, interrupt error | next stage of the ladder |
| t20 | Converging | process gone | turn/end aborted, FENCED, gen + 1, Recovering |
| t21 | converged | urgent waits | submit the urgent batch |
| t22 | converged | runnable | next turn |
| t23 | converged | else, also an urgent that a Stop came after | Idle |
| t24 | Recovering, Starting | ready | what is open or unknown is settled; t21 to t23 |
| t25 | Recovering | resume refused | a fresh session, "history not available" |
| t26 | Converging | every stage failed | OPEN, urgents failed, their copies wait again |
| t27 | Running | process died | turn/end error, gen + 1, Recovering with pacing |
| t27a | Idle | process died | Offline |
| t28 | any | event of a generation not OPEN | balanced there, or fence/late; refused |
| t29 | any | visible send | HOLD: held; FENCED: rejected; OPEN: compare-and-set |
| t30 | any | read_history to an OPEN generation | surfaces exactly that range |
| t31 | Maintenance | urgent | its lane; the task is aborted |
| t32 | Maintenance | cancel | aborts the task, clears lanes unless keep_inbox |
| t33 | Maintenance | done, failed | t21 to t23 |
| t34 | not Idle | run_maintenance | refused, nothing changes |
| t35 | any | dispose | cut, close everything, Closed |
| t35a | any | shutdown | cut, lanes and park unchanged, Closed |
| t35b | any | lease lost | FENCED at once, tree killed, Closed |
| t36 | Offline | waking input, urgent | run id minted, Starting |
| t37 | Starting, Recovering | urgent | first input of the next ready generation |
| t38 | Starting, Recovering | Stop, cancel | run aborted, nothing submitted |
| t39 | Starting | start failed | as t26 for urgents; entries stay, Offline, problem |
| t40 | Idle, Offline | resume | park cleared; runnable, kept or in doubt: t1, t36 |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol import journal as j
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.errors import UnexpectedEvent
from agentteam_supervisor.session import (
    asks,
    cuts,
    effects as fx,
    events as ev,
    inputs,
    processes,
    sends,
    settle,
    turns,
)
from agentteam_supervisor.session.heard import hear, joined
from agentteam_supervisor.session.repair import closing_records
from agentteam_supervisor.session.state import Phase, Session
from agentteam_supervisor.session.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_protocol.ids import ItemId
    from agentteam_protocol.inbox import Item


def step(session: Session, event: ev.Event) -> tuple[Session, list[fx.Effect]]:
    """Take one event; raises `UnexpectedEvent` for one that is not ours."""
    rule = _RULES.get(type(event))
    if rule is None:
        raise UnexpectedEvent(f"the session machine has no rule for {event!r}")
    w = Work(session)
    if w.phase is Phase.closed:
        _after_the_end(w, event)
    else:
        rule(w, event)
        _answer_idle_waiters(w)
    return w.done(), w.effects


def _after_the_end(w: Work, event: ev.Event) -> None:
    """Nothing is done or recorded any more; whoever asks is told so."""
    ended = isinstance(
        event, ev.IdleAwaited | ev.DisposeRequested | ev.ShutdownRequested
    )
    w.reply(getattr(event, "ref", None), error="" if ended else inputs.ENDED)


def _answer_idle_waiters(w: Work) -> None:
    if w.live.idle_waiters and (w.done().quiescent or w.phase is Phase.closed):
        for ref in w.live.idle_waiters:
            w.reply(ref)
        w.set(idle_waiters=())


def _from_runtime(w: Work, e: ev.FromRuntime) -> None:
    for event in joined(e.events):
        if w.phase is not Phase.closed:
            hear(w, e.inc, event)


def _submit_accepted(w: Work, e: ev.SubmitAccepted) -> None:
    if turns.name_turn(w, e.batch, e.turn):
        cuts.turn_named(w)


def _submit_failed(w: Work, e: ev.SubmitFailed) -> None:
    if w.phase is Phase.converging:
        cuts.submit_failed(w, e)
    else:
        turns.submit_failed(w, e)


def _steer_accepted(w: Work, e: ev.SteerAccepted) -> None:
    if (item := _steered(w, e.item)) is not None:
        w.change(item, DeliveryState.accepted)
        processes.settle_again(w)


def _steer_failed(w: Work, e: ev.SteerFailed) -> None:
    """Not written: back at its place, and in Idle it wakes; else the history decides."""
    item = _steered(w, e.item)
    if item is None:
        return
    if not e.written:
        settle.requeue(w, (item,), again=False)
        turns.wake(w)
    processes.settle_again(w)


def _steered(w: Work, item: ItemId) -> Item | None:
    """Find the entry that a steer's answer is about: this attempt, still in flight."""
    key = w.live.steering.get(item)
    w.set(steering={i: k for i, k in w.live.steering.items() if i != item})
    flight = w.ledger.in_flight.get(item)
    return flight.item if flight is not None and flight.item.key == key else None


def _interrupt_taken(w: Work, e: ev.InterruptTaken) -> None:
    """Accepted is not finished: the turn's end, or its deadline, decides (B06 b)."""
    cuts.interrupt_answered(w, e.inc)


def _idle_awaited(w: Work, e: ev.IdleAwaited) -> None:
    w.set(idle_waiters=(*w.live.idle_waiters, e.ref))


def _disposed(w: Work, e: ev.DisposeRequested) -> None:
    inputs.close(w, CutCause.disposed, e.ref)


def _shut_down(w: Work, e: ev.ShutdownRequested) -> None:
    inputs.close(w, CutCause.shutdown, e.ref)


def _lease_lost(w: Work, _: ev.LeaseLost) -> None:
    """Fenced at once: another holder may run the agent already (t35b)."""
    turn = w.open_turn
    turns.withdraw_asks(w)
    turns.keep_prefix(w)
    if turn is not None:
        lost = turn.cause or CutCause.lease_lost
        end = j.TurnEnd(turn.number, j.TurnOutcome.aborted, lost)
        w.record(*closing_records(turn), end)
        w.do(fx.CancelTurn(turn.run_id))
    w.record(j.FenceClosed(w.gen, w.gen.next()))
    w.do(fx.Kill(cuts.current_inc(w)))
    turns.forget_turn(w)
    processes.give_up_maintenance(w, "aborted")
    w.set(closing=CutCause.lease_lost, leaving=True)
    turns.leave(w)


def _maintenance_ended(w: Work, e: ev.MaintenanceEnded) -> None:
    ended = w.live.maintenance
    if ended is None or ended.id != e.id:
        return
    w.reply(ended.ref, value=e.value, error=e.problem)
    w.set(maintenance=None)
    w.do(fx.ClearDeadline("maintenance"))
    turns.proceed(w)


_RULES: dict[type, Callable[[Work, Any], None]] = {
    ev.Delivered: inputs.delivered,
    ev.Sent: inputs.sent,
    ev.CancelRequested: inputs.cancelled,
    ev.StopRequested: inputs.stopped,
    ev.ResumeRequested: inputs.resumed,
    ev.Dismissed: inputs.dismissed,
    ev.PolicyChosen: asks.chosen,
    ev.MaintenanceRequested: inputs.maintain,
    ev.IdleAwaited: _idle_awaited,
    ev.DisposeRequested: _disposed,
    ev.ShutdownRequested: _shut_down,
    ev.LeaseLost: _lease_lost,
    ev.Loaded: lambda w, _: processes.loaded(w),
    ev.FromRuntime: _from_runtime,
    ev.RuntimeReady: processes.ready,
    ev.StartFailed: processes.start_failed,
    ev.ProcessGone: processes.gone,
    ev.KillFailed: processes.kill_failed,
    ev.SubmitAccepted: _submit_accepted,
    ev.SubmitFailed: _submit_failed,
    ev.SteerAccepted: _steer_accepted,
    ev.SteerFailed: _steer_failed,
    ev.InterruptTaken: _interrupt_taken,
    ev.InterruptFailed: cuts.interrupt_failed,
    ev.Swept: lambda w, e: cuts.swept(w, e.survivors),
    ev.Settled: processes.settle_answered,
    ev.DeadlinePassed: lambda w, e: processes.deadline_passed(w, e.name),
    ev.PreStepDecided: turns.pre_step_decided,
    ev.ApprovalAnswered: asks.answered,
    ev.SendAnswered: sends.send_answered,
    ev.HistoryRead: sends.history_read,
    ev.MaintenanceEnded: _maintenance_ended,
}
