"""
Four cuts, one convergence path.

cancel, cancel(keep_inbox), Stop and Mark urgent all put the generation on HOLD in
the step that accepts them, and all end here in FENCED and the next generation. Only
the way back differs: what is parked, and what goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.inbox import Lane
from agentteam_runtimes.driver import TurnStatus
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.repair import closing_records
from agentteam_supervisor.session.settle import fail_urgents, requeue, settle_rest
from agentteam_supervisor.session.state import BatchStage, Cut, Ended, Phase, Stage
from agentteam_supervisor.session.turns import (
    LADDER,
    ask_history,
    end_later,
    forget_turn,
    go_on,
    keep_prefix,
    open_items,
    proceed,
    start,
    submit_lost,
    submitted,
    withdraw_asks,
)

if TYPE_CHECKING:
    from agentteam_protocol.ids import DeliveryId
    from agentteam_runtimes.driver import Survivor, TurnRef
    from agentteam_supervisor.session.work import Work

_UNANSWERED = Diagnostic(
    "the current run waits for an approval that it cannot take back, and could not be "
    "stopped",
    "answer the approval",
)
_UNSTOPPABLE = Diagnostic(
    "the current run could not be stopped, so the message was not delivered",
    "end the agent's process by hand",
)


def cut(
    w: Work,
    cause: CutCause,
    *,
    strict: bool = True,
    delivery: DeliveryId | None = None,
    who: str = "",
) -> None:
    """Cut the open turn, or join the cut that is already converging (t14, t16)."""
    turn = w.open_turn
    assert turn is not None
    w.record(j.InterruptRequested(turn.gen, turn.run_id, cause, delivery, who))
    if w.live.cut is not None:
        _join(w, w.live.cut, strict=strict)
        return
    caps = w.live.capabilities
    stuck = bool(w.live.asks) and caps is not None and not caps.approval_cancel
    w.record(j.FenceHeld(w.gen))
    _close_asks(w, turn.number)
    w.do(fx.CancelTurn(turn.run_id))
    keep_prefix(w)
    marks = (w.ledger.park, w.ledger.urgent_park)
    opened = Cut(Stage.interrupting, strict, marks, w.phase, stuck=stuck)
    w.set(cut=opened, phase=Phase.converging)
    _first_stage(w, opened)


def _join(w: Work, current: Cut, *, strict: bool) -> None:
    """The first cause stays; the strictest escalation and earliest deadline apply."""
    if strict and not current.strict:
        w.set(cut=evolve(current, strict=True))
        if current.stage is Stage.interrupting:
            w.do(fx.SetDeadline("interrupt"))


def _close_asks(w: Work, turn: int) -> None:
    for opened in w.live.asks.values():
        cancelled = ApprovalOutcome.cancelled
        w.record(j.ApprovalDecided(turn, opened.approval, cancelled))
        w.do(fx.Deny(opened.inc, opened.ask, cancelled))
    withdraw_asks(w)


def _first_stage(w: Work, current: Cut) -> None:
    take_back_unsent(w)
    if current.phase_before in (Phase.starting, Phase.recovering):
        terminate(w)
    elif w.live.ended is not None:
        _stage(w, Stage.settling)
    elif _nothing_submitted(w):
        converge(w)
    elif not w.interrupts or (w.live.ladder_failed and not w.live.in_process):
        terminate(w)
    else:
        w.do(fx.SetDeadline("interrupt" if current.strict else "interrupt_soft"))
        # A turn without a name yet is interrupted as soon as it has one: sent now,
        # the interrupt could hit the turn after it.
        if w.live.runtime_turn is not None and not w.live.ladder_failed:
            _interrupt(w, w.live.runtime_turn)


def take_back_unsent(w: Work) -> None:
    """Put back what was claimed and is still with the pre-step listeners."""
    batch = w.live.batch
    if batch is not None and batch.stage is BatchStage.pre_step:
        requeue(w, batch.items, again=False)
        w.set(batch=evolve(batch, items=()))


def _nothing_submitted(w: Work) -> bool:
    batch = w.live.batch
    unsent = batch is not None and batch.stage is BatchStage.pre_step
    return unsent and w.live.runtime_turn is None


def _interrupt(w: Work, turn: TurnRef | None) -> None:
    assert w.live.cut is not None
    w.set(interrupts=w.live.interrupts + 1, cut=evolve(w.live.cut, sent=True))
    w.do(fx.Interrupt(w.ledger.inc, turn))


def turn_named(w: Work) -> None:
    """The held turn has its name now, so the interrupt can leave."""
    current = w.live.cut
    if current is not None and current.stage is Stage.interrupting and not current.sent:
        _interrupt(w, w.live.runtime_turn)


def submit_failed(w: Work, e: ev.SubmitFailed) -> None:
    """Under a cut: what never left is back at its place, and the cut has converged."""
    batch = submitted(w, e.batch)
    if batch is None:
        submit_lost(w, e)
    elif e.written:
        w.set(batch=evolve(batch, broken=e.problem or "no answer"))
        if _at(w, Stage.interrupting) and w.live.runtime_turn is None:
            _interrupt(w, None)  # the driver looks for it
    else:
        requeue(w, batch.items, again=False)
        w.set(batch=evolve(batch, items=(), stage=BatchStage.pre_step))
        if _at(w, Stage.interrupting) and w.live.runtime_turn is None:
            converge(w)


def _stage(w: Work, stage: Stage) -> None:
    assert w.live.cut is not None
    w.set(cut=evolve(w.live.cut, stage=stage))


def _at(w: Work, *stages: Stage) -> bool:
    return w.live.cut is not None and w.live.cut.stage in stages


# --- the ladder --------------------------------------------------------------------


def terminate(w: Work) -> None:
    """Protocol interrupt is out: ask the whole incarnation to end (t19)."""
    if w.live.in_process:
        fail_ladder(w)
        return
    _stage(w, Stage.terminating)
    w.do(
        fx.ClearDeadline("interrupt"),
        fx.ClearDeadline("interrupt_soft"),
        fx.ClearDeadline("sweep"),
        fx.ClearDeadline("settle"),
        fx.Terminate(current_inc(w)),
        fx.SetDeadline("terminate"),
    )


def current_inc(w: Work) -> int:
    """While a process is starting it is the one after the last recorded."""
    before = w.live.cut.phase_before if w.live.cut else w.phase
    starting = before in (Phase.starting, Phase.recovering)
    return w.ledger.inc + 1 if starting else w.ledger.inc


def deadline_passed(w: Work, name: str) -> None:
    match name:
        case "interrupt" if _at(w, Stage.interrupting):
            terminate(w)
        case "interrupt_soft" if _at(w, Stage.interrupting):
            # In process a cut is effective at the next boundary, however late (R115).
            if not w.live.in_process:
                terminate(w)
        case "sweep" if _at(w, Stage.sweeping):
            terminate(w)
        case "terminate" if _at(w, Stage.terminating):
            _stage(w, Stage.killing)
            w.do(fx.Kill(current_inc(w)), fx.SetDeadline("kill"))
        case "kill" if _at(w, Stage.killing):
            fail_ladder(w)
        case _:
            pass


def interrupt_failed(w: Work, e: ev.InterruptFailed) -> None:
    """A refusal that names the active turn is sent once more with that name."""
    current = w.live.cut
    interrupt_answered(w, e.inc)
    if current is None or current.stage is not Stage.interrupting or w.live.interrupts:
        return  # also the answer to an interrupt of an earlier turn
    if e.named is not None and not current.retried:
        w.set(cut=evolve(current, retried=True))
        _interrupt(w, e.named)
    else:
        terminate(w)


def interrupt_answered(w: Work, inc: int) -> None:
    if inc == w.ledger.inc:
        w.set(interrupts=max(0, w.live.interrupts - 1))


def fail_ladder(w: Work, survivors: tuple[Survivor, ...] = ()) -> None:
    """Every stage failed: the run goes on, the urgents have failed (t26)."""
    current = w.live.cut
    assert current is not None
    _name(w, survivors)
    if current.phase_before in (Phase.starting, Phase.recovering):
        _leave_unfinished(w)
    elif w.live.closing is not None:
        w.record(j.RunNotice("the runtime's process could not be ended"))
        converge(w, gone=True)
    elif w.live.ended is not None or _nothing_submitted(w):
        # Its turn is over although its process would not end.
        settle_rest(w, open_items(w))
        converge(w)
    else:
        _reopen(w, current)


def _reopen(w: Work, current: Cut) -> None:
    _fail_urgents(w, DeliveryState.blocked if current.stuck else DeliveryState.failed)
    w.record(j.FenceReopened(w.gen))
    w.park(*current.park_before)
    w.do(*(fx.ClearDeadline(name) for name in LADDER))
    w.set(cut=None, phase=current.phase_before, ladder_failed=True)
    if w.live.runtime_turn is not None:
        w.do(fx.SetDeadline("silence"))  # it may have passed unheeded meanwhile
    batch = w.live.batch
    if batch is not None and batch.stage is BatchStage.pre_step:
        go_on(w, more=batch.more)  # the runtime waits at its boundary
    elif batch is not None and batch.broken and w.live.runtime_turn is None:
        end_later(w, Ended(TurnStatus.failed, batch.broken, ""))


def _leave_unfinished(w: Work) -> None:
    """A process that neither started nor ends: the session does without (t26, t39)."""
    _fail_urgents(w)
    w.record(j.RunProcess(current_inc(w), alive=False, detail=_UNSTOPPABLE.problem))
    w.record(j.RunProblem(_UNSTOPPABLE))
    if w.live.closing is None:
        w.park()
    settle_rest(w, open_items(w))
    converge(w, gone=True)


def _fail_urgents(w: Work, state: DeliveryState = DeliveryState.failed) -> None:
    """The waiting urgents were not delivered, and each says so."""
    if w.live.closing is None:
        why = _UNANSWERED if state is DeliveryState.blocked else _UNSTOPPABLE
        fail_urgents(w, w.ledger.lanes[Lane.urgent], state, why)


def _name(w: Work, survivors: tuple[Survivor, ...]) -> None:
    for survivor in survivors:
        w.record(
            j.RunNotice(
                "a process of the cut run is still alive",
                detail=f"pid {survivor.pid}: {survivor.command}",
            )
        )


# --- convergence -------------------------------------------------------------------


def turn_over(w: Work, ended: Ended) -> None:
    """The runtime's turn ended, in whatever status: settle, sweep, converge (t18)."""
    w.set(ended=ended)
    if not _at(w, Stage.interrupting):
        return
    w.do(fx.ClearDeadline("interrupt"), fx.ClearDeadline("interrupt_soft"))
    if open_items(w):
        _stage(w, Stage.settling)
        ask_history(w)
    else:
        sweep(w)


