"""The session against an app-server played by the test: races, silence, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.fake_app_server import (
    THREAD,
    FakeAppServer,
    an_item,
    command,
    completed,
    note,
    open_fake_app_server,
    recorded,
    said,
    started,
)
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.errors import RuntimeExited
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Batch,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    SteerRefused,
    SubmitRefused,
    Surfaced,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

FIRST = Batch("b1", (an_item("k1"),))
TERMINALS = "thread/backgroundTerminals/list"


@pytest.fixture
async def fake() -> AsyncIterator[FakeAppServer]:
    async with open_fake_app_server() as fake:
        yield fake


# Starting.


@pytest.mark.bug("B16")
async def test_start_that_went_into_an_old_turn_is_open(fake: FakeAppServer) -> None:
    await fake.running_turn("T1", "k1")
    fake.send(completed("T1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.answer, "turn/start", {"turn": {"id": "T1"}}, 2)
        with pytest.raises(SubmitRefused) as refused:
            await fake.session.start_turn(Batch("b2", (an_item("k2"),)))
    assert refused.value.written


async def test_refused_start_may_be_sent_again(fake: FakeAppServer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.refuse, "turn/start", "thread not found: x")
        with pytest.raises(SubmitRefused) as refused:
            await fake.session.start_turn(FIRST)
    assert not refused.value.written
    assert "thread not found" in str(refused.value)
    await fake.running_turn("T1", "k1")


async def test_start_that_nobody_answers_is_open(
    fake: FakeAppServer, autojump_clock: MockClock
) -> None:
    with pytest.raises(SubmitRefused) as refused:
        await fake.session.start_turn(FIRST)
    assert refused.value.written


async def test_exit_fails_whoever_waits(fake: FakeAppServer) -> None:
    async with trio.open_nursery() as nursery:

        async def leave() -> None:
            await fake.asked("turn/start")
            fake.exit(-9)

        nursery.start_soon(leave)
        with pytest.raises(RuntimeExited) as exited:
            await fake.session.start_turn(FIRST)
    assert exited.value.returncode == -9


# Steering.


@pytest.mark.bug("B16")
@pytest.mark.parametrize("text", ["no active turn to steer", "not steerable", "??"])
async def test_refused_steer_is_not_written(fake: FakeAppServer, text: str) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.refuse, "turn/steer", text)
        with pytest.raises(SteerRefused) as refused:
            await fake.session.steer(turn, an_item("k2"))
    assert not refused.value.written
    assert len(fake.requests("turn/steer")) == 1


@pytest.mark.bug("B16")
async def test_steer_refused_twice_is_not_tried_a_third_time(
    fake: FakeAppServer,
) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:
        for number, named in ((1, "T2"), (2, "T3")):
            message = f"expected active turn id `T1` but found `{named}`"
            nursery.start_soon(fake.refuse, "turn/steer", message, number)
        with pytest.raises(SteerRefused):
            await fake.session.steer(turn, an_item("k2"))
    expected = [r["params"]["expectedTurnId"] for r in fake.requests("turn/steer")]
    assert expected == ["T1", "T2"]


@pytest.mark.bug("B16")
async def test_steer_that_nobody_answers_is_open(
    fake: FakeAppServer, autojump_clock: MockClock
) -> None:
    turn = await fake.running_turn()
    with pytest.raises(SteerRefused) as refused:
        await fake.session.steer(turn, an_item("k2"))
    assert refused.value.written


@pytest.mark.bug("B16")
async def test_steer_accepted_after_the_turn_ended_is_open(fake: FakeAppServer) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:

        async def end_first() -> None:
            await fake.asked("turn/steer")
            fake.send(completed("T1"))
            await fake.answer("turn/steer", {"turnId": "T1"})

        nursery.start_soon(end_first)
        with pytest.raises(SteerRefused) as refused:
            await fake.session.steer(turn, an_item("k2"))
    assert refused.value.written


async def test_steer_that_surfaced_before_its_answer_is_fine(
    fake: FakeAppServer,
) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:

        async def surface_first() -> None:
            await fake.asked("turn/steer")
            fake.send(recorded("T1", "k2"), completed("T1"))
            await fake.answer("turn/steer", {"turnId": "T1"})

        nursery.start_soon(surface_first)
        await fake.session.steer(turn, an_item("k2"))
    assert fake.seen.of(TurnEnded)[0].items == {}


# Cutting.


@pytest.mark.bug("B35")
async def test_interrupt_waits_for_the_start_of_its_turn(fake: FakeAppServer) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.start_turn, FIRST)
        await fake.answer("turn/start", {"turn": {"id": "T1"}})
        nursery.start_soon(fake.session.interrupt, TurnRef("T1"))
        await wait_all_tasks_blocked()
        assert not fake.requests("turn/interrupt")
        fake.send(started("T1"))
        await fake.answer("turn/interrupt", {})
    assert fake.requests("turn/interrupt")[0]["params"] == {
        "threadId": THREAD,
        "turnId": "T1",
    }


@pytest.mark.bug("B30")
async def test_end_of_the_turn_answers_the_interrupt_too(fake: FakeAppServer) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.interrupt, turn)
        await fake.asked("turn/interrupt")
        fake.send(completed("T1"))
    await fake.answer_clean_up()
    ended = await fake.seen.first(TurnEnded)
    assert ended.status is TurnStatus.completed


@pytest.mark.bug("B30")
async def test_interrupt_refused_by_a_turn_that_just_ended_is_fine(
    fake: FakeAppServer,
    autojump_clock: MockClock,
) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.interrupt, turn)
        await fake.refuse("turn/interrupt", "no active turn to interrupt")
        await trio.sleep(0.5)
        fake.send(completed("T1"))


async def test_interrupt_refused_by_a_turn_that_runs_on_is_said(
    fake: FakeAppServer,
    autojump_clock: MockClock,
) -> None:
    turn = await fake.running_turn()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.refuse, "turn/interrupt", "no active turn to interrupt")
        with pytest.raises(InterruptRefused) as refused:
            await fake.session.interrupt(turn)
    assert refused.value.named is None


@pytest.mark.inv(20)
async def test_refused_interrupt_names_the_turn_and_can_be_tried_again(
    fake: FakeAppServer,
) -> None:
    turn = await fake.running_turn()
    message = "expected active turn id T1 but found T2"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.refuse, "turn/interrupt", message)
        with pytest.raises(InterruptRefused) as refused:
            await fake.session.interrupt(turn)
    assert refused.value.named == TurnRef("T2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.answer, "turn/interrupt", {}, 2)
        await fake.session.interrupt(turn)


async def test_end_of_a_cut_turn_waits_for_its_commands_and_only_for_them(
    fake: FakeAppServer,
) -> None:
    turn = await fake.running_turn()
    fake.send(command("T1", "mine"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.interrupt, turn)
        await fake.answer("turn/interrupt", {})
    fake.send(completed("T1", "interrupted"))
    terminals = [
        {"itemId": "mine", "processId": "11"},
        {"itemId": "of an earlier turn", "processId": "12"},
    ]
    await fake.answer(TERMINALS, {"data": terminals})
    await fake.answer("thread/backgroundTerminals/terminate", {"terminated": True})
    await wait_all_tasks_blocked()
    assert not fake.seen.of(TurnEnded)
    fake.send(command("T1", "mine", status="failed", exitCode=-1))
    await fake.seen.first(TurnEnded)
    ended = fake.requests("thread/backgroundTerminals/terminate")
    assert [r["params"]["processId"] for r in ended] == ["11"]


@pytest.mark.parametrize("how", ["silent", "refused"])
async def test_turn_ends_even_if_its_commands_cannot_be_ended(
    fake: FakeAppServer, autojump_clock: MockClock, how: str
) -> None:
    await fake.running_turn()
    fake.send(command("T1", "mine"), completed("T1", "interrupted"))
    if how == "refused":
        await fake.refuse(TERMINALS, "requires experimentalApi capability")
    ended = await fake.seen.first(TurnEnded)
    assert ended.status is TurnStatus.interrupted
    assert fake.seen.of(Noticed)


@pytest.mark.bug("B19", "B24")
async def test_sub_agents_of_a_cut_turn_are_cut_before_it_counts_as_ended(
    fake: FakeAppServer,
) -> None:
    turn = await fake.running_turn()
    fake.send(started("T2", "thread-k", root="T1"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.interrupt, turn)
        await fake.answer("turn/interrupt", {})
    # The interrupt goes to our thread and turn, whatever the child started last.
    assert fake.requests("turn/interrupt")[0]["params"]["turnId"] == "T1"
    fake.send(completed("T1", "interrupted"))
    await fake.answer("turn/interrupt", {}, 2)
    child = fake.requests("turn/interrupt")[1]["params"]
    assert child == {"threadId": "thread-k", "turnId": "T2"}
    await wait_all_tasks_blocked()
    assert not fake.seen.of(TurnEnded)
    fake.send(completed("T2", "interrupted", "thread-k"))
    await fake.answer_clean_up(1)
    await fake.answer_clean_up(2)
    await fake.seen.first(TurnEnded)


async def test_nothing_is_owed_after_the_exit(fake: FakeAppServer) -> None:
    await fake.running_turn()
    fake.send(completed("T1", "interrupted"))
    await fake.asked(TERMINALS)
    fake.exit(1)
    await wait_all_tasks_blocked()
    assert not fake.seen.of(TurnEnded)


# Asks and other requests.


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


# Noise and history.


@pytest.mark.bug("B15")
async def test_noise_is_counted_and_the_protocol_goes_on(fake: FakeAppServer) -> None:
    await fake.running_turn()
    junk = [b"Update available! {hello}", b"", b"42", b'"x"', b"[]", b"{}", b"null"]
    junk += [b'\xef\xbb\xbf{"method":7}', b'{"id":99,"result":{}}', b"\xff\xfe", b"{"]
    twice = b'{"method":"x","method":"never/heard/of","params":{}}\r'
    fake.send(*junk, twice, *[b"warning: noise"] * 10_000)
    fake.send(said("T1", "good end"), completed("T1"))
    (ended,) = fake.seen.of(TurnEnded)
    assert ended.text == "good end"
    notices = fake.seen.of(Noticed)
    assert len(notices) < 50
    assert "(8192)" in notices[-1].what
    assert [e.turn.id for e in fake.seen.of(TurnStarted)] == ["T1"]


async def test_history_reads_on_until_all_keys_are_found(fake: FakeAppServer) -> None:
    def page(clients: list[str], cursor: str | None) -> dict[str, object]:
        items = [{"type": "userMessage", "clientId": c} for c in clients]
        return {"data": [{"id": "T", "items": items}], "nextCursor": cursor}

    keys = {k: an_item(k).id for k in ("k1", "k2", "k3")}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.answer, "thread/turns/list", page(["k9"], "c1"))
        last = page(["k1+k2"], None)
        nursery.start_soon(fake.answer, "thread/turns/list", last, 2)
        history = await fake.session.history(keys)
    assert history == {
        keys["k1"]: ItemOutcome.surfaced,
        keys["k2"]: ItemOutcome.surfaced,
        keys["k3"]: ItemOutcome.dropped,
    }
    assert fake.requests("thread/turns/list")[1]["params"]["cursor"] == "c1"


async def test_history_decides_nothing_that_may_still_come(fake: FakeAppServer) -> None:
    await fake.running_turn()
    async with trio.open_nursery() as nursery:
        answer: dict[str, object] = {"data": [], "nextCursor": None}
        nursery.start_soon(fake.answer, "thread/turns/list", answer)
        history = await fake.session.history({"k2": an_item("k2").id})
    assert history == {}
    assert [e.key for e in fake.seen.of(Surfaced)] == ["k1"]
