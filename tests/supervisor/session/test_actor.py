"""The session actor over a scripted driver: what is served while something hangs."""

from __future__ import annotations

import pytest
import trio
from tests.kit.session_bench import bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.journal import FenceHeld, TurnStart
from agentteam_runtimes.driver import TurnStatus
from agentteam_supervisor.session.state import Fence, Phase


async def test_ordinary_message_is_submitted_and_surfaced(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        one = b.deliver("a1")
        await wait_all_tasks_blocked()
        (batch,) = b.driver.runtime.batches
        assert [item.text for item in batch.items] == ["body of a1"]
        assert b.state(one) is DeliveryState.accepted
        b.driver.runtime.surface()
        assert b.state(one) is DeliveryState.surfaced
        b.driver.runtime.finish()
        await b.handle.when_idle()
        assert b.session.live.phase is Phase.idle


async def test_urgent_is_served_while_a_submit_hangs(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("start_turn")
        b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.driver.gates.named("start_turn")
        two = b.deliver("a2", urgent=True)
        # Before the first checkpoint after feed.
        assert b.session.ledger.fence is Fence.hold
        await trio.sleep(10)  # past the interrupt's deadline: a new process
        b.driver.gates.let("start_turn")
        await wait_all_tasks_blocked()
        b.driver.runtime.surface()
        assert b.state(two) is DeliveryState.surfaced


@pytest.mark.req("R94")
async def test_steer_from_idle_has_opened_its_turn_when_it_returns(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish()
        await b.handle.when_idle()
        b.handle.steer("now")
        assert b.session.live.phase is Phase.running
        assert isinstance(b.journal.of(TurnStart)[-1], TurnStart)
        assert len(b.journal.of(TurnStart)) == 2


async def test_interrupt_leaves_before_the_journal_is_durable_and_submit_only_after(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.journal.hold()
        b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        assert b.journal.of(FenceHeld)
        assert b.driver.gates.named("interrupt")
        b.driver.runtime.finish(TurnStatus.interrupted)
        await wait_all_tasks_blocked()
        assert len(b.driver.gates.named("start_turn")) == 1
        b.journal.release()
        await wait_all_tasks_blocked()
        assert len(b.driver.gates.named("start_turn")) == 2
