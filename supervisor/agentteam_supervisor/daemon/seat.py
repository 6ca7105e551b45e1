"""
One agent's place in the daemon: its session while it lives, its input meanwhile.

A crash of a session ends here. It is loaded again from the journal within the restart
intensity; past that the agent has a problem, and its input is answered honestly.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import evolve

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.control import ControlAction, ControlResult
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.errors import JournalUnwritable, QueueFull
from agentteam_protocol.frames import (
    AgentControl,
    AgentGranted,
    AgentTroubled,
    Frame,
    StatusReported,
)
from agentteam_protocol.journal import RunProblem
from agentteam_supervisor.daemon.loading import Reporter, load, reopen
from agentteam_supervisor.daemon.restarts import Intensity, judge
from agentteam_supervisor.daemon.translation import (
    control_result,
    notice,
    to_event,
    to_report,
    undeliverable,
    wants_reply,
)
from agentteam_supervisor.session.events import (
    DisposeRequested,
    Event,
    IdleAwaited,
    LeaseLost,
    Loaded,
    PolicyChosen,
    ShutdownRequested,
    StopRequested,
)
from agentteam_supervisor.session.faults import REPORT
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from agentteam_protocol.ids import RunId
    from agentteam_supervisor.journal.log import Journal
    from agentteam_supervisor.session.effects import Reply

_log = logging.getLogger(__name__)

# Input that waits while a session is being loaded.
MAX_WAITING = 1000

_FULL = Diagnostic(
    "too much input waits for the agent's session, which is not up",
    "wait until the agent is up, then redeliver",
)
_MEND = "free space or mend the disk; the agent is tried again by itself"
_THERE = Diagnostic(
    "what the agent could not start for is there now",
    "resume the agent if something waits (agentteam resume NAME)",
)
_GONE = Diagnostic("the agent's session has ended", "send the message to another agent")


class Actor(Protocol):
    """The session actor, as a seat sees it."""

    @property
    def session(self) -> Session: ...
    @property
    def ended(self) -> bool: ...
    @property
    def failure(self) -> Diagnostic | None: ...
    def feed(self, event: Event) -> None: ...
    def expect(self, then: Callable[[Reply], None]) -> int: ...
    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None: ...


def _listens(actor: Actor) -> bool:
    """Tell whether input is heard: a session that is closing, or closed, drops it."""
    live = actor.session.live
    return not actor.ended and live.closing is None and live.phase is not Phase.closed


Done = Callable[[], None]
Leave = DisposeRequested | LeaseLost | ShutdownRequested
MakeActor = Callable[[AgentGranted, Session, Reporter], Actor]


class Seat:
    """`run` keeps the session; `take` hands it input, whatever state it is in."""

    def __init__(
        self,
        granted: AgentGranted,
        journal: Journal,
        make_actor: MakeActor,
        intensity: Intensity,
        tell: Callable[[Frame], None],
        loaded: Reporter | None = None,
    ) -> None:
        self.granted = granted
        self.actor: Actor | None = None
        self._journal = journal
        self._make_actor = make_actor
        self._intensity = intensity
        self._tell_live = tell
        self._loaded = loaded
        self._waiting: deque[tuple[Frame, Done]] = deque()
        self._failures: tuple[float, ...] = ()
        self._problem: Diagnostic | None = None
        self._failure: Diagnostic | None = None
        self._leaving: Leave | None = None
        self._nudged = trio.Event()
        self._renewing = False
        self._mended = False
        self._wanted = trio.Event()
        self.over = trio.Event()

    @property
    def leaving(self) -> bool:
        return self._leaving is not None

    @property
    def trouble(self) -> AgentTroubled | None:
        """What keeps the session down; the log may be unable to say it."""
        if self._failure is None:
            return None
        return AgentTroubled(self.granted.agent, self.granted.epoch, self._failure)

    # --- input ---------------------------------------------------------------------

    def take(self, frame: Frame, done: Done) -> None:
        """Hand a frame to the session; `done` when the journal has what it caused."""
        if self.over.is_set():
            self._let_go(frame, done)
        elif self.actor is not None and _listens(self.actor):
            self._feed(self.actor, frame, done)
        elif self._problem is not None and not _wakes(frame):
            self._refuse(frame, done, self._problem)
        elif len(self._waiting) >= MAX_WAITING:
            self._refuse(frame, done, _FULL)
        else:
            self._waiting.append((frame, done))
            self._wanted.set()
            if _wakes(frame):
                self._nudged.set()  # a person does not wait for the pause to pass

    def _feed(self, actor: Actor, frame: Frame, done: Done) -> None:
        ref = 0
        if wants_reply(frame):
            ref = actor.expect(lambda reply: self._replied(frame, reply))
        try:
            event = to_event(frame, ref)
        except ValueError as exc:
            # Arguments that the server let pass and nobody here understands.
            words = Diagnostic(f"it was not understood: {exc}", "check what was sent")
            self._refuse(frame, done, words)
            return
        if event is not None:
            actor.feed(event)
        if actor.ended and actor.failure is not None:
            # It may not have got as far as the journal: once more, after the restart.
            self._waiting.append((frame, done))
        else:
            done()

    def stop(self, run: RunId, who: str, then: Callable[[ControlResult], None]) -> None:
        """Stop this run now; `then` is told what came of it."""
        actor = self.actor
        if actor is None or actor.ended:
            then(ControlResult.not_running)
            return
        ref = actor.expect(lambda reply: then(control_result(reply)))
        actor.feed(StopRequested(run, who, ref))

    def _replied(self, frame: Frame, reply: Reply) -> None:
        if (told := to_report(frame, reply)) is not None:
            self._journal.send([told])

    def _refuse(self, frame: Frame, done: Done, why: Diagnostic) -> None:
        if frames := undeliverable(frame, why):
            self._journal.send(frames)
        done()

    # --- the lease -------------------------------------------------------------------

    def regrant(self, granted: AgentGranted) -> None:
        """Take new settings; a new epoch ends the session, which begins anew in it."""
        before, self.granted = self.granted, granted
        self._wanted.set()
        if granted.epoch > before.epoch:
            self._feed_actor(LeaseLost())
            return
        if granted.approval_policy != before.approval_policy:
            self._feed_actor(PolicyChosen(granted.approval_policy))
        if _settings(granted) != _settings(before):
            self._renew()

    def mended(self) -> None:
        """What the session could not start for is there: its problem is over."""
        if self.actor is None or self.actor.session.live.phase is not Phase.offline:
            return  # it has found that out by itself
        self._mended = True
        self._renew()

    def _renew(self) -> None:
        """Begin anew with the new settings, once nothing runs."""
        actor = self.actor
        if actor is None:
            return

        def idle(_: Reply) -> None:
            self._renewing = True
            actor.feed(ShutdownRequested())

        actor.feed(IdleAwaited(actor.expect(idle)))

    def leave(self, event: Leave) -> None:
        """End the session for good; `over` is set when it has ended."""
        self._leaving = event
        self._nudged.set()
        self._wanted.set()
        self._feed_actor(event)

    def _feed_actor(self, event: Event) -> None:
        if self.actor is not None:
            self.actor.feed(event)

    # --- its life --------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the session until it has left."""
        try:
            while self._leaving is None:
                await self._once()
        finally:
            self.over.set()
            for frame, done in self._waiting:
                self._let_go(frame, done)
            self._waiting.clear()

    def _let_go(self, frame: Frame, done: Done) -> None:
        """Input of a session that has left."""
        match self._leaving:
            case DisposeRequested():
                self._refuse(frame, done, _GONE)
            case LeaseLost():
                done()  # the next holder of the lease gets it
            case _:
                pass  # a shutdown: not done, so the server sends it again

    async def _once(self) -> None:
        """Load the session and run it until it ends; then the pause, if it failed."""
        epoch, self._renewing = self.granted.epoch, False
        try:
            failure = await self._live()
        except JournalUnwritable as exc:
            failure = Diagnostic(f"the log is not writable: {exc}", _MEND)
        except Exception as exc:
            # The supervising boundary: what is wrong with one agent stays its own.
            _log.exception("the session of %s cannot be opened", self.granted.agent)
            failure = Diagnostic(f"the session cannot be opened: {exc!r}", REPORT)
        self.actor = None
        ours = self._leaving or self._renewing or epoch != self.granted.epoch
        if failure is None and not ours:
            failure = Diagnostic("the session ended by itself", REPORT)
        if failure is not None:
            self._failure = failure
            await self._pause(failure)

    async def _live(self) -> Diagnostic | None:
        granted = self.granted
        agent = granted.agent
        self._forget_problem()
        reporter, self._loaded = self._loaded, None
        if reporter is None:
            await self._journal.flushed()
            reporter = await load(self._journal, agent)
        session = await reopen(self._journal, granted, reporter, self._failure)
        session = evolve(
            session,
            auto_reply=granted.auto_reply,
            default_policy=granted.approval_policy,
            runtime=granted.runtime,
        )
        actor = self._make_actor(granted, session, reporter)
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            self._enter(actor)
        return actor.failure

    def _forget_problem(self) -> None:
        if not self._mended:
            return
        self._mended, agent = False, self.granted.agent
        told = notice(agent, _THERE.problem, _THERE.what_to_do)
        with suppress(QueueFull):  # then the next start that succeeds drops it
            self._journal.append(agent, [RunProblem(None)], [told])

    def _enter(self, actor: Actor) -> None:
        """Before anything else: what the journal says is due, then what has waited."""
        self.actor = actor
        self._problem = None
        policy = actor.session.ledger.policy
        if policy is not None and policy is not self.granted.approval_policy:
            actor.feed(PolicyChosen(self.granted.approval_policy))
        actor.feed(Loaded())
        if self._failure is not None:
            self._tell(self._failure)
            self._failure = None
        waiting, self._waiting = self._waiting, deque()
        while waiting and _listens(actor):
            self._feed(actor, *waiting.popleft())
        self._waiting.extend(waiting)
        if self._leaving is not None:
            actor.feed(self._leaving)

    async def _pause(self, failure: Diagnostic) -> None:
        _log.error("the session of %s failed: %s", self.granted.agent, failure.problem)
        if self.trouble is not None:
            self._tell_live(self.trouble)
        verdict = judge(self._failures, trio.current_time(), self._intensity)
        self._failures = verdict.failures
        wait = verdict.wait
        if wait is None and failure.what_to_do == _MEND:
            # Nothing can be told to anybody without the log, so nobody can resume.
            wait = self._intensity.cap
        if wait is None:
            await self._give_up(failure)
        elif self._leaving is None:
            self._nudged = trio.Event()
            with trio.move_on_after(wait):
                await self._nudged.wait()

    async def _give_up(self, failure: Diagnostic) -> None:
        """The agent has a problem until a person resumes it, or the lease changes."""
        self._problem = failure
        granted = self.granted
        offline = Phase.offline.value
        with suppress(QueueFull):
            self._journal.send(
                [
                    StatusReported(
                        granted.agent,
                        granted.epoch,
                        False,
                        offline,
                        True,
                        problem=failure,
                    )
                ]
            )
        self._tell(failure)
        waiting, self._waiting = self._waiting, deque()
        for frame, done in waiting:
            self._refuse(frame, done, failure)
        self._wanted = trio.Event()
        if self._leaving is None:
            await self._wanted.wait()
        self._failures = ()

    def _tell(self, failure: Diagnostic) -> None:
        told = notice(self.granted.agent, failure.problem, failure.what_to_do)
        with suppress(QueueFull):
            self._journal.send([told])


def _settings(granted: AgentGranted) -> AgentGranted:
    """Leave out what a live session takes over, or does not care for."""
    return evolve(
        granted, epoch=0, approval_policy=ApprovalPolicy.ask, frontiers={}, name=""
    )


def _wakes(frame: Frame) -> bool:
    """A person may ask for one more try."""
    return isinstance(frame, AgentControl) and frame.action is ControlAction.resume
