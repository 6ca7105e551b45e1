"""The intervention surface on a session: seven methods, and its end."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import Bench, bench, make_ports
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.inbox import Item, Lane
from agentteam_protocol.journal import TurnEnd, TurnOutcome, TurnStart
from agentteam_supervisor.session.actor import AskRefused
from agentteam_supervisor.session.deadlines import Limits
from agentteam_supervisor.session.events import IdleAwaited
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.host import open_session
from agentteam_supervisor.session.ports import Entered, Rejected
from agentteam_supervisor.session.state import Phase, Session


async def _idle(b: Bench) -> None:
    await b.running()
    b.driver.runtime.finish()
    await b.handle.when_idle()


@pytest.mark.req("R95")
async def test_inject_wakes_nobody_and_goes_along_with_what_does(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await _idle(b)
        b.handle.inject("by the way")
        await wait_all_tasks_blocked()
        assert b.handle.status == "idle"
        b.handle.steer("go")
        await wait_all_tasks_blocked()
        texts = [item.text for item in b.driver.runtime.batches[-1].items]
        assert texts == ["by the way", "go"]


@pytest.mark.req("R93")
async def test_followup_during_a_run_is_a_turn_of_its_own(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.handle.followup("next")
        await wait_all_tasks_blocked()
        assert len(b.driver.runtime.batches) == 1
        b.driver.runtime.finish()
        await wait_all_tasks_blocked()
        assert [i.text for i in b.driver.runtime.batches[1].items] == ["next"]


@pytest.mark.req("R97", "R102")
async def test_cancel_clears_what_waits_and_the_next_followup_runs(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.handle.followup("never")
        b.handle.cancel("enough")
        b.driver.runtime.finish()
        await b.handle.when_idle()
        (end,) = b.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.aborted
        b.handle.followup("again")
        await wait_all_tasks_blocked()
        assert [i.text for i in b.driver.runtime.batches[-1].items] == ["again"]


async def test_only_mark_urgent_enters_the_urgent_lane(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        with pytest.raises(ValueError, match="Mark urgent"):
            b.handle.send("now", target=Lane.urgent)


@pytest.mark.req("R105")
async def test_when_idle_waits_for_the_run_and_for_maintenance(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await _idle(b)
        b.driver.gates.hold("maintain")
        order: list[str] = []

        async def wait() -> None:
            await b.handle.when_idle()
            order.append("idle")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(b.handle.run_maintenance, "compact")
            await wait_all_tasks_blocked()
            assert not b.handle.quiescent
            assert b.handle.status == "idle"
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            assert order == []
            b.driver.gates.let("maintain")
        assert order == ["idle"]


@pytest.mark.req("R106", "R107")
async def test_maintenance_gives_its_value_and_its_fault_and_idles_after_both(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await _idle(b)

        async def good() -> int:
            return 42

        async def bad() -> int:
            raise LookupError("no such thing")

        events = len(b.journal.events)
        assert await b.handle.run_maintenance(good) == 42
        with pytest.raises(LookupError):
            await b.handle.run_maintenance(bad)
        assert await b.handle.run_maintenance("compact") == "compact done"
        assert b.session.live.phase is Phase.idle
        assert len(b.journal.events) == events
        b.handle.steer("work")
        with pytest.raises(RuntimeError):
            await b.handle.run_maintenance(good)
        await wait_all_tasks_blocked()


async def test_urgent_aborts_maintenance_and_runs_after_it(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await _idle(b)

        async def endless() -> None:
            await trio.sleep_forever()

        async def maintain() -> None:
            with pytest.raises(RuntimeError, match="aborted"):
                await b.handle.run_maintenance(endless)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(maintain)
            await wait_all_tasks_blocked()
            urgent = b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        b.driver.runtime.surface()
        assert b.state(urgent) is DeliveryState.surfaced


async def test_stop_of_another_run_changes_nothing(autojump_clock: MockClock) -> None:
    async with bench() as b:
        await b.running()
        before = b.session.ledger
        stale = await b.handle.stop("run_other")  # type: ignore[arg-type] # any name
        assert stale is ControlResult.stale_run
        assert b.session.ledger == before


@pytest.mark.req("R110")
async def test_listener_rejects_a_batch_before_anything_is_written(
    autojump_clock: MockClock,
) -> None:
    async def listener(_: tuple[Item, ...]) -> Rejected:
        return Rejected("not today")

    async with bench(listeners=[listener]) as b:
        one = b.deliver("a1")
        await b.handle.when_idle()
        assert b.state(one) is DeliveryState.blocked
        assert not b.driver.gates.named("start_turn")
        (end,) = b.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.blocked


async def test_listeners_are_asked_in_a_row_and_may_rewrite(
    autojump_clock: MockClock,
) -> None:
    seen: list[tuple[str, ...]] = []

    async def first(items: tuple[Item, ...]) -> Entered:
        seen.append(tuple(i.body for i in items))
        await trio.sleep(1)
        return Entered(items)

    async def second(items: tuple[Item, ...]) -> Entered:
        seen.append(tuple(i.body for i in items))
        return Entered(items)

    async with bench(listeners=[first, second]) as b:
        b.deliver("a1")
        await trio.sleep(2)
        assert seen == [("body of a1",), ("body of a1",)]
        assert b.driver.runtime.batches


async def test_cut_during_a_listener_submits_nothing(
    autojump_clock: MockClock,
) -> None:
    async def slow(items: tuple[Item, ...]) -> Entered:
        await trio.sleep(5)
        return Entered(items)

    async with bench(listeners=[slow]) as b:
        one = b.deliver("a1")
        await wait_all_tasks_blocked()
        await b.handle.stop(b.handle.run_id)
        await b.handle.when_idle()
        await trio.sleep(10)
        assert not b.driver.gates.named("start_turn")
        assert b.state(one) is DeliveryState.queued


async def test_fault_of_a_listener_blocks_its_batch_alone(
    autojump_clock: MockClock,
) -> None:
    async def broken(_: tuple[Item, ...]) -> Entered:
        raise LookupError("no table")

    async with bench(listeners=[broken]) as b:
        one = b.deliver("a1")
        await b.handle.when_idle()
        assert b.state(one) is DeliveryState.blocked
        assert not b.actor.ended


async def test_listener_that_decides_nothing_blocks_its_batch(
    autojump_clock: MockClock,
) -> None:
    async def listener(_: tuple[Item, ...]) -> Any:
        return None

    async with bench(listeners=[listener]) as b:
        one = b.deliver("a1")
        await b.handle.when_idle()
        assert b.state(one) is DeliveryState.blocked
        assert not b.actor.ended


@pytest.mark.inv(34)
@pytest.mark.parametrize("when", ["offline", "starting", "idle", "running", "deaf"])
async def test_dispose_is_bounded_from_everywhere(
    autojump_clock: MockClock, when: str
) -> None:
    async with bench() as b:
        match when:
            case "starting":
                b.driver.gates.hold("open")
                b.deliver("a1")
                await wait_all_tasks_blocked()
            case "idle":
                await _idle(b)
            case "running":
                await b.running()
            case "deaf":
                await b.running()
                b.driver.gates.hold("interrupt")
                containment = b.driver.runtime.containment
                assert containment is not None
                containment.deaf = True
            case _:
                pass
        with trio.fail_after(30):
            await b.handle.dispose()
        await wait_all_tasks_blocked()
        assert b.session.live.phase is Phase.closed
        assert b.actor.ended
        assert b.driver.closed == len(b.driver.resumed)
        with pytest.raises(AskRefused):
            await b.actor.ask(IdleAwaited)


async def test_shutdown_keeps_what_waits(autojump_clock: MockClock) -> None:
    async with bench() as b:
        await b.running()
        b.handle.followup("later")
        with trio.fail_after(30):
            await b.handle.shutdown()
        (item,) = b.session.ledger.lanes[Lane.next_turn]
        assert item.body == "later"
        assert b.session.ledger.park == 0


async def test_session_is_opened_and_shut_down_by_its_context(
    autojump_clock: MockClock,
) -> None:
    driver, journal = FakeDriver(), MemoryJournal()
    ports = make_ports(driver, journal)
    session = Session(empty(ports.agent))
    with trio.fail_after(60):
        async with open_session(session, ports, Limits()) as handle:
            handle.followup("hello")
            await wait_all_tasks_blocked()
            assert handle.status == "running"
    assert driver.closed == 1
    assert len(journal.of(TurnStart)) == len(journal.of(TurnEnd)) == 1
