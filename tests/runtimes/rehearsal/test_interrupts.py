"""A turn that is cut, in every place where it can stand, and every refusal to be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.rehearsal import entry, open_stage

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.errors import RuntimeRefused
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Exited,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    Output,
    Said,
    SendCalled,
    SteerRefused,
    Surfaced,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnRef,
    TurnStatus,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


async def test_interrupt_while_saying_cuts_between_two_words(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"say": "a b c d e f g h", "ms": 60_000})
            await stage.until(Output)
            await stage.runtime.interrupt(turn)
            ended = await stage.end_of(turn)
    assert (ended.status, ended.text) == (TurnStatus.interrupted, "")
    assert [output.text for output in stage.all(Output)] == ["a "]
    assert stage.all(Said) == []


@pytest.mark.req("R135")
async def test_a_cut_shell_runs_on_and_tells_it_under_the_old_turn(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"run": "sleep 0.3; touch effect; echo out"})
            await stage.until(ToolStarted)
            await stage.runtime.interrupt(turn)
            await stage.end_of(turn)
            assert not (tmp_path / "effect").exists()
            following = await stage.begin({"wait": 600})
            tool = await stage.until(ToolEnded)
            await stage.end_of(following)
    assert (tool.turn, tool.output) == (turn, "out\n")
    assert (tmp_path / "effect").exists()


async def test_a_sweep_ends_the_shell_that_a_cut_turn_left(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            assert stage.runtime.containment is not None
            mark = stage.runtime.containment.mark()
            turn = await stage.begin({"run": "sleep 60; touch effect"})
            await stage.until(ToolStarted)
            await stage.runtime.interrupt(turn)
            await stage.end_of(turn)
            assert await stage.runtime.containment.sweep(mark) == []
            tool = await stage.until(ToolEnded)
            assert (await stage.play({"say": "alive"})).text == "alive"
    assert (tool.turn, tool.error) == (turn, "exit code -15")


async def test_a_runtime_may_end_its_shells_by_itself(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, killChildren=True) as stage:
            turn = await stage.begin({"run": "sleep 60"})
            await stage.until(ToolStarted)
            await stage.runtime.interrupt(turn)
            assert (await stage.until(ToolEnded)).error == "exit code -9"


@pytest.mark.bug("B07")
async def test_interrupt_while_asking_closes_the_ask(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"ask": "shell"}, {"run": "touch ran"})
            asked = await stage.until(Asked)
            await stage.runtime.interrupt(turn)
            ended = await stage.end_of(turn)
            await stage.runtime.answer(asked.ask, ApprovalOutcome.allowed_once)
            await stage.play({"wait": 50})
    closed = stage.all(AskClosed)[0]
    assert closed.ask == asked.ask
    assert stage.events.index(closed) < stage.events.index(ended)
    assert not (tmp_path / "ran").exists()


async def test_interrupt_while_a_tool_call_waits_for_us(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"send": "hi"})
            call = await stage.until(SendCalled)
            await stage.runtime.interrupt(turn)
            assert (await stage.end_of(turn)).status is TurnStatus.interrupted
            await stage.runtime.tool_result(call.call, "forwarded", error=False)
            await stage.play({"wait": 50})
    assert stage.all(Said) == []


async def test_interrupt_before_the_batch_is_surfaced_drops_it(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, surfaceMs=5000) as stage:
            turn = await stage.begin({"say": "x"})
            await stage.runtime.interrupt(turn)
            ended = await stage.end_of(turn)
    assert stage.all(Surfaced) == []
    assert list(ended.items.values()) == [ItemOutcome.dropped]


async def test_a_steer_is_surfaced_at_the_next_step_boundary(tmp_path: Path) -> None:
    item = entry("and one more thing")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"ask": "go"}, {"say": "between"})
            asked = await stage.until(Asked)
            await stage.runtime.steer(turn, item)
            assert item.id not in {event.item for event in stage.all(Surfaced)}
            await stage.runtime.answer(asked.ask, ApprovalOutcome.rejected)
            ended = await stage.end_of(turn)
    signs = [event for event in stage.all(Surfaced) if event.item == item.id]
    assert [(sign.turn, sign.key) for sign in signs] == [(turn, item.key)]
    said = stage.all(Said)[1:]
    assert stage.events.index(signs[0]) < stage.events.index(said[0])
    assert [s.text for s in said] == ["between", "Heard: and one more thing"]
    assert ended.items == {}


@pytest.mark.bug("B22")
async def test_an_interrupt_drops_steers_that_were_not_surfaced(
    tmp_path: Path,
) -> None:
    item = entry("too late")
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"ask": "go"})
            await stage.until(Asked)
            await stage.runtime.steer(turn, item)
            running = await stage.runtime.history({item.key: item.id})
            await stage.runtime.interrupt(turn)
            ended = await stage.end_of(turn)
            after = await stage.runtime.history({item.key: item.id})
    assert running == {item.id: ItemOutcome.unknown}
    assert ended.items == {item.id: ItemOutcome.dropped}
    assert after == {item.id: ItemOutcome.dropped}


async def test_a_queue_steer_has_no_sign_and_is_named_at_the_end(
    tmp_path: Path,
) -> None:
    item = entry("quietly")
    with trio.fail_after(10):
        async with open_stage(tmp_path, steer="queue") as stage:
            turn = await stage.begin({"ask": "go"})
            asked = await stage.until(Asked)
            await stage.runtime.steer(turn, item)
            await stage.runtime.answer(asked.ask, ApprovalOutcome.rejected)
            ended = await stage.end_of(turn)
    assert item.id not in {event.item for event in stage.all(Surfaced)}
    assert ended.items == {item.id: ItemOutcome.surfaced}


async def test_a_steer_before_the_batch_is_read_waits_for_its_boundary(
    tmp_path: Path,
) -> None:
    item = entry("early")
    with trio.fail_after(10):
        async with open_stage(tmp_path, surfaceMs=200) as stage:
            turn = await stage.begin({"say": "first"})
            await stage.runtime.steer(turn, item)
            ended = await stage.end_of(turn)
    assert [event.turn for event in stage.all(Surfaced)] == [turn, turn]
    assert ended.text == "Heard: early"


async def test_steers_are_refused_without_a_turn_or_the_ability(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            with pytest.raises(SteerRefused) as idle:
                await stage.runtime.steer(TurnRef("turn-1"), entry("x"))
            turn = await stage.begin({"wait": 5000})
            with pytest.raises(SteerRefused) as other:
                await stage.runtime.steer(TurnRef("turn-9"), entry("x"))
        async with open_stage(tmp_path, steer="none") as stage:
            turn = await stage.begin({"wait": 5000})
            with pytest.raises(SteerRefused) as never:
                await stage.runtime.steer(turn, entry("x"))
    codes = [refused.value.code for refused in (idle, other, never)]
    assert codes == ["no_turn", "other_turn", "unsupported"]


@pytest.mark.bug("B06")
async def test_a_deaf_runtime_ignores_an_interrupt_without_an_answer(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"deaf": ["interrupt"]}, {"wait": 400})
            with trio.move_on_after(0.1) as scope:
                await stage.runtime.interrupt(turn)
            assert scope.cancelled_caught
            assert (await stage.end_of(turn)).status is TurnStatus.completed


@pytest.mark.bug("B30")
async def test_an_unanswered_interrupt_is_over_when_the_turn_is(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"deaf": ["interrupt"]}, {"wait": 300})
            await stage.runtime.interrupt(turn)
            assert stage.all(TurnEnded)[0].turn == turn


@pytest.mark.bug("B30")
async def test_an_interrupt_of_a_turn_that_has_ended_is_no_error(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"say": "quick"})
            await stage.runtime.interrupt(ended.turn)
            with pytest.raises(InterruptRefused):
                await stage.runtime.interrupt(TurnRef("turn-9"))


async def test_an_interrupt_of_another_turn_names_the_running_one(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            turn = await stage.begin({"wait": 5000})
            with pytest.raises(InterruptRefused) as refused:
                await stage.runtime.interrupt(TurnRef("turn-9"))
            await stage.runtime.interrupt(None)
            assert (await stage.end_of(turn)).status is TurnStatus.interrupted
    assert refused.value.named == turn


async def test_an_interrupt_without_a_name_waits_for_the_turn_to_begin(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage, trio.open_nursery() as nursery:
            nursery.start_soon(stage.runtime.interrupt, None)
            await trio.sleep(0.05)
            turn = await stage.begin({"wait": 5000})
            assert (await stage.end_of(turn)).status is TurnStatus.interrupted


@pytest.mark.bug("B28")
async def test_answer_and_turn_match_over_ten_cuts(tmp_path: Path) -> None:
    with trio.fail_after(30):
        async with open_stage(tmp_path) as stage:
            for n in range(10):
                cut = await stage.arrive(
                    {"delay": "end", "ms": 20}, {"say": f"old {n} never", "ms": 5000}
                )
                await stage.runtime.interrupt(cut)
                ended = await stage.play({"say": f"new{n}", "ms": 30})
                assert ended.text == f"new{n}"
                await stage.end_of(cut)
    assert len(stage.all(TurnEnded)) == 20
    assert stage.all(Noticed) == []


@pytest.mark.bug("B06")
@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], -15),
        ([{"last": '{"type": "said", "turn": "turn-1", "text": "last"}\n'}], 0),
    ],
)
async def test_terminate_ends_it_with_its_last_words(
    tmp_path: Path, steps: list[dict[str, Any]], code: int
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.arrive(*steps, {"wait": 5000})
            assert stage.runtime.containment is not None
            await stage.runtime.containment.terminate()
            exited = await stage.exit()
    assert exited.returncode == code
    assert [said.text for said in stage.all(Said)[1:]] == ["last"] * len(steps)


@pytest.mark.bug("B06")
async def test_only_kill_ends_what_is_deaf_to_term_and_stdin(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"deaf": ["TERM", "stdin"]}, {"wait": 300})
            assert stage.runtime.containment is not None
            await stage.runtime.containment.terminate()
            assert (await stage.end_of(turn)).status is TurnStatus.completed
            assert stage.all(Exited) == []
            assert await stage.runtime.containment.kill() == []
            assert (await stage.exit()).returncode == -9


@pytest.mark.bug("B06")
async def test_kill_ends_a_stopped_process(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            await stage.begin({"die": "STOP"}, {"say": "not before it goes on"})
            assert stage.runtime.containment is not None
            await trio.sleep(0.1)
            assert await stage.runtime.containment.kill() == []
            assert (await stage.exit()).returncode == -9
    assert stage.all(Said) == []


@pytest.mark.bug("B08")
async def test_a_runtime_deaf_to_stdin_lets_the_pipe_run_full(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"deaf": ["stdin"]}, {"wait": 60_000})
            with trio.move_on_after(0.3) as scope:
                await stage.runtime.steer(turn, entry("x" * 300_000))
            assert scope.cancelled_caught


@pytest.mark.bug("B08")
async def test_a_closed_stdin_fails_the_request_and_only_that(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            turn = await stage.arrive({"close": "stdin"}, {"wait": 300})
            with pytest.raises(Exception, match="exited"):
                await stage.runtime.steer(turn, entry("x" * 300_000))
            assert (await stage.end_of(turn)).status is TurnStatus.completed


async def test_a_maintenance_task_runs_is_refused_and_is_given_up(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, maintainMs=300) as stage:
            assert await stage.runtime.maintain("compact") == "compacted"
            with pytest.raises(RuntimeRefused):
                await stage.runtime.maintain("dance")
            with trio.move_on_after(0.05):
                await stage.runtime.maintain("compact")
            turn = await stage.begin({"wait": 100})
            with pytest.raises(RuntimeRefused):
                await stage.runtime.maintain("compact")
            assert (await stage.end_of(turn)).status is TurnStatus.completed


@pytest.mark.bug("B01")
async def test_nothing_outlives_the_context(tmp_path: Path) -> None:
    shell = "setsid sh -c 'echo $$ >>pids; exec sleep 60' & echo $$ >>pids; sleep 60"
    both_are_there = "until [ $(wc -l <pids) = 4 ]; do sleep 0.02; done"
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            await stage.play(
                {"spawn": shell}, {"spawn": shell}, {"run": both_are_there}
            )
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []
