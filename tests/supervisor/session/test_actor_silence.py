"""Silence is judged by the clock, and never while honest work is open (B31)."""

from __future__ import annotations

import pytest
import trio
from tests.kit.session_bench import Bench, bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.control import CutCause
from agentteam_protocol.journal import InterruptRequested
from agentteam_runtimes.driver import Asked, AskRef, Noticed, ToolEnded, ToolStarted
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.deadlines import Limits

MINUTES = 60.0
PATIENT = Limits(silence=30 * MINUTES)


def _cuts(b: Bench) -> list[CutCause]:
    return [e.cause for e in b.journal.events if isinstance(e, InterruptRequested)]


@pytest.mark.bug("B31")
async def test_open_tool_call_may_be_silent(autojump_clock: MockClock) -> None:
    async with bench(limits=PATIENT) as b:
        await b.running()
        turn = b.driver.runtime.turn
        b.driver.runtime.emit(ToolStarted(turn, "c1", "build"))
        await trio.sleep(400 * MINUTES)
        assert _cuts(b) == []
        b.driver.runtime.emit(ToolEnded(turn, "c1", "done"))
        await trio.sleep(29 * MINUTES)
        assert _cuts(b) == []
        await trio.sleep(2 * MINUTES)
        assert _cuts(b) == [CutCause.silent]


@pytest.mark.bug("B31")
async def test_silence_without_a_reason_is_cut_with_its_own_cause(
    autojump_clock: MockClock,
) -> None:
    async with bench(limits=PATIENT) as b:
        await b.running()
        await trio.sleep(29 * MINUTES)
        assert _cuts(b) == []
        await trio.sleep(2 * MINUTES)
        assert _cuts(b) == [CutCause.silent]
        await wait_all_tasks_blocked()
        assert b.driver.gates.named("interrupt")


@pytest.mark.bug("B31")
async def test_signs_of_life_are_no_silence(autojump_clock: MockClock) -> None:
    async with bench(limits=PATIENT) as b:
        await b.running()
        for _ in range(5):
            await trio.sleep(20 * MINUTES)
            b.driver.runtime.emit(Noticed("ping"))
        assert _cuts(b) == []


@pytest.mark.bug("B31")
async def test_person_may_take_three_hours_to_answer(
    autojump_clock: MockClock,
) -> None:
    service = ApprovalService()
    service.add(wait_for_person)
    async with bench(limits=PATIENT, consult=service.request) as b:
        await b.running()
        b.driver.runtime.emit(Asked(b.driver.runtime.turn, AskRef("1"), "shell"))
        await trio.sleep(180 * MINUTES)
        assert _cuts(b) == []
        # Stop works all along.
        await b.handle.stop(b.handle.run_id)
        assert _cuts(b) == [CutCause.stop]


@pytest.mark.bug("B31")
async def test_silence_is_not_judged_unless_somebody_wants_it(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        await trio.sleep(150 * MINUTES)
        assert _cuts(b) == []
