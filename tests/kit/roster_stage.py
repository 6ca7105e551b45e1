"""A roster whose actors journal what they are fed, and end when they are told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, evolve, field

from agentteam_protocol import journal as j
from agentteam_protocol.codec import decode_envelope
from agentteam_protocol.control import ControlResult, CutCause
from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    Diagnostic,
    InterruptPolicy,
    MessageRef,
)
from agentteam_protocol.frames import (
    AgentDeliver,
    AgentGranted,
    Frame,
)
from agentteam_protocol.ids import (
    AgentId,
    DeliveryId,
    MessageId,
    TargetId,
)
from agentteam_supervisor.daemon.restarts import Intensity
from agentteam_supervisor.daemon.roster import Roster
from agentteam_supervisor.journal.log import Journal, open_journal
from agentteam_supervisor.session.effects import Reply
from agentteam_supervisor.session.events import (
    Delivered,
    DisposeRequested,
    Event,
    IdleAwaited,
    LeaseLost,
    MaintenanceRequested,
    ResumeRequested,
    ShutdownRequested,
    StopRequested,
)
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_supervisor.daemon.loading import Reporter

A = AgentId("agt_a")
B = AgentId("agt_b")
T = TargetId("tgt_1")
FAST = Intensity(failures=3, first=0.5, cap=2.0, healthy=60.0)


@define(eq=False)
class FakeActor:
    """Journals what it is fed; dies of a message called `poison`."""

    granted: AgentGranted
    session: Session
    journal: Journal
    log: list[Event]
    failure: Diagnostic | None = None
    callers: dict[int, Callable[[Reply], None]] = field(
        factory=dict[int, Callable[[Reply], None]]
    )
    over: trio.Event = field(factory=trio.Event)
    slow: Phase | None = None  # where it is while its process takes time to end

    @property
    def ended(self) -> bool:
        return self.over.is_set()

    def expect(self, then: Callable[[Reply], None]) -> int:
        self.callers[len(self.callers) + 1] = then
        return len(self.callers)

    def feed(self, event: Event) -> None:
        if self.ended:
            return
        self.log.append(event)
        match event:
            case Delivered(item) if item.body == "poison":
                self.failure = Diagnostic("a bug", "report it")
                self.over.set()
            case Delivered(item):
                self.journal.append(self.granted.agent, [j.RunNotice(item.body)])
            case StopRequested(_, _, ref):
                self.answer(ref, ControlResult.stopping)
            case ResumeRequested(ref):
                self.answer(ref, ControlResult.resumed)
            case IdleAwaited(ref):
                self.answer(ref)
            case MaintenanceRequested(_, ref):
                self.answer(ref, error="not_idle")
            case DisposeRequested() | LeaseLost() | ShutdownRequested():
                phase = self.slow or Phase.closed
                live = self.session.live
                live = evolve(live, phase=phase, closing=CutCause.shutdown)
                self.session = evolve(self.session, live=live)
                if self.slow is None:
                    self.over.set()
            case _:
                pass

    def answer(
        self, ref: int | None, value: ControlResult | None = None, error: str = ""
    ) -> None:
        if ref:
            self.callers.pop(ref)(Reply(ref, value, error))

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        task_status.started()
        await self.over.wait()


@define(eq=False)
class Stage:
    journal: Journal
    roster: Roster = field(init=False)
    actors: dict[AgentId, list[FakeActor]] = field(
        factory=dict[AgentId, list[FakeActor]]
    )
    logs: dict[AgentId, list[Event]] = field(factory=dict[AgentId, list[Event]])
    answers: list[Frame] = field(factory=list[Frame])
    done: list[Frame] = field(factory=list[Frame])
    broken: set[AgentId] = field(factory=set[AgentId])

    def make_actor(
        self, granted: AgentGranted, session: Session, reporter: Reporter
    ) -> FakeActor:
        if granted.agent in self.broken:
            raise RuntimeError("it cannot be made")
        log = self.logs.setdefault(granted.agent, [])
        actor = FakeActor(granted, session, self.journal, log)
        self.actors.setdefault(granted.agent, []).append(actor)
        return actor

    async def hand(self, *frames: Frame) -> None:
        """Give frames to the roster and let everything come to rest."""
        for frame in frames:
            self.roster.handle(frame, partial(self.done.append, frame))
        await self.settle()

    async def settle(self) -> None:
        """Each round waits for the journal's threads and for what comes of it."""
        for _ in range(8):
            await self.journal.flushed()
            await self.journal.entries(A, limit=1)
            await trio.testing.wait_all_tasks_blocked()

    async def pass_time(self, clock: trio.testing.MockClock, *seconds: float) -> None:
        for step in seconds:
            clock.jump(step)
            await self.settle()

    async def told(self) -> list[Frame]:
        await self.settle()
        rows = await self.journal.outbound(0, 1000)
        return [
            decode_envelope(b'{"frames":[%s],"seq":1}' % text).frames[0]
            for _, text in rows
        ]

    def actor(self, agent: AgentId = A) -> FakeActor:
        return self.actors[agent][-1]


@asynccontextmanager
async def staged(path: Path) -> AsyncGenerator[Stage]:
    async with open_journal(path / "journal.sqlite3") as journal:
        stage = Stage(journal)
        stage.roster = Roster(journal, stage.make_actor, stage.answers.append, FAST)
        async with trio.open_nursery() as nursery:
            with trio.fail_after(3000):
                await nursery.start(stage.roster.run)
                yield stage
            nursery.cancel_scope.cancel()


def grant(agent: AgentId = A, epoch: int = 1) -> AgentGranted:
    return AgentGranted(agent, "demo", "rehearsal", epoch)


def deliver(
    number: int, body: str = "hello", agent: AgentId = A, urgent: bool = False
) -> AgentDeliver:
    policy = InterruptPolicy.interrupt_current_run if urgent else None
    author = Author(AuthorKind.user, "ann")
    message = MessageRef(MessageId(f"msg_{number}"), T, number, body, author, "@demo")
    return AgentDeliver(DeliveryId(f"dlv_{number}"), agent, message, policy, floor=3)
