"""Long lines, half lines, closed streams, and ends that coincide."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.rehearsal import do, open_stage

from agentteam_protocol.errors import RuntimeExited
from agentteam_runtimes.driver import (
    Exited,
    Noticed,
    Output,
    Said,
    SubmitRefused,
    Surfaced,
    TurnEnded,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.incarnation import Limits
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20


@pytest.mark.bug("B05")
async def test_lines_below_the_limit_are_read_however_long(tmp_path: Path) -> None:
    sizes = (65_537, MEGABYTE + 1, 20 * MEGABYTE)
    driver = RehearsalDriver(limits=Limits(line=32 * MEGABYTE))
    with trio.fail_after(60):
        async with open_stage(tmp_path, driver=driver) as stage:
            ended = await stage.play(
                *({"say": "x", "times": size} for size in sizes), {"say": "short"}
            )
    assert [len(said.text) for said in stage.all(Said)] == [*sizes, 5]
    assert (ended.status, ended.text) == (TurnStatus.completed, "short")


@pytest.mark.bug("B05")
@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_line_over_the_limit_ends_the_incarnation_with_its_cause(
    tmp_path: Path, end: str
) -> None:
    driver = RehearsalDriver(limits=Limits(line=MEGABYTE))
    with trio.fail_after(20):
        async with open_stage(tmp_path, driver=driver) as stage:
            await stage.begin(
                {"say": "before"},
                {"raw": "x", "times": 4 * MEGABYTE},
                {"raw": end},
                {"wait": 60_000},
            )
            exited = await stage.exit()
            with pytest.raises(RuntimeExited):
                await stage.submit("more")
    assert (exited.fault, exited.returncode) == ("line over limit", -9)
    assert [said.text for said in stage.all(Said)] == ["before"]
    assert stage.all(TurnEnded) == []


@pytest.mark.bug("B15")
async def test_half_a_line_at_the_end_is_kept_as_a_diagnostic(tmp_path: Path) -> None:
    half = '{"type": "turn_ended", "turn": "turn-1", "status": "compl'
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.begin({"raw": half}, {"exit": 1})
            exited = await stage.exit()
    assert (exited.returncode, exited.fault) == (1, "")
    assert [notice.detail for notice in stage.all(Noticed)] == [half]
    assert stage.all(TurnEnded) == []


@pytest.mark.bug("B25")
async def test_an_end_and_an_exit_in_one_instant_are_both_seen_in_order(
    tmp_path: Path,
) -> None:
    leave = {"late": {"ms": 0, "step": {"exit": 1}}}
    rounds = 40
    with trio.fail_after(60):
        for _ in range(rounds):
            async with open_stage(tmp_path) as stage:
                turn = await stage.submit(do({"say": "done", "ms": 0}, leave))
                await stage.exit()
            ended, exited = stage.events[-2:]
            assert isinstance(ended, TurnEnded)
            assert (ended.turn, ended.status) == (turn, TurnStatus.completed)
            assert (ended.text, exited) == ("done", stage.all(Exited)[0])
            assert stage.all(Exited)[0].returncode == 1


@pytest.mark.bug("B25")
async def test_events_before_the_answer_to_the_start_are_kept(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, turnAck="after") as stage:
            turn = await stage.submit(do({"say": "quick", "ms": 0}))
            # All of it was told before we knew the turn's name.
            assert stage.all(TurnEnded)[0].turn == turn
            assert [each.turn for each in stage.all(TurnStarted)] == [turn]
            assert len(stage.all(Surfaced)) == 1
            assert stage.all(Said)[0].turn == turn


@pytest.mark.bug("B25")
async def test_a_failure_after_real_text_is_failed_with_its_cause(
    tmp_path: Path,
) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            ended = await stage.play({"say": "real"}, {"fail": "rate limit"})
    assert (ended.status, ended.detail) == (TurnStatus.failed, "rate limit")


async def test_a_closed_stdout_is_not_the_end_of_the_process(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as stage:
            await stage.begin({"close": "stdout"}, {"run": "touch alive"}, {"exit": 4})
            assert (await stage.exit()).returncode == 4
    assert (tmp_path / "alive").exists()


@pytest.mark.bug("B25")
async def test_a_request_is_not_left_waiting_by_a_death(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path, turnAck="after") as stage:
            with pytest.raises(RuntimeExited) as exited:
                await stage.submit(do({"exit": 9}))
    assert exited.value.returncode == 9


@pytest.mark.bug("B09")
async def test_fifty_megabytes_of_stderr_pass_and_their_tail_is_kept(
    tmp_path: Path,
) -> None:
    with trio.fail_after(60):
        async with open_stage(tmp_path) as stage:
            began = time.perf_counter()
            ended = await stage.play({"stderr": 50 * MEGABYTE})
            took = time.perf_counter() - began
            await stage.begin({"exit": 1})
            exited = await stage.exit()
    assert ended.status is TurnStatus.completed
    assert len(exited.stderr_tail) <= 64 * 1024
    assert took < 30


async def test_two_processes_do_not_share_anything(tmp_path: Path) -> None:
    with trio.fail_after(10):
        async with open_stage(tmp_path) as a, open_stage(tmp_path) as b:
            turn = await a.begin({"say": "a a a a a a", "ms": 20})
            await b.begin({"die": "KILL"})
            await b.exit()
            assert (await a.end_of(turn)).text == "a a a a a a"
            with pytest.raises((RuntimeExited, SubmitRefused)):
                await b.submit("anybody there?")
    assert a.session != b.session
    assert len(a.all(Output)) == 6
