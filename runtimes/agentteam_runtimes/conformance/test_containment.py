"""Containment: whatever a tool leaves behind is found, and ends when it must."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.bench import check, check_alone
from agentteam_runtimes.conformance.scene import not_tried
from agentteam_runtimes.conformance.verdict import Fault

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live
    from agentteam_runtimes.driver import Containment

# What a tool starts in front of a program that stays; it writes its id to the file.
KINDS = {
    "deaf to TERM": 'sh "{program}" "{file}" &\n',
    "of its own session": 'setsid sh "{program}" "{file}" &\n',
    "an orphan without environment": (
        '(env -i PATH="$PATH" setsid sh "{program}" "{file}" >/dev/null 2>&1 &)\n'
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@check
async def test_what_a_cut_turn_left_is_swept(bench: Bench, kind: str) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        contained = _contained(live)
        mark = contained.mark()
        turn = await live.begin(_leaving(bench, kind))
        child = await live.holding(kind)
        await live.interrupt(turn)
        await live.ended(turn, " after the interrupt of its tool")
        survivors = await live.bounded("sweep", contained.sweep(mark))
        left = await bench.gone([child], 0.5)
        if left and child.pid not in {s.pid for s in survivors}:
            raise Fault(
                f"a tool's process {kind} outlived interrupt and sweep, and nobody"
                f" names it: {traces.shown(left)}",
                "`sweep` ends what was born after the mark, and returns the survivors.",
            )
        await live.next_turn()


@check
async def test_a_sweep_spares_what_an_earlier_turn_started(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        contained = _contained(live)
        starting = bench.command(traces.SLEEPER, "server")
        body = bench.run(f"setsid {starting} >/dev/null 2>&1 & sleep 0.5")
        await live.ended(await live.begin(body))
        server = await live.holding("server")
        if not traces.living([server]):
            not_tried("the runtime ends what a turn leaves in the background")
        # Start times are counted in ticks: the next turn is born in a later one.
        await live.settle(0.1)
        mark = contained.mark()
        turn = await live.begin(bench.tool(traces.SLEEPER, "tool"))
        await live.holding("tool")
        await live.interrupt(turn)
        await live.ended(turn, " after the interrupt of its tool")
        await live.bounded("sweep", contained.sweep(mark))
        if not traces.living([server]):
            raise Fault(
                "the cut of a turn ended a process that an earlier turn had started",
                "`sweep` ends what was born after the mark: a development server of an"
                " earlier turn stays.",
            )
        traces.kill(server)


@check_alone
async def test_leaving_ends_what_tools_left(bench: Bench) -> None:
    async with bench.open() as live:
        await live.begin(_leaving(bench, *KINDS))
        children = {kind: await live.holding(kind) for kind in KINDS}
    left = await bench.gone(list(children.values()), 3.0)
    for kind, child in children.items():
        if child in left:
            raise Fault(
                f"a process {kind} outlived the incarnation: {traces.shown([child])}",
                "leaving the context of `open` ends all of it (`open_incarnation` does"
                " it).",
            )


def _leaving(bench: Bench, *kinds: str) -> str:
    """Make the model run a tool that leaves such children."""
    program = bench.workdir / "child.program"
    program.write_text(traces.DEAF)
    starts = (
        KINDS[kind].format(program=program, file=bench.workdir / kind) for kind in kinds
    )
    return bench.tool("".join(starts) + "exec sleep 300\n", "tool")


def _contained(live: Live) -> Containment:
    contained = live.runtime.containment
    if contained is None:
        not_tried("the runtime runs inside our own process")
    return contained
