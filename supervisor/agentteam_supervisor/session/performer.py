"""
Performs the effects of the machine, each in a task of its own.

What comes of one is fed back as an event. Whatever cannot be done is answered at
once by the event that says so, so the machine never waits for nobody.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import trio

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import Diagnostic
from agentteam_supervisor.chaos import points
from agentteam_supervisor.session import effects as fx
from agentteam_supervisor.session.calls import Calls
from agentteam_supervisor.session.events import (
    Event,
    InterruptFailed,
    Settled,
    StartFailed,
    SteerFailed,
    SubmitFailed,
    Swept,
)
from agentteam_supervisor.session.faults import RESUME
from agentteam_supervisor.session.incarnations import Incarnation
from agentteam_supervisor.session.maintenance import Maintenance
from agentteam_supervisor.session.prompt import compose
from agentteam_supervisor.session.runs import Run
from agentteam_supervisor.session.services import Services

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_protocol.ids import Generation
    from agentteam_supervisor.session.deadlines import Deadlines, Limits
    from agentteam_supervisor.session.ports import Ports
    from agentteam_supervisor.session.state import Session

GONE = "the runtime is not running"
CUT = "the run was interrupted"
GAVE_UP = "the runtime keeps dying soon after its start"


class Stage(Protocol):
    """The actor, as the performer sees it."""

    @property
    def session(self) -> Session: ...
    def feed(self, event: Event) -> None: ...
    def spawn(self, job: Callable[..., Awaitable[Any]], *arguments: Any) -> None: ...
    def reply(self, reply: fx.Reply) -> None: ...
    def finish(self) -> None: ...


class Performer:
    """Owns what is under way: the incarnation, the run, the services' answers."""

    def __init__(
        self, ports: Ports, limits: Limits, stage: Stage, deadlines: Deadlines
    ) -> None:
        self._ports = ports
        self._limits = limits
        self._stage = stage
        self._deadlines = deadlines
        self._calls = Calls(self._feed, limits.request)
        self._services = Services(ports, limits, stage.feed)
        self._maintenance = Maintenance(ports.tasks, stage.feed)
        self._incarnation: Incarnation | None = None
        self._run: Run | None = None

    def follow_run(self) -> None:
        """Open a turn scope for the run that is open now, end that of an older one."""
        turn = self._stage.session.ledger.turn
        run_id = None if turn is None else turn.run_id
        if self._run is not None and self._run.id != run_id:
            self._run.cut()
            self._run = None
        if self._run is None and run_id is not None:
            self._run = Run(run_id)
            self._stage.spawn(self._run.run)

    def perform(self, effect: fx.Effect) -> None:
        """Do it, or start to; never waits."""
        points.through("effect", effect, self._perform)

    def _perform(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Record() | fx.Received():
                pass  # in the journal with its step, before anything else of it
            case fx.Progress():
                self._ports.progress(effect)
            case fx.SetDeadline(name):
                self._deadlines.set(name)
            case fx.ClearDeadline(name):
                self._deadlines.clear(name)
            case fx.Reply():
                self._stage.reply(effect)
            case fx.Finish():
                self._stage.finish()
            case fx.OpenRuntime():
                self._open(effect)
            case fx.CloseRuntime() | fx.Terminate() | fx.Kill():
                self._end(effect)
            case fx.Sweep() | fx.Settle() | fx.Maintain() | fx.AbortMaintenance():
                self._work(effect)
            case fx.Submit() | fx.SteerItem() | fx.Interrupt():
                self._turn(effect)
            case fx.Deny() | fx.Allow() | fx.ToolReply():
                self._answer(effect)
            case fx.PreStep() | fx.CancelTurn() | fx.Consult() | fx.WithdrawAsk():
                self._in_run(effect)
            case fx.JudgeSend():
                self._judge(effect)
            case fx.ReadTarget():
                self._read(effect)
            case _:
                assert_never(effect)

    # --- the process ------------------------------------------------------------

    def _open(self, order: fx.OpenRuntime) -> None:
        delay = self._ports.pace(trio.current_time()) if order.paced else 0.0
        if delay is None:
            self._feed(StartFailed(order.inc, _gave_up(order.why)))
            return
        self._incarnation = Incarnation(
            order, self._ports, self._limits, self._feed, self._deadlines.heard, delay
        )
        self._stage.spawn(self._incarnation.run)

    def _end(self, effect: fx.CloseRuntime | fx.Terminate | fx.Kill) -> None:
        if (incarnation := self._current(effect.inc)) is None:
            return  # its end was told already
        match effect:
            case fx.CloseRuntime():
                incarnation.leave()
            case fx.Terminate():
                self._stage.spawn(incarnation.terminate)
            case fx.Kill():
                self._stage.spawn(incarnation.kill)

    def _current(self, inc: int) -> Incarnation | None:
        incarnation = self._incarnation
        if incarnation is None or incarnation.inc != inc or incarnation.over.is_set():
            return None
        return incarnation

    def _call(
        self, inc: int, job: Callable[..., Awaitable[None]], *arguments: Any
    ) -> bool:
        """Give a job the live runtime of this incarnation; False: there is none."""
        incarnation = self._current(inc)
        return incarnation is not None and incarnation.call(partial(job, *arguments))

    def _work(
        self, effect: fx.Sweep | fx.Settle | fx.Maintain | fx.AbortMaintenance
    ) -> None:
        match effect:
            case fx.Sweep():
                self._sweep(effect)
            case fx.Settle(inc):
                asked = self._call(inc, self._calls.settle, effect)
                if not asked and self._current(inc) is None:
                    self._feed(Settled(inc, {}))  # else its end is told next
            case fx.Maintain(inc):
                if self._maintenance.is_host_task(effect):
                    self._stage.spawn(self._maintenance.run_host_task, effect)
                elif not self._call(inc, self._maintenance.run, effect):
                    self._maintenance.refuse(effect, GONE)
            case fx.AbortMaintenance(id):
                self._maintenance.abort(id)

    def _sweep(self, effect: fx.Sweep) -> None:
        """End what was born since the run's first submission; nothing was, without one."""
        incarnation = self._current(effect.inc)
        mark = None if incarnation is None else incarnation.marks.get(effect.run_id)
        containment = None if incarnation is None else incarnation.containment
        if incarnation is None or mark is None or containment is None:
            self._feed(Swept(effect.inc))
        elif containment.alone():
            self._feed(Swept(effect.inc))  # in this step, and in its commit
        else:
            sweep = partial(self._calls.sweep, effect.inc, mark, containment)
            self._stage.spawn(sweep)

    # --- turns --------------------------------------------------------------------

    def _turn(self, effect: fx.Submit | fx.SteerItem | fx.Interrupt) -> None:
        match effect:
            case fx.Submit():
                if (problem := self._submit(effect)) is not None:
                    self._refuse(effect, problem)
            case fx.SteerItem():
                if (problem := self._steer(effect)) is not None:
                    self._feed(SteerFailed(effect.item.id, False, problem))
            case fx.Interrupt(inc, turn):
                if not self._call(inc, self._calls.interrupt, inc, turn):
                    self._feed(InterruptFailed(inc, GONE))

    def _submit(self, effect: fx.Submit) -> str | None:
        """Start the submission, or say why not a byte of it was written."""
        if not self._is_open(effect.gen):
            return CUT
        incarnation = self._current(effect.inc)
        if incarnation is None:
            return GONE
        if self._run is not None:
            incarnation.mark(self._run.id)
        notes = self._stage.session.ledger.notes.given
        items = compose(effect.items, notes)
        if self._call(effect.inc, self._calls.submit, effect, items):
            return None
        return GONE

    def _refuse(self, effect: fx.Submit, problem: str) -> None:
        """
        Nothing was written; one that is on its way out is told as gone first.

        Answered before that, the machine would try the same dead process again.
        """
        incarnation = self._current(effect.inc)
        failed = SubmitFailed(effect.batch, False, problem)
        if problem is GONE and incarnation is not None:
            self._stage.spawn(self._feed_when_over, incarnation, failed)
        else:
            self._feed(failed)

    async def _feed_when_over(self, incarnation: Incarnation, event: Event) -> None:
        await incarnation.over.wait()
        self._feed(event)

    def _steer(self, effect: fx.SteerItem) -> str | None:
        if not self._is_open(effect.gen):
            return CUT
        (item,) = compose((effect.item,))
        if self._call(effect.inc, self._calls.steer, effect, item):
            return None
        return GONE

    def _is_open(self, gen: Generation) -> bool:
        return self._stage.session.is_open(gen)

    # --- answers to the runtime -----------------------------------------------------

    def _answer(self, effect: fx.Deny | fx.Allow | fx.ToolReply) -> None:
        """Whoever is gone needs no answer."""
        match effect:
            case fx.Deny(inc, ask, outcome):
                self._call(inc, self._calls.answer, inc, ask, outcome)
            case fx.Allow(inc, gen, ask):
                # Looked at in the moment it leaves: a cut since then wins.
                allowed = self._is_open(gen)
                outcome = (
                    ApprovalOutcome.allowed_once
                    if allowed
                    else ApprovalOutcome.cancelled
                )
                self._call(inc, self._calls.answer, inc, ask, outcome)
            case fx.ToolReply():
                self._call(effect.inc, self._calls.reply, effect)

    # --- in the turn scope ------------------------------------------------------------

    def _in_run(
        self, effect: fx.PreStep | fx.CancelTurn | fx.Consult | fx.WithdrawAsk
    ) -> None:
        match effect:
            case fx.PreStep():
                if not self._services.admit_at_once(effect):
                    self._spawn_in_run(self._services.ask_listeners, effect)
            case fx.Consult(request):
                # Withdrawn or cut before its record was durable: ask nobody.
                if request.id in self._stage.session.live.asks:
                    self._spawn_in_run(self._services.consult, request)
            case fx.WithdrawAsk(approval):
                self._services.withdraw(approval)
            case fx.CancelTurn(run_id):
                if self._run is not None and self._run.id == run_id:
                    self._run.cut()

    def _spawn_in_run(
        self, job: Callable[..., Awaitable[None]], *arguments: Any
    ) -> None:
        if self._run is not None:
            self._run.spawn(job, *arguments)

    # --- through the server -----------------------------------------------------------

    def _judge(self, effect: fx.JudgeSend) -> None:
        """Not in the turn scope: what left for the server has a verdict to record."""
        if self._is_open(effect.gen):
            self._stage.spawn(self._services.judge, effect)
        else:
            self._feed(self._services.stopped_send(effect))

    def _read(self, effect: fx.ReadTarget) -> None:
        if self._is_open(effect.gen):
            self._stage.spawn(self._services.read, effect)
        else:
            self._feed(self._services.stopped_read(effect))

    def _feed(self, event: Event) -> None:
        self._stage.feed(event)


def _gave_up(why: str) -> Diagnostic:
    """Say that it keeps dying, and of what it died last."""
    problem = f"{GAVE_UP}: {why}" if why else GAVE_UP
    return Diagnostic(problem, f"find out why (agentteam doctor), {RESUME}")