def settled(w: Work) -> None:
    """The history was read, or is not to be had in time."""
    settle_rest(w, open_items(w))
    if _at(w, Stage.settling):
        sweep(w)


def sweep(w: Work) -> None:
    """End what the cut turn started: the runtime may have left it running."""
    w.do(fx.ClearDeadline("settle"))
    if w.live.in_process or w.open_turn is None:
        converge(w)
        return
    _stage(w, Stage.sweeping)
    w.do(fx.Sweep(w.ledger.inc, w.open_turn.run_id), fx.SetDeadline("sweep"))


def swept(w: Work, survivors: tuple[Survivor, ...]) -> None:
    if _at(w, Stage.sweeping):
        _name(w, survivors)
        w.do(fx.ClearDeadline("sweep"))
        converge(w)


def converge(w: Work, *, gone: bool = False) -> None:
    """Close the turn, fence the generation for ever, open the next (t18, t20)."""
    turn, ended = w.open_turn, w.live.ended
    if turn is not None:
        detail = f"runtime: {ended.status}" if ended else ""
        usage = ended.usage if ended else dict[str, int]()
        keep_prefix(w)
        w.record(
            *closing_records(turn),
            j.TurnEnd(turn.number, j.TurnOutcome.aborted, turn.cause, detail, usage),
        )
    w.record(j.FenceClosed(w.gen, w.gen.next()))
    w.do(*(fx.ClearDeadline(name) for name in LADDER))
    forget_turn(w)
    w.set(cut=None)
    if gone:
        # Our own kill is no failure, but one of a mute runtime is its own.
        silent = turn is not None and turn.cause is CutCause.silent
        without_process(w, paced=silent)
    else:
        proceed(w)


def without_process(w: Work, *, paced: bool = False, why: str = "") -> None:
    """Go on after the process is gone: a new one only if something needs it."""
    w.set(phase=Phase.offline, capabilities=None)
    if w.live.closing is not None:
        proceed(w)
    elif w.ledger.runnable or open_items(w):
        start(w, recovering=True, paced=paced, why=why)
