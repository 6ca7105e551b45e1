"""A session on the bench: the real machine and actor over fakes."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    DeliveryState,
    Diagnostic,
    InterruptPolicy,
)
from agentteam_protocol.ids import AgentId, DeliveryId, ItemId, MessageId, TargetId
from agentteam_protocol.inbox import Item, Lane
from agentteam_protocol.journal import DeliveryChanged
from agentteam_runtimes.driver import Capabilities, SessionSpec
from agentteam_supervisor.session.actor import SessionActor
from agentteam_supervisor.session.events import Delivered
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.host import SessionHandle
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.ports import Ports
from agentteam_supervisor.session.state import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.kit.watching import Watched

    from agentteam_supervisor.session.deadlines import Limits


@define
class Bench:
    driver: FakeDriver
    journal: MemoryJournal
    actor: SessionActor
    handle: SessionHandle
    stopped: list[tuple[Diagnostic, BaseException | None]] = field(factory=list)

    @property
    def session(self) -> Session:
        return self.actor.session

    def deliver(self, name: str, *, urgent: bool = False, **more: Any) -> DeliveryId:
        """Feed a delivery of message `name`; its sequence is its number."""
        item = delivery(name, urgent=urgent, **more)
        self.actor.feed(Delivered(item))
        assert item.delivery is not None
        return item.delivery

    async def running(self, name: str = "a1") -> None:
        """Bring the session into a turn whose one message is surfaced."""
        self.deliver(name)
        await wait_all_tasks_blocked()
        self.driver.runtime.surface()
        await wait_all_tasks_blocked()

    def state(self, of: DeliveryId) -> DeliveryState:
        return self.session.ledger.deliveries[of].state

    def states(self, of: DeliveryId) -> list[DeliveryState]:
        """All states that the journal holds of a delivery."""
        changes = [e for e in self.journal.events if isinstance(e, DeliveryChanged)]
        return [e.state for e in changes if e.delivery == of]


def delivery(name: str, *, urgent: bool = False, **more: Any) -> Item:
    number = int("".join(c for c in name if c.isdigit()) or "1")
    policy = InterruptPolicy.interrupt_current_run if urgent else None
    return Item(
        **{
            "id": ItemId(f"dlv_{name}"),
            "body": f"body of {name}",
            "lane": Lane.next_step,
            "delivery": DeliveryId(f"dlv_{name}"),
            "message": MessageId(f"msg_{name}"),
            "target": TargetId("tgt_1"),
            "seq": number,
            "policy": policy,
            "author": Author(AuthorKind.user, "alice"),
            **more,
        }
    )


def make_ports(
    driver: FakeDriver, journal: MemoryJournal, agent: str = "agt_1", **more: Any
) -> Ports:
    async def probe() -> Capabilities:
        return driver.capabilities

    name = AgentId(agent)
    spec = SessionSpec(name, "agent", Path(), Path())
    ports: dict[str, Any] = {
        "agent": name,
        "driver": driver,
        "spec": spec,
        "journal": journal,
        "probe": probe,
        "now": lambda: "2026-11-30T00:00:00Z",
        **more,
    }
    return Ports(**ports)


@asynccontextmanager
async def bench(
    *,
    agent: str = "agt_1",
    driver: FakeDriver | None = None,
    journal: MemoryJournal | None = None,
    limits: Limits | None = None,
    session: Session | None = None,
    watched: Watched | None = None,
    **ports: Any,
) -> AsyncGenerator[Bench]:
    """Run a session until the test leaves; then everything of it is cancelled."""
    driver, journal = driver or FakeDriver(), journal or MemoryJournal()
    stopped: list[tuple[Diagnostic, BaseException | None]] = []
    note: Callable[[Diagnostic, BaseException | None], None] = lambda d, e: (  # noqa: E731
        stopped.append((d, e))
    )
    made = make_ports(driver, journal, agent, stopped=note, **ports)
    session = session or Session(empty(AgentId(agent)))
    if watched is not None:
        watched.begin(session)
    actor = SessionActor(session, made, limits, watched or step)
    handle = SessionHandle(actor, made.tasks)
    with trio.fail_after(1_000_000):
        async with trio.open_nursery() as nursery:
            await nursery.start(actor.run)
            yield Bench(driver, journal, actor, handle, stopped)
            nursery.cancel_scope.cancel()
