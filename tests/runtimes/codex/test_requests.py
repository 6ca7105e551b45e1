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
    ReadCalled,
    SendCalled,
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


@pytest.mark.bug("B26")
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
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("another", {"target": "@a", "text": "x"}),
        ("send_message", {"target": "@a"}),
        ("send_message", {"text": "x"}),
        ("read_history", []),
        ("read_history", {"target": 7}),
    ],
)
async def test_call_that_is_none_of_ours_fails_at_once(
    fake: FakeAppServer, tool: str, arguments: object
) -> None:
    await fake.running_turn()
    fake.send(tool_call(tool, arguments))
    await wait_all_tasks_blocked()
    (reply,) = fake.replies
    assert reply["result"]["success"] is False


@pytest.mark.req("R36")
async def test_call_of_our_tool_bears_its_turn_and_gets_one_result(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(tool_call("send_message", {"target": "@a", "text": "hello"}))
    fake.send(tool_call("read_history", {"target": "#n", "after": 3}, id=5))
    (sent,), (read,) = fake.seen.of(SendCalled), fake.seen.of(ReadCalled)
    assert (sent.turn, sent.target, sent.text) == (TurnRef("T1"), "@a", "hello")
    assert (read.turn, read.target, read.after) == (TurnRef("T1"), "#n", 3)
    await fake.session.tool_result(sent.call, "Held: read first", error=True)
    await fake.session.tool_result(sent.call, "again", error=False)
    await fake.session.tool_result(read.call, "3 from alice", error=False)
    first, second = fake.replies
    said = {"type": "inputText", "text": "Held: read first"}
    assert first == {"id": 4, "result": {"contentItems": [said], "success": False}}
    assert (second["id"], second["result"]["success"]) == (5, True)


async def test_call_of_a_turn_that_ended_is_not_answered_into_the_next(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(tool_call("send_message", {"target": "@a", "text": "hello"}))
    fake.send(completed("T1", "interrupted"))
    (sent,) = fake.seen.of(SendCalled)
    await fake.session.tool_result(sent.call, "too late", error=False)
    assert fake.replies == []


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


def tool_call(tool: str, arguments: object, id: int = 4) -> dict[str, object]:
    where = {"threadId": THREAD, "turnId": "T1", "callId": "c", "namespace": None}
    params = where | {"tool": tool, "arguments": arguments}
    return {"id": id, "method": "item/tool/call", "params": params}


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
