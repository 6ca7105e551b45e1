"""The requests of an app-server: asks that people decide, all else refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.fake_app_server import (
    THREAD,
    FakeAppServer,
    command,
    completed,
    note,
    open_fake_app_server,
    started,
)
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Noticed,
    TurnEnded,
    TurnRef,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def fake() -> AsyncIterator[FakeAppServer]:
    async with open_fake_app_server() as fake:
        yield fake


@pytest.mark.bug("B26")
@pytest.mark.parametrize("id", [7, "abc", 0, "7"], ids=repr)
async def test_unknown_request_gets_one_error_under_its_own_id(
    fake: FakeAppServer, id: int | str
) -> None:
    await fake.running_turn()
    fake.send({"id": id, "method": "never/heard/of", "params": {"turnId": "T1"}})
    await wait_all_tasks_blocked()
    (reply,) = fake.replies
    assert reply["id"] == id
    assert type(reply["id"]) is type(id)
    assert reply["error"]["code"] == -32601


@pytest.mark.bug("B26", "B23")
@pytest.mark.req("R92")
@pytest.mark.parametrize(
    ("method", "result"),
    [
        ("item/commandExecution/requestApproval", {"decision": "decline"}),
        ("item/fileChange/requestApproval", {"decision": "decline"}),
        ("item/permissions/requestApproval", {"permissions": {}, "scope": "turn"}),
        ("item/tool/requestUserInput", {"answers": {}}),
        (
            "mcpServer/elicitation/request",
            {"action": "decline", "content": None, "_meta": None},
        ),
    ],
)
@pytest.mark.parametrize("params", [{}, [], None, {"threadId": THREAD, "itemId": 3}])
async def test_request_that_nobody_can_decide_fails_closed(
    fake: FakeAppServer, method: str, result: object, params: object
) -> None:
    await fake.running_turn()
    fake.send({"id": 0, "method": method, "params": params})
    await wait_all_tasks_blocked()
    assert fake.replies == [{"id": 0, "result": result}]
    assert not fake.seen.of(Asked)


@pytest.mark.bug("B26")
async def test_call_of_a_tool_that_was_not_offered_fails(fake: FakeAppServer) -> None:
    await fake.running_turn()
    params = {"threadId": THREAD, "turnId": "T1", "callId": "c", "tool": "x"}
    fake.send({"id": 4, "method": "item/tool/call", "params": params})
    await wait_all_tasks_blocked()
    (reply,) = fake.replies
    assert reply["result"]["success"] is False


@pytest.mark.bug("B26")
async def test_every_one_of_many_refused_requests_is_answered_and_told(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    for id in range(200):
        fake.send({"id": id, "method": "never/heard/of", "params": {}})
    await wait_all_tasks_blocked()
    assert sorted(r["id"] for r in fake.replies) == list(range(200))
    assert len(fake.seen.of(Noticed)) == 200


def ask(turn: str = "T1", thread: str = THREAD, id: int = 0) -> dict[str, object]:
    where = {"threadId": thread, "turnId": turn, "itemId": "call_1"}
    method = "item/commandExecution/requestApproval"
    return {"id": id, "method": method, "params": where | {"command": "rm x"}}


@pytest.mark.bug("B07")
async def test_ask_of_a_turn_that_ended_is_closed_and_never_answered(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(ask(), completed("T1", "failed"))
    asked, closed = fake.seen.of(Asked)[0], fake.seen.of(AskClosed)[0]
    assert asked.ask == closed.ask
    await fake.session.answer(asked.ask, ApprovalOutcome.allowed_once)
    assert fake.replies == []
    order = [type(e) for e in fake.seen.all if isinstance(e, AskClosed | TurnEnded)]
    assert order == [AskClosed, TurnEnded]


async def test_ask_that_codex_withdrew_is_closed(fake: FakeAppServer) -> None:
    await fake.running_turn()
    fake.send(ask(), note("serverRequest/resolved", requestId=0))
    asked, closed = fake.seen.of(Asked)[0], fake.seen.of(AskClosed)[0]
    assert asked.ask == closed.ask
    await fake.session.answer(asked.ask, ApprovalOutcome.allowed_once)
    assert fake.replies == []


async def test_ask_is_answered_once_and_shows_what_is_asked(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(command("T1", "call_1"), ask())
    (asked,) = fake.seen.of(Asked)
    await fake.session.answer(asked.ask, ApprovalOutcome.rejected)
    await fake.session.answer(asked.ask, ApprovalOutcome.allowed_once)
    assert fake.replies == [{"id": 0, "result": {"decision": "decline"}}]
    assert asked.call_id == "call_1"
    assert '"command":"make"' in asked.input


@pytest.mark.bug("B19")
async def test_ask_of_a_sub_agent_belongs_to_the_turn_at_its_root(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(started("T2", "thread-k", root="T1"), completed("T1"))
    fake.send(ask("T2", "thread-k"))
    (asked,) = fake.seen.of(Asked)
    assert asked.turn == TurnRef("T1")


async def test_names_of_asks_are_not_used_again(fake: FakeAppServer) -> None:
    await fake.running_turn()
    fake.send(ask(id=0), ask(id=1))
    first, second = fake.seen.of(Asked)
    assert first.ask != second.ask
    async with open_fake_app_server() as other:
        await other.running_turn()
        other.send(ask(id=0))
        assert other.seen.of(Asked)[0].ask not in (first.ask, second.ask)
