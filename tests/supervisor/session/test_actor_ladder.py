"""A cut escalates by the clock until the runtime's turn is over (B06)."""

from __future__ import annotations

import pytest
import trio
from tests.kit.session_bench import Bench, bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.journal import (
    FenceClosed,
    FenceReopened,
    RunNotice,
    TurnEnd,
    TurnOutcome,
)
from agentteam_runtimes.driver import (
    InterruptRefused,
    ItemOutcome,
    Survivor,
    TurnRef,
    TurnStatus,
)
from agentteam_supervisor.session.deadlines import Limits
from agentteam_supervisor.session.state import Fence, Phase

LIMITS = Limits()
# interrupt, terminate and kill, in seconds.
STAGES = 5.0 + 2.0 + 2.0


async def _surfaced_on_a_new_process(b: Bench, name: str) -> None:
    assert len(b.driver.runtimes) == 2
    (batch,) = b.driver.runtime.batches
    assert batch.items[-1].text == f"body of {name}"
    b.driver.runtime.surface()


@pytest.mark.bug("B06")
async def test_interrupt_that_is_never_answered_ends_at_the_kill(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.hold("interrupt")
        containment = b.driver.runtime.containment
        assert containment is not None
        containment.deaf = True
        urgent = b.deliver("a2", urgent=True)
        await trio.sleep(STAGES)
        await wait_all_tasks_blocked()
        names = [call[0] for call in b.driver.gates.calls]
        assert names.index("interrupt") < names.index("terminate") < names.index("kill")
        await _surfaced_on_a_new_process(b, "a2")
        assert b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B06")
async def test_interrupt_that_is_accepted_is_not_a_turn_that_ended(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        urgent = b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        assert b.session.live.phase is Phase.converging
        await trio.sleep(LIMITS.interrupt or 0)
        await wait_all_tasks_blocked()
        assert b.driver.gates.named("terminate")
        await _surfaced_on_a_new_process(b, "a2")
        assert b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B06")
async def test_refused_interrupt_goes_up_the_ladder_at_once(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.fail("interrupt", InterruptRefused("no active turn"))
        urgent = b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        assert trio.current_time() == 0
        assert b.driver.gates.named("terminate")
        await _surfaced_on_a_new_process(b, "a2")
        assert b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B30")
async def test_refused_interrupt_is_tried_once_more_with_the_turn_it_names(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        named = TurnRef("the real one")
        b.driver.gates.fail("interrupt", InterruptRefused("mismatch", named))
        b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        turns = [call[1] for call in b.driver.gates.named("interrupt")]
        assert turns == [b.driver.runtime.turn, named]
        assert not b.driver.gates.named("terminate")


@pytest.mark.bug("B06")
async def test_stopped_process_is_killed_and_the_agent_idles_parked(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.hold("interrupt")
        b.driver.gates.hold("terminate")
        await b.handle.stop(b.handle.run_id, "bob")
        with trio.fail_after(STAGES + 0.1):
            await b.handle.when_idle()
        (end,) = b.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert (end.outcome, end.cause) == (TurnOutcome.aborted, CutCause.stop)
        assert len(b.driver.gates.named("interrupt")) == 1


@pytest.mark.bug("B06")
@pytest.mark.inv(21)
async def test_process_that_no_signal_ends_fails_the_urgent_and_goes_on(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.hold("interrupt")
        containment = b.driver.runtime.containment
        assert containment is not None
        containment.deaf = containment.immortal = True
        urgent = b.deliver("a2", urgent=True)
        await trio.sleep(STAGES + 0.1)
        assert b.state(urgent) is DeliveryState.failed
        assert b.journal.of(FenceReopened)
        assert b.session.ledger.fence is Fence.open
        assert b.session.live.phase is Phase.running
        (notice,) = b.journal.of(RunNotice)
        assert isinstance(notice, RunNotice)
        assert "unkillable" in notice.detail


async def test_what_the_cut_turn_started_is_swept_from_its_own_mark(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running("a1")
        b.driver.runtime.finish()
        await b.handle.when_idle()
        await b.running("a2")
        containment = b.driver.runtime.containment
        assert containment is not None
        containment.leftovers = (Survivor(77, 5, "sleep 1000"),)
        b.deliver("a3", urgent=True)
        b.driver.runtime.finish(TurnStatus.interrupted)
        await wait_all_tasks_blocked()
        # The first turn's mark is 1; what it left alone is none of this cut's.
        assert b.driver.gates.named("sweep") == [("sweep", 2)]
        notices = [e for e in b.journal.events if isinstance(e, RunNotice)]
        assert any("77" in notice.detail for notice in notices)
        assert b.journal.of(FenceClosed)


async def test_entries_left_open_by_a_cut_are_looked_up_in_the_history(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running("a1")
        steered = b.deliver("a2")
        await wait_all_tasks_blocked()
        (item,) = b.driver.runtime.steered
        b.driver.runtime.outcomes = {item.id: ItemOutcome.dropped}
        await b.handle.stop(b.handle.run_id)
        b.driver.runtime.finish(TurnStatus.interrupted)
        await b.handle.when_idle()
        assert b.driver.gates.named("history") == [("history", {item.key: item.id})]
        assert b.state(steered) is DeliveryState.queued


async def test_cancel_waits_long_before_it_touches_the_process(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.handle.cancel()
        await trio.sleep(29)
        assert not b.driver.gates.named("terminate")
        await trio.sleep(2)
        assert b.driver.gates.named("terminate")
