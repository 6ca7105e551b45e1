"""A real session on a child: its actor, its driver, its warden, its journal."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import define, field

from agentteam_protocol.delivery import Author, AuthorKind, InterruptPolicy
from agentteam_protocol.ids import AgentId, DeliveryId, ItemId, MessageId, TargetId
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes.driver import Driver, Options, SessionSpec
from agentteam_runtimes.rehearsal.driver import RehearsalDriver
from agentteam_supervisor.daemon.reports import begin, report
from agentteam_supervisor.journal.log import now, open_journal
from agentteam_supervisor.session.actor import SessionActor
from agentteam_supervisor.session.effects import Progress
from agentteam_supervisor.session.events import Delivered, Event, SubmitAccepted
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.ports import Ports
from agentteam_supervisor.session.state import Ledger, Phase, Session
from bench.raw import COMMAND

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from agentteam_protocol.frames import Frame
    from agentteam_protocol.journal import JournalEvent
    from agentteam_runtimes.driver import Capabilities
    from agentteam_supervisor.session.deadlines import Limits
    from agentteam_supervisor.session.effects import Effect
    from agentteam_supervisor.session.ports import Journal

T = TypeVar("T")
_numbers = itertools.count(1)


@define(eq=False)
class Watched:
    """A session, and what one waits for in it."""

    actor: SessionActor
    progress: list[Progress] = field(factory=list["Progress"])
    accepted: int = 0  # submissions that the runtime has acknowledged
    _happened: trio.Event = field(factory=trio.Event)

    @property
    def session(self) -> Session:
        return self.actor.session

    def happened(self) -> None:
        self._happened.set()
        self._happened = trio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for what a step brings about; bounded, for nothing here may hang."""
        with trio.fail_after(60):
            while not holds():
                if self.actor.failure is not None:
                    raise AssertionError(self.actor.failure.problem)
                await self._happened.wait()

    async def submitted(self, before: int) -> None:
        await self.until(lambda: self.accepted > before)

    async def runs(self, text: str) -> None:
        """Deliver an ordinary message to the idle session and wait until it runs."""
        before = self.accepted
        self.deliver(text)
        await self.submitted(before)

    def deliver(self, text: str, *, urgent: bool = False) -> Item:
        item = make_item(text, urgent=urgent)
        self.actor.feed(Delivered(item))
        return item

    async def idle(self) -> None:
        await self.until(lambda: self.session.quiescent)


def make_item(text: str, *, urgent: bool = False) -> Item:
    number = next(_numbers)
    policy = InterruptPolicy.interrupt_current_run if urgent else None
    delivery = f"dlv_{number:016x}"
    return Item(
        id=ItemId(delivery),
        body=text,
        lane=Lane.next_step,
        delivery=DeliveryId(delivery),
        message=MessageId(f"msg_{number:016x}"),
        target=TargetId("tgt_1"),
        seq=number,
        policy=policy,
        author=Author(AuthorKind.user, "alice"),
    )


def make_child_program(place: Path) -> Path:
    """Write the program that `rehearsal` starts in the place of its own Python."""
    program = place / "child"
    words = " ".join(f"'{word}'" for word in COMMAND)
    program.write_text(f"#!/bin/sh\nexec {words}\n")
    program.chmod(0o755)
    return program


@asynccontextmanager
async def open_session(
    place: Path,
    journal: Journal,
    *,
    driver: Driver | None = None,
    options: Options | None = None,
    agent: str = "agt_bench",
    workdir: Path | None = None,
    limits: Limits | None = None,
    reports: bool = True,
) -> AsyncGenerator[Watched]:
    """Run a session until the block is left; then its tree is ended."""
    driver = driver or RehearsalDriver()
    options = options or Options(bin=str(make_child_program(place)))
    capabilities = await trio.to_thread.run_sync(driver.probe, options)
    watched: list[Watched] = []

    async def probe() -> Capabilities:
        return capabilities

    def watch(session: Session, event: Event) -> tuple[Session, list[Effect]]:
        result = step(session, event)
        if watched:
            if isinstance(event, SubmitAccepted):
                watched[0].accepted += 1
            watched[0].happened()
        return result

    id = AgentId(agent)
    ports: dict[str, Any] = {"report": reporter(id)} if reports else {}
    ports["progress"] = lambda told: watched[0].progress.append(told)
    made = Ports(
        agent=id,
        driver=driver,
        spec=SessionSpec(id, "bench", workdir or place, place, options=options),
        journal=journal,
        probe=probe,
        now=now,
        **ports,
    )
    actor = SessionActor(Session(empty(id), auto_reply=False), made, limits, watch)
    watched.append(Watched(actor))
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        yield watched[0]
        nursery.cancel_scope.cancel()


async def hold(
    opened: AbstractAsyncContextManager[T],
    *,
    task_status: trio.TaskStatus[T] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep a context open in a task of its own: many that nest make each one slow."""
    async with opened as inner:
        task_status.started(inner)
        await trio.sleep_forever()


def reporter(agent: AgentId) -> Callable[[JournalEvent, str, Ledger], list[Frame]]:
    """Tell the server what the daemon would."""
    state = begin(agent)

    def take(event: JournalEvent, at: str, after: Ledger) -> list[Frame]:
        nonlocal state
        state, frames = report(state, event, at, after)
        return frames

    return take


@asynccontextmanager
async def open_durable(place: Path, **more: Any) -> AsyncGenerator[Watched]:
    """Run a session on a journal of its own."""
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(place / "journal.db"))
        yield await stack.enter_async_context(open_session(place, journal, **more))


def is_running(session: Session) -> bool:
    return session.live.phase is Phase.running
