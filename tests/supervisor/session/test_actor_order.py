"""
What is told to a runtime in one tick is told in order.

Tasks that trio starts together run forwards or backwards, as a coin falls: each test
tosses it often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.session_bench import bench
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import Asked, AskRef, CallRef, SendCalled, TurnStatus
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.events import SendAnswered

if TYPE_CHECKING:
    from trio.testing import MockClock

    from agentteam_supervisor.session.effects import JudgeSend

TOSSES = 20


@pytest.mark.req("R21")
@pytest.mark.inv(14)
async def test_messages_that_become_durable_together_are_steered_in_order(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        names = [f"m{number}" for number in range(2, 2 + 3 * TOSSES)]
        for toss in range(TOSSES):
            b.journal.hold()
            for name in names[3 * toss : 3 * toss + 3]:
                b.deliver(name)
            await wait_all_tasks_blocked()
            b.journal.release()
            await wait_all_tasks_blocked()
        steered = [item.id for item in b.driver.runtime.steered]
    assert steered == [f"dlv_{name}" for name in names]


@pytest.mark.req("R70")
async def test_an_ask_is_answered_before_the_interrupt_leaves(
    autojump_clock: MockClock,
) -> None:
    service = ApprovalService()
    service.add(wait_for_person)
    async with bench(consult=service.request) as b:
        await b.running()
        runtime = b.driver.runtime
        for number in range(2, 2 + TOSSES):
            runtime.emit(Asked(runtime.turn, AskRef(str(number)), "shell"))
            await wait_all_tasks_blocked()
            b.driver.gates.calls.clear()
            b.deliver(f"m{number}", urgent=True)
            await wait_all_tasks_blocked()
            told = [name for name, *_ in b.driver.gates.calls]
            assert told[:2] == ["answer", "interrupt"]
            assert runtime.answers[-1][1] is ApprovalOutcome.cancelled
            runtime.finish(TurnStatus.interrupted)
            await wait_all_tasks_blocked()
            runtime.surface()
            await wait_all_tasks_blocked()


@pytest.mark.inv(11)
async def test_visible_sends_that_become_durable_together_are_judged_in_order(
    autojump_clock: MockClock,
) -> None:
    judged: list[str] = []

    async def judge(send: JudgeSend) -> SendAnswered:
        judged.append(send.text)
        return SendAnswered(send.send, "forwarded", seq=len(judged), text="sent")

    async with bench(judge=judge) as b:
        await b.running()
        turn = b.driver.runtime.turn
        said = [f"say {number}" for number in range(3 * TOSSES)]
        for toss in range(TOSSES):
            b.journal.hold()
            for text in said[3 * toss : 3 * toss + 3]:
                send = SendCalled(turn, CallRef(text), "#plans", text)
                b.driver.runtime.emit(send)
            await wait_all_tasks_blocked()
            b.journal.release()
            await wait_all_tasks_blocked()
    assert judged == said
