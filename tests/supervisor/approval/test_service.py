"""The answerers are a waterfall, and none of their faults is a yes (B23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.ids import AgentId, ApprovalId, RunId
from agentteam_supervisor.approval.service import (
    Answerer,
    ApprovalService,
    Following,
    wait_for_person,
)

if TYPE_CHECKING:
    from trio.testing import MockClock

REQUEST = ApprovalRequest(ApprovalId("apr_1"), RunId("run_1"), "shell")
ALLOWED, REJECTED = ApprovalOutcome.allowed_once, ApprovalOutcome.rejected
UNAVAILABLE = ApprovalOutcome.unavailable
ROGUE: list[object] = ["yes", True, None, "ALLOW", {}]


def _says(outcome: object, calls: list[str] | None = None, name: str = "") -> Answerer:
    async def answer(_: ApprovalRequest, __: Following) -> object:
        if calls is not None:
            calls.append(name)
        return outcome

    return answer


def _hands_on(calls: list[str], name: str) -> Answerer:
    async def answer(_: ApprovalRequest, following: Following) -> object:
        calls.append(name)
        return await following()

    return answer


@pytest.mark.req("R75")
async def test_nobody_composed_is_unavailable() -> None:
    assert await ApprovalService().request(REQUEST) is UNAVAILABLE


@pytest.mark.req("R83")
async def test_answerer_that_does_not_hand_on_ends_the_waterfall() -> None:
    calls: list[str] = []
    service = ApprovalService()
    service.add(_hands_on(calls, "first"))
    service.add(_says(REJECTED, calls, "second"))
    service.add(_says(ALLOWED, calls, "third"))
    assert await service.request(REQUEST) is REJECTED
    assert calls == ["first", "second"]


async def test_handing_on_past_the_last_is_unavailable() -> None:
    service = ApprovalService()
    service.add(_hands_on([], "only"))
    assert await service.request(REQUEST) is UNAVAILABLE


@pytest.mark.req("R76")
@pytest.mark.bug("B23")
@pytest.mark.inv(5)
async def test_never_is_decided_before_a_prepended_answerer() -> None:
    calls: list[str] = []
    service = ApprovalService()
    service.add(_says(ALLOWED, calls, "late"), prepend=True)
    never = ApprovalPolicy.never
    assert await service.request(REQUEST, policy=never) is REJECTED
    cut = await service.request(REQUEST, policy=never, aborted=True)
    assert cut is ApprovalOutcome.cancelled
    assert calls == []


async def test_prepended_answerer_is_asked_first() -> None:
    calls: list[str] = []
    service = ApprovalService()
    service.add(_says(ALLOWED, calls, "old"))
    service.add(_hands_on(calls, "new"), prepend=True)
    assert await service.request(REQUEST) is ALLOWED
    assert calls == ["new", "old"]


def _raise(_: ApprovalRequest, __: Following) -> object:
    raise LookupError("sync")


async def _raise_later(_: ApprovalRequest, __: Following) -> object:
    await trio.lowlevel.checkpoint()
    raise LookupError("async")


@pytest.mark.req("R82", "R92")
@pytest.mark.bug("B23")
@pytest.mark.parametrize(
    "answerer",
    [_raise, _raise_later, *map(_says, ROGUE)],
    ids=["raises", "raises later", *map(repr, ROGUE)],
)
async def test_broken_or_rogue_answerer_is_unavailable(answerer: Answerer) -> None:
    service = ApprovalService()
    service.add(answerer)
    service.add(_says(ALLOWED))
    assert await service.request(REQUEST) is UNAVAILABLE


@pytest.mark.bug("B23")
async def test_hanging_answerer_is_unavailable_when_the_time_is_up(
    autojump_clock: MockClock,
) -> None:
    service = ApprovalService(timeout=5)
    service.add(wait_for_person)
    with trio.fail_after(6):
        assert await service.request(REQUEST) is UNAVAILABLE


async def test_answerer_of_an_agent_is_asked_for_it_and_its_descendants() -> None:
    root, child, other = AgentId("agt_root"), AgentId("agt_child"), AgentId("agt_other")
    service = ApprovalService()
    service.add(_says(ALLOWED), scope=root)
    assert await service.request(REQUEST, [root]) is ALLOWED
    assert await service.request(REQUEST, [child, root]) is ALLOWED
    assert await service.request(REQUEST, [other]) is UNAVAILABLE


async def test_removed_answerer_is_not_asked() -> None:
    service = ApprovalService()
    remove = service.add(_says(ALLOWED))
    remove()
    remove()
    assert await service.request(REQUEST) is UNAVAILABLE


@pytest.mark.req("R79")
async def test_second_ask_is_asked_again() -> None:
    calls: list[str] = []
    service = ApprovalService()
    service.add(_says(ALLOWED, calls, "person"))
    await service.request(REQUEST)
    await service.request(REQUEST)
    assert calls == ["person", "person"]
