"""Starting a runtime: bounded, paced, and interrupted like anything else (B35, B11)."""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve
from tests.kit.fake_driver import CAPABILITIES, FakeDriver, FakeRuntime
from tests.kit.session_bench import bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.control import ControlResult, CutCause
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeMissing,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_protocol.ids import AgentId
from agentteam_protocol.journal import (
    AssistantMessage,
    RunProcess,
    TurnEnd,
    TurnOutcome,
)
from agentteam_runtimes.driver import (
    Output,
    ResumeRefused,
    SessionNamed,
    Steer,
    TurnStatus,
)
from agentteam_supervisor.session.events import Loaded
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.prompt import HISTORY_LOST
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from agentteam_protocol.errors import RuntimeFailure
    from agentteam_runtimes.driver import Emit, SessionSpec


# A runtime that cannot be steered, so that what comes waits.
DEAF = evolve(CAPABILITIES, steer=Steer.none)


@pytest.mark.bug("B35")
async def test_stop_during_the_handshake_means_nothing_is_ever_sent(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        one = b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.session.live.phase is Phase.starting
        assert await b.handle.stop(b.handle.run_id) is ControlResult.stopping
        b.driver.gates.let("open")
        await b.handle.when_idle()
        assert not b.driver.gates.named("start_turn")
        assert b.state(one) is DeliveryState.queued
        ends = [e for e in b.journal.events if isinstance(e, TurnEnd)]
        assert [e.outcome for e in ends] == [TurnOutcome.aborted]


@pytest.mark.bug("B35")
async def test_turn_that_goes_on_after_an_acknowledged_interrupt_meets_the_ladder(
    autojump_clock: MockClock,
) -> None:
    shown: list[str] = []
    async with bench(progress=lambda p: shown.append(p.text)) as b:
        await b.running()
        await b.handle.stop(b.handle.run_id)
        await wait_all_tasks_blocked()
        for _ in range(6):
            b.driver.runtime.emit(Output(b.driver.runtime.turn, "still at it"))
            await trio.sleep(1)
        assert b.driver.gates.named("terminate")
        assert shown == []
        assert not b.journal.of(AssistantMessage)


@pytest.mark.bug("B35")
@pytest.mark.parametrize("before", ["handshake", "turn"])
async def test_urgent_during_the_start_is_the_first_input_that_is_worked_on(
    autojump_clock: MockClock, before: str
) -> None:
    async with bench() as b:
        gate = {"handshake": "open", "turn": "start_turn"}[before]
        b.driver.gates.hold(gate)
        b.deliver("a1", target="tgt_other")
        await wait_all_tasks_blocked()
        urgent = b.deliver("a2", urgent=True)
        await trio.sleep(8)
        b.driver.gates.let(gate)
        await wait_all_tasks_blocked()
        batch = b.driver.runtime.batches[0]
        assert [item.text for item in batch.items] == ["body of a2"]
        b.driver.runtime.surface()
        assert b.state(urgent) is DeliveryState.surfaced


@pytest.mark.bug("B35")
async def test_message_after_a_stop_during_the_handshake_is_the_first_input(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        b.deliver("a1")
        await wait_all_tasks_blocked()
        await b.handle.stop(b.handle.run_id)
        b.deliver("a2")
        b.driver.gates.let("open")
        await wait_all_tasks_blocked()
        # What stood before the stop goes along with the newer wake, in order.
        (batch,) = b.driver.runtime.batches
        assert [item.id for item in batch.items] == ["dlv_a1", "dlv_a2"]


@pytest.mark.bug("B35")
async def test_stop_ends_a_handshake_that_never_ends(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        b.deliver("a1")
        await wait_all_tasks_blocked()
        await b.handle.stop(b.handle.run_id)
        with trio.fail_after(4.0):
            await b.handle.when_idle()
        assert b.driver.closed == 1


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (RuntimeMissing("no codex", "install it"), "no codex"),
        (RuntimeRefused("not logged in"), "not logged in"),
        (RuntimeExited(3, "segfault"), "segfault"),
        (RuntimeTooSlow("no answer to hello"), "no answer to hello"),
    ],
)
@pytest.mark.inv(21)
async def test_failed_start_names_the_problem_and_what_to_do(
    autojump_clock: MockClock, failure: RuntimeFailure, word: str
) -> None:
    async with bench() as b:
        b.driver.gates.fail("open", failure)
        urgent = b.deliver("a1", urgent=True)
        await b.handle.when_idle()
        assert b.session.live.phase is Phase.offline
        problem = b.session.ledger.problem
        assert problem is not None
        assert word in problem.problem
        assert problem.what_to_do
        assert b.state(urgent) is DeliveryState.failed


async def test_handshake_that_takes_too_long_is_given_up(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        b.deliver("a1")
        await trio.sleep(30.5)
        assert b.session.live.phase is Phase.offline
        assert b.driver.closed == 1
        assert b.session.ledger.problem is not None


@pytest.mark.bug("B03")
async def test_lost_session_is_started_afresh_once_and_says_so(
    autojump_clock: MockClock,
) -> None:
    ledger = evolve(empty(AgentId("agt_1")), resume="old")
    async with bench(session=Session(ledger)) as b:
        b.driver.gates.fail("open", ResumeRefused("no such session"))
        b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.driver.resumed == ["old", None]
        (item,) = b.driver.runtime.batches[0].items
        assert item.text == f"{HISTORY_LOST}\nbody of a1"
        b.driver.runtime.surface()
        b.driver.runtime.finish()
        await b.handle.when_idle()
        b.deliver("a2")
        await wait_all_tasks_blocked()
        assert b.driver.runtime.batches[-1].items[0].text == "body of a2"


@pytest.mark.bug("B03")
async def test_session_that_is_refused_twice_is_a_failed_start(
    autojump_clock: MockClock,
) -> None:
    ledger = evolve(empty(AgentId("agt_1")), resume="old")
    async with bench(session=Session(ledger)) as b:
        b.driver.gates.fail("open", ResumeRefused("no such session"))
        b.driver.gates.fail("open", ResumeRefused("no such session"))
        b.deliver("a1")
        await b.handle.when_idle()
        assert b.driver.resumed == ["old", None]
        assert b.session.live.phase is Phase.offline


async def test_what_an_old_process_left_open_is_settled_before_anything_runs(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.deliver("a1")
        await wait_all_tasks_blocked()
        b.driver.runtime.emit(SessionNamed("s1"))
        events = list(b.journal.events)
    ledger = empty(AgentId("agt_1"))
    for event in events:
        ledger = fold(ledger, event)
    ledger = evolve(ledger, turn=None, alive=False)
    async with bench(session=Session(ledger)) as b:
        # The history of the new process knows the entry of the old one.
        b.driver.gates.hold("open")
        b.actor.feed(Loaded())
        await wait_all_tasks_blocked()
        b.driver.gates.let("open")
        await wait_all_tasks_blocked()
        assert b.driver.resumed == ["s1"]
        key = next(iter(ledger.in_flight.values())).item.key
        assert b.driver.gates.named("history") == [("history", {key: "dlv_a1"})]
        assert not b.driver.gates.named("start_turn")


async def test_identity_of_the_tree_is_in_the_journal_before_the_first_submit(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        (opened,) = b.journal.of(RunProcess)
        assert isinstance(opened, RunProcess)
        assert opened.alive
        assert opened.identity == '{"pid": 1001}'


@pytest.mark.bug("B11")
async def test_restart_after_a_death_waits_for_its_turn(
    autojump_clock: MockClock,
) -> None:
    waits = iter([7.0])
    async with bench(pace=lambda _: next(waits)) as b:
        await b.running()
        b.deliver("a2", target="tgt_other")
        b.driver.runtime.exit(1)
        await trio.sleep(6.9)
        assert len(b.driver.runtimes) == 1
        await trio.sleep(0.2)
        assert len(b.driver.runtimes) == 2


@pytest.mark.bug("B11")
async def test_delay_of_a_restart_does_not_eat_the_time_of_its_start(
    autojump_clock: MockClock,
) -> None:
    async with bench(pace=lambda _: 100.0) as b:
        await b.running()
        b.deliver("a2", target="tgt_other")
        b.driver.runtime.exit(1)
        b.driver.gates.hold("open")
        await trio.sleep(120)
        b.driver.gates.let("open")
        await wait_all_tasks_blocked()
        assert len(b.driver.runtimes) == 2


@pytest.mark.bug("B11")
@pytest.mark.parametrize("how", ["stop", "cancel", "dispose", "shutdown"])
async def test_delay_of_a_restart_is_interrupted(
    autojump_clock: MockClock, how: str
) -> None:
    async with bench(driver=FakeDriver(DEAF), pace=lambda _: math.inf) as b:
        await b.running()
        b.deliver("a2", target="tgt_other")
        b.driver.runtime.exit(1)
        await wait_all_tasks_blocked()
        assert b.session.live.phase is Phase.recovering
        with trio.fail_after(5):
            match how:
                case "stop":
                    await b.handle.stop(b.handle.run_id)
                    await b.handle.when_idle()
                case "cancel":
                    b.handle.cancel()
                    await b.handle.when_idle()
                case "dispose":
                    await b.handle.dispose()
                case _:
                    await b.handle.shutdown()
        assert len(b.driver.runtimes) == 1


@pytest.mark.bug("B11")
async def test_runtime_that_keeps_dying_is_given_up_with_its_message_kept(
    autojump_clock: MockClock,
) -> None:
    waits = iter([1.0, 2.0, None])
    async with bench(pace=lambda _: next(waits)) as b:
        one = b.deliver("a1")
        for _ in range(3):
            await trio.sleep(5)
            b.handle.followup("go on")
            await wait_all_tasks_blocked()
            b.driver.runtime.exit(1)
        await trio.sleep(100)
        assert b.session.live.phase is Phase.offline
        assert b.session.ledger.problem is not None
        assert len(b.driver.runtimes) == 3
        assert b.state(one) in (DeliveryState.queued, DeliveryState.unknown)


async def test_death_during_a_turn_ends_it_and_a_new_process_serves_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.deliver("a2", target="tgt_other")
        await wait_all_tasks_blocked()
        b.driver.runtime.exit(9, stderr_tail="out of memory")
        await wait_all_tasks_blocked()
        end = b.journal.of(TurnEnd)[0]
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.error
        assert "out of memory" in end.detail
        assert len(b.driver.runtimes) == 2


@pytest.mark.bug("B25")
async def test_result_and_exit_in_one_batch_is_a_completed_turn(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.finish(TurnStatus.completed)
        b.driver.runtime.exit(1)
        await b.handle.when_idle()
        await wait_all_tasks_blocked()
        (end,) = b.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.completed
        assert end.cause is not CutCause.silent
        assert b.session.live.phase is Phase.offline


@pytest.mark.bug("B25")
async def test_exit_without_a_result_is_an_error_whatever_the_code(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        b.driver.runtime.exit(0)
        await b.handle.when_idle()
        (end,) = b.journal.of(TurnEnd)
        assert isinstance(end, TurnEnd)
        assert end.outcome is TurnOutcome.error


async def test_session_that_is_cancelled_during_a_start_leaves_no_process(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        b.driver.gates.hold("open")
        b.deliver("a1")
        await wait_all_tasks_blocked()
        assert b.driver.resumed == [None]
    # The bench was left: everything of it was cancelled.
    assert b.driver.closed == 1
    assert b.actor.ended


async def test_exit_in_the_same_moment_as_the_handshake_is_a_failed_start(
    autojump_clock: MockClock,
) -> None:
    class Dying(FakeDriver):
        @asynccontextmanager
        async def open(
            self, spec: SessionSpec, resume: str | None, emit: Emit
        ) -> AsyncGenerator[FakeRuntime]:
            async with FakeDriver.open(self, spec, resume, emit) as runtime:
                runtime.exit(7, stderr_tail="no licence")
                yield runtime

    async with bench(driver=Dying()) as b:
        b.deliver("a1")
        await b.handle.when_idle()
        problem = b.session.ledger.problem
        assert problem is not None
        assert "no licence" in problem.problem
