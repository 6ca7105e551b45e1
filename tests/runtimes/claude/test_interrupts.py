"""Cutting a turn of the real Claude: in the middle, at its edges, with input waiting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.trees import eventually, exists

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Exited,
    InterruptRefused,
    ItemOutcome,
    Output,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.claude_desk import ClaudeDesk

pytestmark = [pytest.mark.slow]

STREAM = do({"stream": 900, "ms": 20})


@pytest.mark.req("R64", "R69", "R42")
@pytest.mark.inv(6)
async def test_streaming_text_is_cut_and_what_waited_is_dropped(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item(STREAM))
            await desk.seen.first(Output)
            waiting = desk.item("a note")
            await runtime.steer(turn, waiting)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            urgent = await desk.begin(runtime, desk.item("the urgent one"))
            await desk.ended(urgent)
            await trio.sleep(0.3)

    assert (ended.status, ended.text) == (TurnStatus.interrupted, "")
    assert ended.items == {waiting.id: ItemOutcome.dropped}
    assert len(desk.seen.of(Surfaced)) == 2
    assert [r.end for r in desk.model.requests] == ["client gone", "completed"]
    assert desk.model.requests[1].user_texts == [STREAM, "the urgent one"]
    late = desk.seen.all[desk.seen.all.index(ended) + 1 :]
    assert not [e for e in late if getattr(e, "turn", None) == turn]


@pytest.mark.inv(13)
async def test_what_no_answer_followed_is_carried_and_surfaces_with_the_next(
    desk: ClaudeDesk,
) -> None:
    """It stays in Claude's record: sent again, the model would read it twice."""
    with trio.fail_after(60):
        async with desk.open() as runtime:
            early = desk.item(do({"wait": 30}))
            turn = await desk.begin(runtime, early)
            await desk.model.wait_for_requests(1)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            # Older versions write their record a moment later.
            await eventually(lambda: early.key in recorded(desk))
            assert runtime.containment is not None
            await runtime.containment.kill()
            await desk.seen.first(Exited)
        # Also by another process.
        async with desk.open(resume=desk.session) as runtime:
            after = desk.item("after that")
            again = await desk.begin(runtime, after)
            await desk.ended(again)

    assert ended.items == {early.id: ItemOutcome.carried}
    surfaced = desk.seen.of(Surfaced)
    assert [(e.item, e.turn) for e in surfaced] == [
        (early.id, again),
        (after.id, again),
    ]
    told = desk.model.requests[-1].user_texts
    assert [told.count(early.text), told.count("after that")] == [1, 1]


def recorded(desk: ClaudeDesk) -> str:
    return "".join(record.read_text() for record in desk.home.records)


@pytest.mark.req("R60")
@pytest.mark.bug("B35")
async def test_interrupt_in_the_first_moments_ends_the_turn_and_loses_nothing(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            items = [desk.item(f"early {number}") for number in range(6)]
            for number, item in enumerate(items):
                turn = await desk.begin(runtime, item)
                await trio.sleep(number * 0.006)
                await runtime.interrupt(turn)
                await desk.ended(turn)
            await desk.ended(await desk.begin(runtime, desk.item("last")))
            told = "\n".join(desk.model.requests[-1].user_texts)

    outcomes = {k: v for e in desk.seen.of(TurnEnded) for k, v in e.items.items()}
    surfaced = [e.item for e in desk.seen.of(Surfaced)]
    for item in items:
        dropped = outcomes.get(item.id) is ItemOutcome.dropped
        assert surfaced.count(item.id) == (not dropped)
        assert told.count(item.text) == (not dropped)


@pytest.mark.bug("B24")
async def test_running_command_is_cut_and_its_result_belongs_to_its_turn(
    desk: ClaudeDesk,
) -> None:
    late = desk.home.workdir / "late"
    command = f"trap '' TERM; touch begun; sleep 2; touch {late}"
    with trio.fail_after(60):
        async with desk.open() as runtime:
            containment = runtime.containment
            assert containment is not None
            mark = containment.mark()
            turn = await desk.begin(runtime, desk.item(do({"run": command})))
            await desk.seen.first(ToolStarted)
            await eventually(lambda: exists(str(desk.home.workdir / "begun")))
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            assert not await containment.sweep(mark)
            await trio.sleep(2.2)

    (result,) = desk.seen.of(ToolEnded)
    assert (ended.status, result.turn) == (TurnStatus.interrupted, turn)
    assert result.error is not None
    assert not exists(str(late))


@pytest.mark.req("R70", "R84")
@pytest.mark.bug("B07")
async def test_pending_ask_is_closed_by_the_cut_and_a_late_allow_runs_nothing(
    desk: ClaudeDesk,
) -> None:
    with trio.fail_after(60):
        async with desk.open({}) as runtime:
            turn = await desk.begin(runtime, desk.item(do({"run": "touch asked"})))
            asked = await desk.seen.first(Asked)
            await runtime.interrupt(turn)
            await desk.ended(turn)
            await runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            await desk.ended(await desk.begin(runtime, desk.item("go on")))

    assert (asked.turn, asked.tool_name) == (turn, "Bash")
    assert "touch asked" in asked.input
    assert [e.ask for e in desk.seen.of(AskClosed)] == [asked.ask]
    assert not exists(str(desk.home.workdir / "asked"))


@pytest.mark.req("R78")
async def test_what_is_allowed_runs_and_what_is_rejected_or_cancelled_does_not(
    desk: ClaudeDesk,
) -> None:
    decisions = {
        "yes": ApprovalOutcome.allowed_once,
        "no": ApprovalOutcome.rejected,
        "cut": ApprovalOutcome.cancelled,
    }
    steps = [{"run": f"touch {name}"} for name in decisions]
    with trio.fail_after(60):
        async with desk.open({}) as runtime:
            turn = await desk.begin(runtime, desk.item(do(*steps, {"say": "went on"})))
            for name, outcome in decisions.items():
                wanted = partial(_is_about, name)
                asked = await desk.seen.first(Asked, wanted)
                await runtime.answer(asked.ask, outcome)
            ended = await desk.ended(turn)

    ran = [name for name in decisions if exists(str(desk.home.workdir / name))]
    assert ran == ["yes"]
    # A cancelled ask ends the turn: the model is not asked for more.
    assert ended.status is TurnStatus.interrupted
    assert len(desk.model.requests) == 3


def _is_about(name: str, asked: Asked) -> bool:
    return f"touch {name}" in asked.input


async def test_idle_session_has_no_turn_to_interrupt(desk: ClaudeDesk) -> None:
    with trio.fail_after(60):
        async with desk.open() as runtime:
            with pytest.raises(InterruptRefused):
                await runtime.interrupt(None)
            turn = await desk.begin(runtime, desk.item("hello"))
            await desk.ended(turn)
            await runtime.interrupt(turn)  # it ended by itself: that is well
    assert "interrupt" not in desk.home.told
