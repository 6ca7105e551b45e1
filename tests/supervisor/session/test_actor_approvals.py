"""An approval races the cut, and only a yes in time reaches the runtime (B07, B23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.session_bench import Bench, bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.journal import ApprovalAsked, ApprovalDecided, TurnEnd
from agentteam_runtimes.driver import Asked, AskRef, TurnStatus
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.actor import AskRefused
from agentteam_supervisor.session.events import ApprovalAnswered

if TYPE_CHECKING:
    from agentteam_protocol.ids import ApprovalId

ALLOWED = ApprovalOutcome.allowed_once


def _ask(b: Bench, name: str) -> AskRef:
    ref = AskRef(name)
    b.driver.runtime.emit(Asked(b.driver.runtime.turn, ref, "shell"))
    return ref


async def _decide(
    b: Bench, approval: ApprovalId, outcome: ApprovalOutcome
) -> ApprovalOutcome:
    answer: ApprovalOutcome = await b.actor.ask(
        lambda ref: ApprovalAnswered(approval, outcome, ref)
    )
    return answer


def _people() -> ApprovalService:
    service = ApprovalService()
    service.add(wait_for_person)
    return service


async def test_person_allows_and_the_runtime_is_told_once(
    autojump_clock: MockClock,
) -> None:
    async with bench(consult=_people().request) as b:
        await b.running()
        ask = _ask(b, "1")
        await trio.sleep(3 * 3600)
        (approval,) = b.session.live.asks
        assert await _decide(b, approval, ALLOWED) is ALLOWED
        await wait_all_tasks_blocked()
        assert b.driver.runtime.answers == [(ask, ALLOWED)]


@pytest.mark.req("R75")
async def test_nobody_to_ask_is_no(autojump_clock: MockClock) -> None:
    async with bench(consult=ApprovalService().request) as b:
        await b.running()
        ask = _ask(b, "1")
        await wait_all_tasks_blocked()
        assert b.driver.runtime.answers == [(ask, ApprovalOutcome.unavailable)]


@pytest.mark.bug("B07")
async def test_urgent_cancels_the_ask_and_a_late_yes_is_told_so(
    autojump_clock: MockClock,
) -> None:
    async with bench(consult=_people().request) as b:
        await b.running()
        first, second = _ask(b, "1"), _ask(b, "2")
        await wait_all_tasks_blocked()
        approvals = list(b.session.live.asks)
        b.deliver("a2", urgent=True)
        with pytest.raises(AskRefused, match="already_decided"):
            await _decide(b, approvals[0], ALLOWED)
        late = _ask(b, "3")
        b.driver.runtime.finish(TurnStatus.interrupted)
        await wait_all_tasks_blocked()
        cancelled = ApprovalOutcome.cancelled
        assert sorted(b.driver.runtime.answers, key=lambda a: a[0].id) == [
            (first, cancelled),
            (second, cancelled),
            (late, cancelled),
        ]
        asked = [e for e in b.journal.events if isinstance(e, ApprovalAsked)]
        decided = [e for e in b.journal.events if isinstance(e, ApprovalDecided)]
        assert [e.request.id for e in asked] == [e.id for e in decided] == approvals
        end = next(n for n, e in enumerate(b.journal.events) if isinstance(e, TurnEnd))
        assert all(b.journal.events.index(e) < end for e in decided)


@pytest.mark.inv(5)
async def test_yes_that_is_not_durable_before_the_cut_never_leaves(
    autojump_clock: MockClock,
) -> None:
    async with bench(consult=_people().request) as b:
        await b.running()
        ask = _ask(b, "1")
        await wait_all_tasks_blocked()
        (approval,) = b.session.live.asks
        b.journal.hold()
        b.actor.feed(ApprovalAnswered(approval, ALLOWED))
        await wait_all_tasks_blocked()
        assert b.driver.runtime.answers == []
        b.deliver("a2", urgent=True)
        b.journal.release()
        await wait_all_tasks_blocked()
        assert b.driver.runtime.answers == [(ask, ApprovalOutcome.cancelled)]


async def test_nobody_is_asked_before_the_ask_is_durable(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []

    async def consult(request: ApprovalRequest) -> ApprovalOutcome:
        asked.append(request.tool_name)
        return ALLOWED

    async with bench(consult=consult) as b:
        await b.running()
        b.journal.hold()
        _ask(b, "1")
        await wait_all_tasks_blocked()
        assert asked == []
        b.journal.release()
        await wait_all_tasks_blocked()
        assert asked == ["shell"]


@pytest.mark.inv("26b")
async def test_cut_before_an_ask_is_durable_asks_nobody(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []

    async def consult(request: ApprovalRequest) -> ApprovalOutcome:
        asked.append(request.tool_name)
        return ALLOWED

    async with bench(consult=consult) as b:
        await b.running()
        b.journal.hold()
        _ask(b, "1")
        b.deliver("a2", urgent=True)
        b.journal.release()
        await wait_all_tasks_blocked()
        assert asked == []


async def test_hanging_answerer_ends_with_its_turn(autojump_clock: MockClock) -> None:
    ended = trio.Event()

    async def consult(_: ApprovalRequest) -> ApprovalOutcome:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with bench(consult=consult) as b:
        await b.running()
        _ask(b, "1")
        await wait_all_tasks_blocked()
        b.handle.cancel()
        with trio.fail_after(1):
            await ended.wait()
