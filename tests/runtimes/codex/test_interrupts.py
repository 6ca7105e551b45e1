"""The interrupt on the real app-server: what is cut, what is over, what stays alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
import trio
import trio.testing

from agentteam_runtimes.codex.session import CodexSession
from agentteam_runtimes.codex.turns import Turns
from agentteam_runtimes.driver import (
    Batch,
    InterruptRefused,
    ItemOutcome,
    Output,
    Runtime,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.codex_desk import CodexDesk

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


@pytest.mark.req("R59", "R60", "R135")
async def test_interrupt_cuts_streaming_text_before_the_next_turn_starts(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"stream": 500, "ms": 20})))
    await desk.seen.first(Output)
    await runtime.interrupt(turn)
    ended = await desk.ended(turn)
    assert desk.model.requests[0].end != "completed"
    urgent = await desk.begin(runtime, desk.item("the urgent one"))
    answered = await desk.ended(urgent)

    assert ended.status is TurnStatus.interrupted
    assert answered.text == "Heard: the urgent one"
    turns = [c for c in desk.home.calls if c.startswith("turn/")]
    assert turns == ["turn/start", "turn/interrupt", "turn/start"]
    interrupt = next(m for m in desk.home.wire if m.get("method") == "turn/interrupt")
    assert interrupt["params"] == {"threadId": desk.session, "turnId": turn.id}
    # Nothing of the old turn comes after its end, nothing of the new one before.
    order = [getattr(e, "turn", None) for e in desk.seen.all]
    assert max(i for i, t in enumerate(order) if t == turn) < order.index(urgent)


async def test_side_effect_of_a_cut_command_does_not_happen_later(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    script = do({"run": "echo begun; sleep 2; touch side_effect"})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(ToolStarted)
    await trio.sleep(0.3)
    await runtime.interrupt(turn)
    await desk.ended(turn)
    assert not _commands(desk)
    urgent = await desk.begin(runtime, desk.item("the urgent one"))
    await desk.ended(urgent)
    await trio.sleep(2.2)

    assert not (desk.home.workdir / "side_effect").exists()
    # The result of the cut call belongs to the turn that made it, and comes in it.
    (result,) = desk.seen.of(ToolEnded)
    assert result.turn == turn
    assert result.error
    assert desk.seen.all.index(result) < desk.seen.all.index(await desk.ended(turn))


async def test_command_of_an_earlier_turn_outlives_the_interrupt(
    desk: CodexDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            server = do({"run": "sleep 3599", "yield_ms": 250}, {"say": "it runs"})
            turn = await desk.begin(runtime, desk.item(server))
            await desk.ended(turn)
            cut = await desk.begin(runtime, desk.item(do({"run": "sleep 3598"})))
            await desk.seen.first(ToolStarted, lambda e: e.turn == cut)
            await _until_running(desk, "sleep 3598")
            await runtime.interrupt(cut)
            await desk.ended(cut)
            left = _commands(desk)

    assert "sleep 3599" in " ".join(left)
    assert "sleep 3598" not in " ".join(left)
    assert not _commands(desk), "nothing is left after the session"


async def test_command_that_runs_on_in_the_background_is_cut_with_its_turn(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    script = do({"run": "sleep 3597", "yield_ms": 250}, {"stream": 500, "ms": 20})
    turn = await desk.begin(runtime, desk.item(script))
    await desk.seen.first(Output)
    assert _commands(desk)
    await runtime.interrupt(turn)
    await desk.ended(turn)
    assert not _commands(desk)


@pytest.mark.bug("B35")
async def test_interrupt_in_the_first_moments_of_a_turn_still_cuts_it(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    for milliseconds in (0, 0, 1, 2, 3, 5, 8, 12, 16, 20):
        item = desk.item(do({"stream": 500, "ms": 20}))
        turn = await runtime.start_turn(Batch(item.key, (item,)))
        await trio.sleep(milliseconds / 1000)
        await runtime.interrupt(turn)
        ended = await desk.ended(turn)
        surfaced = turn in [e.turn for e in desk.seen.of(Surfaced)]
        history = await runtime.history({item.key: item.id})

        assert ended.status is TurnStatus.interrupted
        expected = {} if surfaced else {item.id: ItemOutcome.dropped}
        assert ended.items == expected
        in_history = history[item.id] is ItemOutcome.surfaced
        assert in_history is surfaced


@pytest.mark.bug("B35")
async def test_interrupt_without_a_name_waits_until_the_turn_has_one(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    item = desk.item(do({"stream": 500, "ms": 20}))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.start_turn, Batch("b", (item,)))
        await trio.testing.wait_all_tasks_blocked()
        assert not desk.seen.of(TurnStarted)
        await runtime.interrupt(None)
    started = await desk.seen.first(TurnStarted)
    ended = await desk.ended(started.turn)

    assert ended.status is TurnStatus.interrupted


@pytest.mark.req("R61")
async def test_unknown_active_turn_is_read_from_codex_before_the_interrupt(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"stream": 500, "ms": 20})))
    await desk.seen.first(Output)
    _forget_turns(runtime)
    await runtime.interrupt(None)
    ended = await desk.ended(turn)

    assert ended.status is TurnStatus.interrupted
    calls = desk.home.calls
    assert calls.index("thread/read") < calls.index("turn/interrupt")
    read = next(m for m in desk.home.wire if m.get("method") == "thread/read")
    assert read["params"]["includeTurns"] is True


async def test_interrupt_of_another_turn_names_the_active_one(
    desk: CodexDesk, runtime: Runtime
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"stream": 500, "ms": 20})))
    await desk.seen.first(Output)
    stale = TurnRef("00000000-0000-7000-8000-000000000000")
    with pytest.raises(InterruptRefused) as refused:
        await runtime.interrupt(stale)
    assert refused.value.named == turn
    assert not desk.seen.of(TurnEnded)
    await runtime.interrupt(turn)
    await desk.ended(turn)


@pytest.mark.bug("B30")
async def test_interrupt_of_an_ended_turn_is_no_error_and_asks_nothing(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"say": "short"})))
    await desk.ended(turn)
    await runtime.interrupt(turn)

    assert "turn/interrupt" not in desk.home.calls


@pytest.mark.bug("B30")
@pytest.mark.inv(20)
async def test_two_interrupts_of_one_turn_are_one_request(
    desk: CodexDesk, runtime: Runtime
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"stream": 500, "ms": 20})))
    await desk.seen.first(Output)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.interrupt, turn)
        nursery.start_soon(runtime.interrupt, turn)
    await desk.ended(turn)

    assert desk.home.calls.count("turn/interrupt") == 1
    assert len(desk.seen.of(TurnEnded)) == 1


@pytest.mark.bug("B22")
async def test_accepted_steer_is_reported_dropped_by_the_interrupt(
    desk: CodexDesk,
    runtime: Runtime,
) -> None:
    turn = await desk.begin(runtime, desk.item(do({"run": "sleep 20"})))
    await desk.seen.first(ToolStarted)
    steered = desk.item("please also")
    await runtime.steer(turn, steered)
    await runtime.interrupt(turn)
    ended = await desk.ended(turn)
    # As the session does: back in its lane, and sent again.
    again = await desk.begin(runtime, desk.item(steered.text))
    await desk.ended(again)

    assert ended.items == {steered.id: ItemOutcome.dropped}
    assert len(desk.model.told("please also")) == 1


@pytest.mark.bug("B01")
@pytest.mark.parametrize("shell", ["sleep 3596", "setsid sleep 3596 & sleep 3595"])
async def test_nothing_is_alive_after_the_session(desk: CodexDesk, shell: str) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            await desk.begin(runtime, desk.item(do({"run": shell})))
            await _until_running(desk, "sleep 359")
        assert not _commands(desk)


def _commands(desk: CodexDesk) -> list[str]:
    """Name what runs in the working directory of the desk, its app-server aside."""
    found: list[str] = []
    for process in psutil.process_iter():
        try:
            here = process.cwd() == str(desk.home.workdir)
            line = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
        if here and "app-server" not in line and "tee -a" not in line:
            found.append(line)
    return found


async def _until_running(desk: CodexDesk, command: str) -> None:
    while not any(line.startswith(command) for line in _commands(desk)):  # noqa: ASYNC110 - no event tells it
        await trio.sleep(0.02)


def _forget_turns(runtime: Runtime) -> None:
    """Make the driver one that took over a thread whose turn it never saw start."""
    assert isinstance(runtime, CodexSession)
    vars(runtime.turns).update(vars(Turns(runtime.turns.thread)))
