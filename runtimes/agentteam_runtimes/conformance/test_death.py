"""Death: the process goes at any moment, everybody is told, and nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.errors import RuntimeFailure
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.bench import check_alone
from agentteam_runtimes.conformance.scene import not_tried
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import Asked, Exited, Output

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live
    from agentteam_runtimes.process_table import Process

LEFT = "when the runtime is gone, what it started is ended too; survivors are named."


@pytest.mark.parametrize("phase", ["idle", "at once", "streaming", "tool", "asking"])
@check_alone
async def test_the_death_of_the_runtime_is_told_once(bench: Bench, phase: str) -> None:
    async with bench.open(asks=phase == "asking") as live:
        victim = _runtime(live)
        await _reach(live, phase)
        traces.kill(victim)
        await live.exit("the runtime was killed")
        left = await bench.gone(traces.marked(bench.mark), 3.0)
        if left:
            raise Fault(
                "the runtime is dead, and these still run: " + traces.shown(left), LEFT
            )
        await _refuses(live)
        await live.settle()
        if len(live.all(Exited)) != 1:
            raise Fault("the end was told twice", "`Exited` comes once, and last.")


@check_alone
async def test_a_call_that_waits_is_answered_by_the_death(bench: Bench) -> None:
    async with bench.open() as live:
        victim = _runtime(live)
        traces.kill(victim)
        # It may have been written all the same: nobody has noticed the death yet.
        await _refuses(live, or_takes=True)
        await live.exit("the runtime was killed")


@pytest.mark.parametrize("how", ["terminate", "kill"])
@check_alone
async def test_the_session_can_end_it(bench: Bench, how: str) -> None:
    async with bench.open() as live:
        contained = live.runtime.containment
        if contained is None:
            not_tried("the runtime runs inside our own process")
        await live.begin(bench.tool(traces.DEAF, "tool"))
        await live.holding("tool")
        with trio.move_on_after(bench.patience):
            await contained.terminate()
            if how == "terminate":
                # It may be deaf to it; then the session kills.
                with trio.move_on_after(1):
                    await live.until(Exited, within=1e9)
            survivors = await contained.kill()
            left = await bench.gone(traces.marked(bench.mark), 2.0)
            if left:
                named = ", ".join(s.command for s in survivors) or "nothing"
                raise Fault(
                    f"kill() returned and named {named}, and these still run: "
                    + traces.shown(left),
                    "`kill` ends the whole incarnation and returns when nothing is left,"
                    " or what is.",
                )
            await live.exit("kill()")
            return
        raise Fault("terminate() and kill() did not return", "both are bounded.")


def _runtime(live: Live) -> Process:
    process = live.process
    if process is None:
        not_tried("the runtime has no process of its own")
    return process


async def _reach(live: Live, phase: str) -> None:
    stage = live.bench.stage
    if phase == "at once":
        await live.submit(live.batch(stage.stream(30)))
    elif phase == "streaming":
        turn = await live.begin(stage.stream(30))
        await live.until(Output, lambda e: e.turn == turn)
    elif phase in ("tool", "asking"):
        turn = await live.begin(live.bench.tool(traces.DEAF, "tool"))
        if phase == "asking":
            await live.until(Asked, lambda e: e.turn == turn)
        else:
            await live.holding("tool")


async def _refuses(live: Live, *, or_takes: bool = False) -> None:
    """Submit to a dead runtime: it fails, and soon."""
    batch = live.batch(live.bench.stage.say(live.bench.word()))
    live.judge.submits(batch)
    with trio.move_on_after(live.bench.patience):
        try:
            await live.runtime.start_turn(batch)
        except RuntimeFailure:
            return
        if or_takes:
            return
        raise Fault(
            "start_turn took a batch for a runtime that is dead",
            "a method raises `RuntimeExited` when the process is gone.",
        )
    raise Fault(
        "start_turn waits for an answer of a runtime that is dead",
        "a method raises `RuntimeExited` when the process is gone; it never hangs.",
    )
