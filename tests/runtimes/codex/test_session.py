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
    open_fake_app_server,
    recorded,
    said,
    started,
)
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.errors import RuntimeExited
from agentteam_runtimes.driver import (
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


async def test_start_that_was_cancelled_before_it_was_written_leaves_nothing_behind(
    fake: FakeAppServer,
) -> None:
    with trio.CancelScope() as cut:
        cut.cancel()
        await fake.session.start_turn(FIRST)
    assert fake.requests("turn/start") == []
    turn = await fake.running_turn("T1", "k2")
    assert fake.seen.of(TurnStarted) == [TurnStarted(turn, "batch-k2")]


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
    ended = await fake.seen.first(TurnEnded)
    assert ended.status is TurnStatus.completed


async def test_cut_turn_that_called_no_tool_ends_without_asking_for_commands(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(completed("T1", "interrupted"))
    assert [ended.turn.id for ended in fake.seen.of(TurnEnded)] == ["T1"]
    await wait_all_tasks_blocked()
    assert not fake.requests(TERMINALS)


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


async def test_interrupt_of_an_empty_thread_finds_no_turn(fake: FakeAppServer) -> None:
    async with trio.open_nursery() as nursery:
        unknown = "thread not loaded: thread-p"
        nursery.start_soon(fake.refuse, "thread/read", unknown)
        with pytest.raises(InterruptRefused) as refused:
            await fake.session.interrupt(None)
    assert refused.value.named is None


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


@pytest.mark.bug("B19", "B24")
async def test_sub_agent_that_outlives_its_turn_is_told_of_and_cut_with_a_later_one(
    fake: FakeAppServer,
) -> None:
    await fake.running_turn()
    fake.send(started("T2", "thread-k", root="T1"), completed("T1"))
    await fake.seen.first(TurnEnded)
    (told,) = fake.seen.of(Noticed, lambda e: e.told)
    assert told.detail == "thread-k"
    turn = await fake.running_turn("T3", "k3")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.session.interrupt, turn)
        await fake.answer("turn/interrupt", {})
    fake.send(completed("T3", "interrupted"))
    await fake.answer("turn/interrupt", {}, 2)
    child = fake.requests("turn/interrupt")[1]["params"]
    assert child == {"threadId": "thread-k", "turnId": "T2"}
    fake.send(completed("T2", "interrupted", "thread-k"))
    await fake.answer_clean_up(1)
    await fake.answer_clean_up(2)
    await fake.seen.first(TurnEnded, lambda e: e.turn == turn)


async def test_nothing_is_owed_after_the_exit(fake: FakeAppServer) -> None:
    await fake.running_turn()
    fake.send(command("T1", "mine"), completed("T1", "interrupted"))
    await fake.asked(TERMINALS)
    fake.exit(1)
    await wait_all_tasks_blocked()
    assert not fake.seen.of(TurnEnded)


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
