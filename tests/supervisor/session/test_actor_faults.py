"""A fault ends one session, its tree included, and nobody else (B04, B08)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import frozen
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.errors import (
    JournalUnwritable,
    RuntimeExited,
    UnexpectedEvent,
)
from agentteam_protocol.ids import ItemId
from agentteam_protocol.journal import FenceLate, TurnEnd, TurnOutcome
from agentteam_runtimes.driver import (
    Asked,
    AskRef,
    ItemOutcome,
    Output,
    SubmitRefused,
    Surfaced,
)
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.actor import AskRefused
from agentteam_supervisor.session.events import (
    ApprovalAnswered,
    IdleAwaited,
    LeaseLost,
    StopRequested,
)
from agentteam_supervisor.session.state import Phase

if TYPE_CHECKING:
    from agentteam_supervisor.session.events import Event


@frozen
class NotOurs:
    """An event that the machine has no rule for."""


async def test_event_without_a_rule_ends_its_session_after_its_tree(
    autojump_clock: MockClock,
) -> None:
    async with bench() as a, bench(agent="agt_2") as b:
        await a.running()
        await b.running()
        nonsense: Event = NotOurs()  # type: ignore[assignment] # what must not happen
        a.actor.feed(nonsense)
        assert a.actor.ended
        await wait_all_tasks_blocked()
        assert a.driver.closed == 1
        ((diagnostic, error),) = a.stopped
        assert isinstance(error, UnexpectedEvent)
        assert diagnostic.what_to_do
        # The sibling does not notice.
        two = b.deliver("a2")
        await wait_all_tasks_blocked()
        b.driver.runtime.surface(*b.driver.runtime.steered)
        assert b.state(two) is DeliveryState.surfaced
        assert not b.actor.ended


async def test_driver_that_raises_what_it_may_not_ends_its_session_alone(
    autojump_clock: MockClock,
) -> None:
    async with bench() as a, bench(agent="agt_2") as b:
        await b.running()
        a.driver.gates.fail("start_turn", KeyError("a bug"))
        a.deliver("a1")
        await wait_all_tasks_blocked()
        assert a.actor.ended
        assert a.driver.closed == 1
        assert a.actor.failure is not None
        assert "a bug" in a.actor.failure.problem
        assert b.session.live.phase is Phase.running


@pytest.mark.bug("B08")
async def test_runtime_that_dies_under_a_write_fails_its_own_turn_alone(
    autojump_clock: MockClock,
) -> None:
    async with bench() as a, bench(agent="agt_2") as b:
        await b.running()
        a.driver.gates.fail("start_turn", RuntimeExited(1, "broken pipe"))
        one = a.deliver("a1")
        await wait_all_tasks_blocked()
        a.driver.runtime.exit(1, stderr_tail="assertion failed")
        await wait_all_tasks_blocked()
        assert a.state(one) is not DeliveryState.surfaced
        assert not a.actor.ended
        assert not a.stopped
        b.driver.runtime.emit(Output(b.driver.runtime.turn, "no gap"))
        assert b.session.live.said is not None


@pytest.mark.bug("B08")
async def test_runtime_that_dies_under_an_interrupt_is_replaced_for_the_urgent(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.fail("interrupt", RuntimeExited(1, "broken pipe"))
        urgent = b.deliver("a2", urgent=True)
        await wait_all_tasks_blocked()
        assert len(b.driver.runtimes) == 2
        b.driver.runtime.surface()
        assert b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B08")
async def test_calls_of_a_runtime_that_is_on_its_way_out_fail_at_once(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        # It has exited, but its tree is not gone yet.
        b.driver.gates.hold("kill")
        b.driver.runtime.exit(1)
        two = b.deliver("a2")
        await wait_all_tasks_blocked()
        assert not b.driver.gates.named("steer")
        assert b.state(two) is DeliveryState.queued
        urgent = b.deliver("a3", urgent=True)
        await wait_all_tasks_blocked()
        assert not b.driver.gates.named("interrupt")
        b.driver.gates.let("kill")
        await wait_all_tasks_blocked()
        assert len(b.driver.runtimes) == 2
        b.driver.runtime.surface()
        assert b.state(two) is b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B08")
async def test_submission_to_a_runtime_on_its_way_out_waits_for_the_next_one(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish()
        await b.handle.when_idle()
        b.driver.gates.hold("kill")
        b.driver.runtime.exit(1)
        two = b.deliver("a2")
        await wait_all_tasks_blocked()
        assert b.state(two) is not DeliveryState.failed
        b.driver.gates.let("kill")
        await wait_all_tasks_blocked()
        assert len(b.driver.runtimes) == 2
        b.driver.runtime.surface()
        assert b.state(two) is DeliveryState.surfaced
        assert b.actor.session.ledger.deliveries[two].attempt == 1


@pytest.mark.bug("B08")
async def test_runtime_that_dies_under_an_answer_is_noted_once(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.gates.fail("answer", RuntimeExited(1, "broken pipe"))
        b.driver.runtime.emit(Asked(b.driver.runtime.turn, AskRef("1"), "shell"))
        await wait_all_tasks_blocked()
        notes = [e for e in b.journal.events if isinstance(e, FenceLate)]
        assert [note.what for note in notes] == ["answer not taken"]
        b.driver.runtime.exit(1)
        await b.handle.when_idle()
        assert not b.actor.ended


@pytest.mark.bug("B04")
async def test_log_that_is_full_stops_the_session_and_claims_nothing(
    autojump_clock: MockClock,
) -> None:
    shared = MemoryJournal()
    people = ApprovalService()
    people.add(wait_for_person)
    async with (
        bench(journal=shared, consult=people.request) as a,
        bench(agent="agt_2") as b,
    ):
        await a.running()
        ask = AskRef("1")
        a.driver.runtime.emit(Asked(a.driver.runtime.turn, ask, "shell"))
        await wait_all_tasks_blocked()
        (approval,) = a.session.live.asks
        urgent_frames = len(shared.frames)
        shared.fill_up()
        a.actor.feed(ApprovalAnswered(approval, ApprovalOutcome.allowed_once))
        await wait_all_tasks_blocked()
        # No yes without its record, and nothing was told to the server.
        assert (ask, ApprovalOutcome.allowed_once) not in a.driver.runtime.answers
        assert len(shared.frames) == urgent_frames
        assert a.driver.closed == 1
        ((diagnostic, error),) = a.stopped
        assert "the log is not writable" in diagnostic.problem
        assert isinstance(error, JournalUnwritable)
        b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.driver.runtime.batches
        assert not b.actor.ended


@pytest.mark.bug("B04")
async def test_evidence_that_cannot_be_recorded_is_not_reported(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        one = b.deliver("a1")
        await wait_all_tasks_blocked()
        b.journal.hold()
        b.driver.runtime.surface()
        b.journal.fill_up()
        await wait_all_tasks_blocked()
        assert b.actor.ended
        # The held commit failed: no later record stands on it.
        before = list(b.journal.events)
        b.driver.runtime.emit(Surfaced(b.driver.runtime.turn, one, "k", None))  # type: ignore[arg-type] # never read
        assert b.journal.events == before


@pytest.mark.inv(38)
async def test_every_caller_is_answered_when_the_session_faults(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        refused: list[str] = []

        async def wait() -> None:
            with pytest.raises(AskRefused) as caught:
                await b.actor.ask(IdleAwaited)
            refused.append(caught.value.error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            b.driver.gates.fail("interrupt", KeyError("a bug"))
            b.deliver("a2", urgent=True)
        assert len(refused) == 3
        # And so is whoever comes later.
        with pytest.raises(AskRefused):
            await b.actor.ask(lambda ref: StopRequested(None, ref=ref))


async def test_lost_lease_ends_the_tree_and_reports_nothing_more(
    autojump_clock: MockClock,
) -> None:
    reported: list[str] = []

    def report(record: object, *_: object) -> tuple[()]:
        reported.append(type(record).__name__)
        return ()

    async with bench(report=report) as b:
        await b.running()
        before = len(reported)
        b.actor.feed(LeaseLost())
        await wait_all_tasks_blocked()
        assert reported[before:] == []
        assert b.journal.of(TurnEnd)
        assert b.actor.ended
        assert b.driver.closed == 1
        assert b.actor.failure is None


async def test_lost_lease_ends_the_process_that_is_starting(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.session.live.phase is Phase.starting
        b.actor.feed(LeaseLost())
        await wait_all_tasks_blocked()
        assert b.actor.ended
        assert b.driver.closed == 1
        assert b.actor.failure is None


async def test_submit_that_wrote_nothing_is_tried_again_and_then_given_up(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        for _ in range(3):
            b.driver.gates.fail("start_turn", SubmitRefused("busy", written=False))
        one = b.deliver("a1")
        await b.handle.when_idle()
        keys = [c[1].items[0].key for c in b.driver.gates.named("start_turn")]
        assert keys == ["dlv_a1.1", "dlv_a1.2", "dlv_a1.3"]
        assert b.state(one) is DeliveryState.failed


async def test_submit_that_never_answers_is_settled_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("start_turn")
        one = b.deliver("a1")
        await trio.sleep(31)
        assert b.state(one) is DeliveryState.unknown
        ends = [e for e in b.journal.events if isinstance(e, TurnEnd)]
        assert [e.outcome for e in ends] == [TurnOutcome.error]


async def test_fault_of_a_driver_at_the_start_is_a_problem_and_ends_no_session(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.fail("open", ValueError("embedded null byte"))
        one = b.deliver("a1")
        await wait_all_tasks_blocked()
        problem = b.actor.session.ledger.problem
        assert problem is not None
        assert "embedded null byte" in problem.problem
        assert not b.actor.ended
        assert b.state(one) is DeliveryState.queued


@pytest.mark.bug("B02", "B36")
@pytest.mark.inv(12, 13)
async def test_what_a_dying_runtime_was_given_is_asked_of_its_resumed_session(
    autojump_clock: MockClock,
) -> None:
    """Its end is noticed by a call first: that alone makes nothing unknown."""
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish()
        await wait_all_tasks_blocked()
        gates = b.driver.gates
        gates.fail("start_turn", RuntimeExited(None, ""))
        gates.fail("history", RuntimeExited(None, ""))
        given = b.deliver("a2")
        await wait_all_tasks_blocked()
        assert DeliveryState.unknown not in b.states(given)
        gates.hold("history")
        b.driver.runtime.exit(None)
        await trio.sleep(1)  # the pause after a death
        assert len(b.driver.runtimes) == 2
        await wait_all_tasks_blocked()
        b.driver.runtime.outcomes = {ItemId("dlv_a2"): ItemOutcome.dropped}
        gates.let("history")
        await wait_all_tasks_blocked()
        b.driver.runtime.surface()
        await wait_all_tasks_blocked()
        assert b.state(given) is DeliveryState.surfaced
        assert DeliveryState.unknown not in b.states(given)
