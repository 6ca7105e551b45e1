"""Incarnations come and go: ready, failed to start, gone, not to be killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.inbox import Lane
from agentteam_runtimes.driver import TurnStatus
from agentteam_supervisor.session import effects as fx, events as ev, setbacks
from agentteam_supervisor.session.cuts import (
    converge,
    current_inc,
    cut,
    deadline_passed as ladder_deadline,
    fail_ladder,
    settled,
    take_back_unsent,
    terminate,
    without_process,
)
from agentteam_supervisor.session.faults import RESUME
from agentteam_supervisor.session.repair import closing_records
from agentteam_supervisor.session.settle import (
    fail_urgents,
    resolve_doubts,
    settle,
    settle_rest,
    tell_forgotten,
)
from agentteam_supervisor.session.state import Phase, Stage
from agentteam_supervisor.session.turns import (
    ask_history,
    claim,
    end_turn,
    forget_turn,
    keep_prefix,
    leave,
    open_items,
    proceed,
    start,
    withdraw_asks,
)

if TYPE_CHECKING:
    from agentteam_supervisor.session.work import Work

_STARTING = (Phase.starting, Phase.recovering)


def loaded(w: Work) -> None:
    """After a restart: settle what was in flight, start what is runnable (DESIGN 10)."""
    if w.phase is Phase.offline and (w.ledger.runnable or open_items(w)):
        start(w, recovering=True)


def ready(w: Work, e: ev.RuntimeReady) -> None:
    """The handshake is done: settle, then the urgent batch or the next turn (t24)."""
    if w.phase not in _STARTING or e.inc != w.ledger.inc + 1:
        return
    w.record(j.RunProcess(e.inc, alive=True, identity=e.identity))
    w.set(capabilities=e.capabilities, in_process=e.in_process, leaving=False)
    setbacks.forget(w)
    if e.history_lost:
        notice = "history not available: the agent started a new session"
        named = j.RunSession(w.live.named or "", lost=True)
        w.record(named, j.RunNotice(notice))
        setbacks.lost(w)
        settle_rest(w, tuple(f.item for f in w.ledger.in_flight.values()))
    elif w.live.named is not None:
        name_session(w, w.live.named)
    resolve_doubts(w, e.settled)
    tell_forgotten(w, e.settled)
    settle(w, e.settled, fault=False)
    settle_rest(w, open_items(w))
    w.set(steering={}, lost=None)
    setbacks.came_up(w)
    if w.open_turn is None:
        proceed(w)
    elif w.ledger.runnable:
        claim(w)
    else:
        _end_unused(w, TurnStatus.completed, "nothing was left to run")
        proceed(w)


def name_session(w: Work, token: str) -> None:
    if token != w.ledger.resume:
        w.record(j.RunSession(token))


def _end_unused(w: Work, status: TurnStatus, detail: str) -> None:
    """End a turn that was opened for a process to come and never used."""
    turn = w.open_turn
    if turn is not None:
        failed = status is TurnStatus.failed
        outcome = j.TurnOutcome.error if failed else j.TurnOutcome.completed
        w.record(j.TurnEnd(turn.number, outcome, detail=detail))


def start_failed(w: Work, e: ev.StartFailed) -> None:
    """Nothing runs: entries stay, urgents have failed, the problem is shown (t39)."""
    if e.inc != w.ledger.inc + 1:
        return
    if w.phase not in (*_STARTING, Phase.converging):
        return
    problem = e.diagnostic.problem
    w.record(j.RunProcess(e.inc, alive=False, detail=problem))
    if w.phase is Phase.converging:
        converge(w, gone=True)
        return
    if w.live.closing is not None:
        leave(w)
        return
    _end_unused(w, TurnStatus.failed, e.diagnostic.problem)
    settle_rest(w, tuple(i for i in open_items(w) if i.policy is not None))
    setbacks.fail_kept(w, e.diagnostic)
    urgent = w.ledger.lanes[Lane.urgent]
    fail_urgents(w, urgent, DeliveryState.failed, e.diagnostic)
    w.record(j.RunProblem(e.diagnostic))
    w.park()
    forget_turn(w)
    w.set(phase=Phase.offline, going_on=None)


def gone(w: Work, e: ev.ProcessGone) -> None:
    why = _why(e)
    if e.inc == w.ledger.inc + 1:
        problem = Diagnostic(f"the runtime ended while starting: {why}", _LOOK)
        start_failed(w, ev.StartFailed(e.inc, problem))
    elif e.inc == w.ledger.inc:
        _ours_gone(w, e, why)


def _ours_gone(w: Work, e: ev.ProcessGone, why: str) -> None:
    for survivor in e.survivors:
        detail = f"pid {survivor.pid}: {survivor.command}"
        w.record(j.RunNotice("a process of the agent is still alive", detail))
    w.record(j.RunProcess(e.inc, alive=False, detail=why))
    match w.phase:
        case _ if w.live.leaving:
            leave(w)
        case Phase.converging:
            converge(w, gone=True)
        case Phase.running:
            _died(w, why)
        case Phase.maintenance:
            _maintenance_died(w, why)
        case Phase.idle:
            w.record(j.FenceClosed(w.gen, w.gen.next()))
            without_process(w)
        case _:
            pass


_LOOK = f"see the runtime's own messages in the activity detail, {RESUME}"


def _why(e: ev.ProcessGone) -> str:
    code = "" if e.returncode is None else f"exit code {e.returncode}"
    parts = (e.fault, code, e.detail)
    return "; ".join(part for part in parts if part) or "the process ended"


def _died(w: Work, why: str) -> None:
    """The process died by itself during a turn (t27)."""
    turn = w.open_turn
    assert turn is not None
    withdraw_asks(w)
    keep_prefix(w)
    take_back_unsent(w)
    end = j.TurnEnd(turn.number, j.TurnOutcome.error, detail=why)
    w.record(*closing_records(turn), end, j.FenceClosed(w.gen, w.gen.next()))
    w.do(fx.CancelTurn(turn.run_id))
    forget_turn(w)
    without_process(w, paced=True, why=why)


def _maintenance_died(w: Work, why: str) -> None:
    aborted = w.live.maintenance is not None and w.live.maintenance.aborted
    give_up_maintenance(w, f"maintenance_failed: {why}")
    w.record(j.FenceClosed(w.gen, w.gen.next()))
    without_process(w, paced=not aborted, why=why)


def kill_failed(w: Work, e: ev.KillFailed) -> None:
    current = w.live.cut
    if w.live.leaving:
        _leave_behind(w)
    elif current is not None and current.stage is Stage.killing:
        fail_ladder(w, e.survivors)
    elif w.phase is Phase.maintenance:
        _maintenance_goes_on(w)


def _leave_behind(w: Work) -> None:
    """The session ends all the same, and says that a process is left."""
    w.record(
        j.RunNotice("the runtime's process could not be ended"),
        j.RunProcess(w.ledger.inc, alive=False, detail="left behind"),
    )
    leave(w)


def settle_answered(w: Work, e: ev.Settled) -> None:
    if e.inc != w.ledger.inc:
        return
    w.set(histories=max(0, w.live.histories - 1))
    if w.live.ended is None or w.live.histories:
        return  # the answer for a turn that did not wait for it
    if w.live.cut is not None and w.live.cut.stage in (
        Stage.terminating,
        Stage.killing,
    ):
        return  # of a process that is being ended: the next one's history tells
    settle(w, e.items)
    settle_rest(w, tuple(i for i in open_items(w) if i.id not in w.live.steering))
    if not open_items(w):
        _after_settle(w)


def settle_again(w: Work) -> None:
    """A steer was answered while the end of its turn is being settled."""
    converging = w.live.cut is not None and w.live.cut.stage is Stage.settling
    if w.live.ended is None or not (converging or w.phase is Phase.running):
        return
    if not open_items(w):
        _after_settle(w)
    elif not w.live.histories:
        ask_history(w)


def _after_settle(w: Work) -> None:
    if w.phase is Phase.running:
        settle_rest(w, open_items(w))
        end_turn(w)
    elif w.phase is Phase.converging:
        settled(w)


def deadline_passed(w: Work, name: str) -> None:
    match name:
        case "settle" if w.live.ended is not None:
            if not _mute(w):
                _after_settle(w)
        case "kill" if w.live.leaving:
            w.do(fx.Kill(current_inc(w)))
        case "silence":
            _silent(w)
        case "maintenance":
            _maintenance_overdue(w)
        case _:
            ladder_deadline(w, name)


def _mute(w: Work) -> bool:
    """
    Cut a runtime that answered neither the submission nor what became of it.

    It would swallow every later message as well; the next one's history tells whether
    this one was read (t13a).
    """
    if w.phase is not Phase.running or w.live.runtime_turn is not None:
        return False
    if w.live.in_process or not open_items(w):
        return False
    cut(w, CutCause.silent)
    terminate(w)
    return True


def _silent(w: Work) -> None:
    """Nothing was heard, with no tool or ask open: the run is cut (t13b)."""
    turn = w.open_turn
    busy = turn is None or bool(turn.calls) or bool(turn.asks)
    if w.phase is Phase.running and not busy and w.live.ended is None:
        cut(w, CutCause.silent)


def _maintenance_overdue(w: Work) -> None:
    """A maintenance task that an urgent aborted does not end (t31)."""
    if w.phase is not Phase.maintenance:
        return
    if w.live.in_process:
        _maintenance_goes_on(w)
    else:
        w.do(fx.Kill(w.ledger.inc))


def _maintenance_goes_on(w: Work) -> None:
    """Nothing ends it: the urgents have failed, and a session that closes leaves it."""
    if w.live.closing is not None:
        give_up_maintenance(w, "aborted")
        leave(w)
        return
    overdue = Diagnostic(
        "the agent's maintenance did not end in time",
        "wait until the maintenance is over",
    )
    urgent = w.ledger.lanes[Lane.urgent]
    fail_urgents(w, urgent, DeliveryState.failed, overdue)


def give_up_maintenance(w: Work, error: str) -> None:
    if w.live.maintenance is not None:
        w.reply(w.live.maintenance.ref, error=error)
    w.set(maintenance=None)
    w.do(fx.ClearDeadline("maintenance"))
