"""
The session actor: the pure machine with its journal, its tasks and its callers.

`feed` is a plain function that steps, journals and queues effects, so whatever it is
told holds when it returns; nothing waits inside it. The tasks of `run` perform what
the machine wants and feed back what came of it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import trio

from agentteam_protocol.errors import AgentTeamError, JournalUnwritable
from agentteam_protocol.frames import DeliveryReceived, Frame
from agentteam_protocol.ids import DeliveryId
from agentteam_protocol.journal import TurnStart
from agentteam_supervisor.chaos import points
from agentteam_supervisor.session import effects as fx
from agentteam_supervisor.session.deadlines import Deadlines, Limits
from agentteam_supervisor.session.events import (
    Event,
    FromRuntime,
    LeaseLost,
)
from agentteam_supervisor.session.faults import diagnose_end
from agentteam_supervisor.session.gate import DurableGate
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.performer import Performer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_protocol.delivery import Diagnostic
    from agentteam_supervisor.session.ports import Ports
    from agentteam_supervisor.session.state import Session

OVER = "the session has ended"


class AskRefused(AgentTeamError):
    """The session refused a request; `error` is the machine's name of the reason."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class SessionActor:
    """
    One agent's session. `failure` says why it ended, if a fault ended it.

    A fault (a log that cannot be written, a bug) ends this session alone: its process
    tree is ended, its callers are answered, and `run` returns.
    """

    def __init__(
        self,
        session: Session,
        ports: Ports,
        limits: Limits | None = None,
        step: Callable[[Session, Event], tuple[Session, list[fx.Effect]]] = step,
    ) -> None:
        self.limits = limits or Limits()
        self.failure: Diagnostic | None = None
        self._session = session
        self._ports = ports
        self._step = step
        self._events: deque[Event] = deque()
        self._stepping = False
        self._error: BaseException | None = None
        self._reporting = True
        self._status: Frame | None = None
        self._run_since: str | None = None
        self._refs = count(1)
        self._callers: dict[int, Callable[[fx.Reply], None]] = {}
        self._nursery: trio.Nursery | None = None
        self._due: deque[Callable[[], Awaitable[Any]]] = deque()
        self._over = trio.Event()
        self._deadlines = Deadlines(self.limits, self.feed, self._busy)
        self._performer = Performer(ports, self.limits, self, self._deadlines)
        self._gate = DurableGate(self._performer.perform)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    # --- one step -------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """
        Tell the machine; a call from inside a step is queued behind it.

        Never waits and never raises: a fault ends the session, not its caller.
        """
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events and not self._over.is_set():
                self._take_all()
        except Exception as error:
            self._fail(error)
        finally:
            self._stepping = False
        if self._over.is_set():
            self._events.clear()
            self._answer_all()

    def _take_all(self) -> None:
        """
        Step until nothing is left to step, and make it durable as one commit.

        What a step feeds back at once (no listener, nothing to sweep) would else wait
        for the disk a second time. What need not wait has left before that.
        """
        before = self._session
        taken: list[fx.Effect] = []
        try:
            while self._events and not self._over.is_set():
                self._take(self._events.popleft(), taken)
        finally:
            self._journal(before, taken)
        for effect in taken:
            if effect.waits:
                self._gate.add(effect)

    def _take(self, event: Event, taken: list[fx.Effect]) -> None:
        heard = event.events if isinstance(event, FromRuntime) else (event,)
        points.before("event", heard)
        self._session, effects = self._step(self._session, event)
        taken += effects
        if isinstance(event, LeaseLost):
            self._reporting = False
        self._performer.follow_run()
        for effect in effects:
            if not effect.waits:
                self._performer.perform(effect)
        points.after("event", heard)

    def _journal(self, before: Session, effects: list[fx.Effect]) -> None:
        records = [e for e in effects if isinstance(e, fx.Record)]
        receipts = [e for e in effects if isinstance(e, fx.Received)]
        if not (records or receipts or self._shows_change(before)):
            return
        at = self._ports.now()
        frames = self._frames(records, receipts, at)
        if records or frames:
            events = [record.event for record in records]
            commit = self._ports.journal.append(self._ports.agent, events, frames, at)
            self._gate.note(commit)

    def _shows_change(self, before: Session) -> bool:
        if self._status is None and self._ports.status is not None:
            return True  # how it comes up: parked, or with a problem
        old, new = before.live, self._session.live
        return old.phase is not new.phase or old.capabilities != new.capabilities

    def _frames(
        self, records: list[fx.Record], receipts: list[fx.Received], at: str
    ) -> list[Frame]:
        """Make what the server is told; nothing under an epoch that is over."""
        if not self._reporting:
            return []
        frames: list[Frame] = [
            DeliveryReceived(DeliveryId(r.item), r.attempt) for r in receipts
        ]
        for record in records:
            if isinstance(record.event, TurnStart):
                self._run_since = at
            frames += self._ports.report(record.event, at, record.after)
        if self._ports.status is not None:
            status = self._ports.status(self._session, self._run_since)
            if status != self._status:
                self._status = status
                frames.append(status)
        return frames

    def _busy(self) -> bool:
        """Tell whether a silent runtime has a reason: an open call or ask."""
        turn = self._session.ledger.turn
        return turn is not None and bool(turn.calls or turn.asks)

    # --- callers --------------------------------------------------------------------

    def expect(self, then: Callable[[fx.Reply], None]) -> int:
        """Mint a `ref` for one event; `then` is called exactly once."""
        ref = next(self._refs)
        self._callers[ref] = then
        return ref

    async def ask(self, event: Callable[[int], Event]) -> Any:
        """
        Feed the event that is made with a fresh ref, and wait for its answer.

        Raises `AskRefused` for an error. If cancelled, the event holds nevertheless.
        """
        answered = trio.Event()
        answers: list[fx.Reply] = []

        def take(reply: fx.Reply) -> None:
            answers.append(reply)
            answered.set()

        ref = self.expect(take)
        try:
            self.feed(event(ref))
            await answered.wait()
        finally:
            self._callers.pop(ref, None)
        if answers[0].error:
            raise AskRefused(answers[0].error)
        return answers[0].value

    def reply(self, reply: fx.Reply) -> None:
        """Answer the caller, unless it has gone away."""
        if (then := self._callers.pop(reply.ref, None)) is not None:
            then(reply)

    def _answer_all(self) -> None:
        for ref in tuple(self._callers):
            problem = OVER if self.failure is None else self.failure.problem
            self.reply(fx.Reply(ref, error=problem))

    # --- tasks ------------------------------------------------------------------------

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until the session is closed, or a fault has ended it and its tree."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._deadlines.run)
                nursery.start_soon(self._let_through)
                for _ in self._due:
                    nursery.start_soon(self._begin_next)
                task_status.started()
                await self._over.wait()
                nursery.cancel_scope.cancel()
        except Exception as error:
            # The one boundary of this child: whoever runs sessions decides.
            self._fail(error)
        finally:
            self._over.set()
            self._nursery = None
            self._answer_all()
        if self.failure is not None:
            self._ports.stopped(self.failure, self._error)

    async def _let_through(self) -> None:
        try:
            await self._gate.run()
        except JournalUnwritable as error:
            # Before anything else of the session moves on what is not durable.
            self._fail(error)

    def spawn(self, job: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        """Run a job in a task of its own; jobs begin in the order they were given."""
        self._due.append(partial(job, *arguments))
        if self._nursery is not None:
            self._nursery.start_soon(self._begin_next)

    async def _begin_next(self) -> None:
        # Tasks that are started together run in any order: each takes the next job.
        await self._due.popleft()()

    def finish(self) -> None:
        self._over.set()

    def _fail(self, error: Exception) -> None:
        """Fail closed: nothing that waits leaves, and the process tree is ended."""
        if self.failure is None:
            self.failure = diagnose_end(error)
            self._error = error
        self._gate.drop()
        self._over.set()
