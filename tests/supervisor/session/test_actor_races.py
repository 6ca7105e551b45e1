"""What waits for its record loses against a cut, and a run leaves nothing running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve
from tests.kit.fake_driver import CAPABILITIES, FakeDriver, FakeRuntime, Gates
from tests.kit.session_bench import bench

from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.calls import Calls
from agentteam_supervisor.session.effects import Submit
from agentteam_supervisor.session.events import ApprovalAnswered, SubmitFailed
from agentteam_supervisor.session.ports import Entered

if TYPE_CHECKING:
    from agentteam_protocol.inbox import Item
    from agentteam_supervisor.session.events import Event
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import Generation
from agentteam_protocol.journal import StepStart, TurnStart
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    AskRef,
    Steer,
    SteerRefused,
    StepEnded,
    TurnStatus,
)


@pytest.mark.inv(6)
async def test_submit_that_waits_for_its_record_is_never_written_after_a_cut(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish()
        await b.handle.when_idle()
        b.journal.hold()
        two = b.deliver("a2")
        urgent = b.deliver("a3", urgent=True)
        b.journal.release()
        await wait_all_tasks_blocked()
        submitted = [c[1] for c in b.driver.gates.named("start_turn")]
        texts = [[item.text for item in batch.items] for batch in submitted]
        assert texts == [["body of a1"], ["body of a2", "body of a3"]]
        b.driver.runtime.surface()
        assert b.state(two) is DeliveryState.surfaced
        assert b.state(urgent) is DeliveryState.surfaced


async def test_what_follows_at_once_is_durable_in_the_same_commit(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish()
        await b.handle.when_idle()
        before = len(b.journal.agents)
        b.deliver("a2")  # accepted, claimed, let in by nobody's listener, submitted
        assert len(b.journal.agents) == before + 1
        assert isinstance(b.journal.events[-1], StepStart)


async def test_steer_that_waits_for_its_record_is_back_in_its_lane_after_a_cut(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.journal.hold()
        two = b.deliver("a2", target="tgt_other")
        b.handle.cancel(keep_inbox=True)
        b.journal.release()
        await wait_all_tasks_blocked()
        assert not b.driver.gates.named("steer")
        b.driver.runtime.finish(TurnStatus.interrupted)
        await b.handle.when_idle()
        assert b.state(two) is DeliveryState.queued


@pytest.mark.bug("B16")
async def test_refused_steer_is_back_at_its_place_and_runs_next(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.fail("steer", SteerRefused("no active turn"))
        two = b.deliver("a2")
        await wait_all_tasks_blocked()
        assert b.state(two) is DeliveryState.queued
        b.driver.runtime.finish()
        await wait_all_tasks_blocked()
        b.driver.runtime.surface()
        assert b.state(two) is DeliveryState.surfaced


async def test_ask_that_the_runtime_withdraws_before_it_is_durable_asks_nobody(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []

    async def consult(request: ApprovalRequest) -> ApprovalOutcome:
        asked.append(request.tool_name)
        return ApprovalOutcome.allowed_once

    async with bench(consult=consult) as b:
        await b.running()
        b.journal.hold()
        b.driver.runtime.emit(Asked(b.driver.runtime.turn, AskRef("1"), "shell"))
        b.driver.runtime.emit(AskClosed(AskRef("1")))
        b.journal.release()
        await wait_all_tasks_blocked()
        assert asked == []


async def test_cut_ends_a_listener_at_once_while_the_turn_still_runs(
    autojump_clock: MockClock,
) -> None:
    ended: list[float] = []

    async def listener(items: tuple[Item, ...]) -> Entered:
        if items and items[0].body == "slow":
            try:
                await trio.sleep_forever()
            finally:
                ended.append(trio.current_time())
        return Entered(items)

    steps = evolve(CAPABILITIES, steps=True, steer=Steer.none)
    async with bench(driver=FakeDriver(steps), listeners=[listener]) as b:
        await b.running()
        b.handle.steer("slow")
        b.driver.runtime.emit(StepEnded(b.driver.runtime.turn, more=True))
        await wait_all_tasks_blocked()
        await trio.sleep(10)
        b.handle.cancel(keep_inbox=True)
        await trio.sleep(3)
        assert ended == [10.0]
        assert not b.driver.gates.named("next_step")


async def test_run_that_is_over_leaves_no_task_behind(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        living: list[int] = []
        for n in range(1, 6):
            await b.running(f"a{n}")
            b.driver.runtime.finish()
            await b.handle.when_idle()
            await wait_all_tasks_blocked()
            living.append(trio.lowlevel.current_statistics().tasks_living)
        assert len(b.journal.of(TurnStart)) == 5
        assert len(set(living)) == 1


async def test_feed_from_inside_a_step_is_queued_not_nested(
    autojump_clock: MockClock,
) -> None:
    order: list[str] = []

    def report(record: object, *_: object) -> tuple[()]:
        order.append(type(record).__name__)
        if isinstance(record, TurnStart) and record.turn == 1:
            # A host that reacts in the middle of the step that opens the turn.
            before = b.session
            b.handle.followup("from inside")
            assert b.session is before
        return ()

    async with bench(report=report) as b:
        b.deliver("a1")
        assert order.index("TurnStart") < len(order) - 1
        assert order.count("InboxSpliced") >= 2
        await wait_all_tasks_blocked()
        b.driver.runtime.finish()
        await wait_all_tasks_blocked()
        assert [i.text for i in b.driver.runtime.batches[-1].items] == ["from inside"]


async def test_answer_of_a_person_lets_the_parked_answerer_go(
    autojump_clock: MockClock,
) -> None:
    people = ApprovalService()
    people.add(wait_for_person)
    async with bench(consult=people.request) as b:
        await b.running()
        before = trio.lowlevel.current_statistics().tasks_living
        b.driver.runtime.emit(Asked(b.driver.runtime.turn, AskRef("1"), "shell"))
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before + 1
        (approval,) = b.session.live.asks
        allowed = ApprovalOutcome.allowed_once
        b.actor.feed(ApprovalAnswered(approval, allowed))
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


async def test_call_that_answers_too_late_was_answered_already(
    autojump_clock: MockClock,
) -> None:
    told: list[Event] = []
    runtime = FakeRuntime(Gates(), lambda _: None, 1, process=False)
    runtime.gates.hold("start_turn")
    submit = Submit(1, Generation(1, 1), "bat_1", ())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Calls(told.append, 30).submit, submit, (), runtime)
        await trio.sleep(31)
        runtime.gates.let("start_turn")
    (failed,) = told
    assert isinstance(failed, SubmitFailed)
    assert failed.written
