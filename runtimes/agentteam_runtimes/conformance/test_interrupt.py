"""Interrupt: in every phase of a turn it ends that turn, once, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.bench import check, check_asking
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import (
    Asked,
    Exited,
    InterruptRefused,
    Output,
    TurnEnded,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live
    from agentteam_runtimes.driver import TurnRef

GRACEFUL = (
    "interrupt == `turn`: the runtime ends the turn and lives on. A runtime that has to"
    " be restarted declares `none`; the session ends it then."
)
ONCE = "an interrupt is one request for one turn, and concerns no other."
LONG = 30.0


@pytest.mark.parametrize("phase", ["streaming", "tool", "deaf tool"])
@check
async def test_an_interrupt_ends_the_turn_and_leaves_the_session(
    bench: Bench, phase: str
) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        turn = await _reach(live, phase)
        await _cut(live, turn, phase)


@check_asking
async def test_an_interrupt_ends_a_turn_that_asks(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        await _cut(live, await _reach(live, "asking"), "asking")


@check
async def test_an_interrupt_at_once_ends_the_turn(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        for seconds in (0.0, 0.005, 0.02):
            turn = await live.submit(live.batch(bench.stage.stream(LONG)))
            await trio.sleep(seconds)
            await _cut(
                live, turn, f"{seconds * 1000:g} ms after the submission", "at once"
            )


@check
async def test_an_interrupt_before_the_turn_has_a_name_finds_it(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        batch = live.batch(bench.stage.stream(LONG))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.submit, batch)
            await wait_all_tasks_blocked()
            await live.interrupt(None)
        started = await live.until(TurnStarted, lambda e: e.batch == batch.id)
        await live.ended(started.turn, " after an interrupt without a name")
        await live.next_turn()


@check
async def test_an_interrupt_that_races_the_end_is_no_trouble(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        for seconds in (0.0, 0.01, 0.05):
            turn = await live.begin(bench.stage.say(bench.word()))
            await trio.sleep(seconds)
            try:
                await live.runtime.interrupt(turn)
            except InterruptRefused as refused:
                if refused.named not in (None, turn):
                    raise Fault(
                        f"the interrupt of {turn.id} was refused for {refused.named}",
                        "`named` is the turn that the runtime says is active.",
                    ) from refused
            await live.ended(turn)
            await live.next_turn()


@check
async def test_two_interrupts_end_one_turn(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        turn = await live.begin(bench.stage.stream(LONG))
        await live.until(Output, lambda e: e.turn == turn)
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(_interrupt_quietly, live, turn)
        await live.ended(turn, " after two interrupts")
        await live.next_turn()


@check
async def test_one_interrupt_is_sent_once(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        before = bench.stage.interrupts()
        turn = await live.begin(bench.stage.stream(LONG))
        await live.until(Output, lambda e: e.turn == turn)
        await live.interrupt(turn)
        await live.ended(turn, " after the interrupt")
        # A second one that still comes would hit this turn.
        following = await live.begin(bench.stage.stream(1))
        ended = await live.ended(following)
        if ended.status is not TurnStatus.completed:
            raise Fault(
                f"the turn after a cut one ended as {ended.status}, and nobody"
                " interrupted it: a second interrupt was sent",
                ONCE,
            )
        after = bench.stage.interrupts()
        if before is not None and after is not None and after - before > 1:
            raise Fault(
                f"the runtime was sent {after - before} interrupts for one cut", ONCE
            )


@check
async def test_an_interrupt_of_a_turn_that_is_over_cuts_nothing(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        over = await live.next_turn()
        running = await live.begin(bench.stage.stream(1))
        await live.until(Output, lambda e: e.turn == running)
        await _interrupt_quietly(live, over.turn)
        ended = await live.ended(running)
        if ended.status is not TurnStatus.completed:
            raise Fault(
                f"the interrupt of {over.turn.id}, which was over, ended"
                f" {running.id} as {ended.status}",
                ONCE,
            )


@check
async def test_a_runtime_that_cannot_interrupt_refuses(bench: Bench) -> None:
    if bench.able.interrupt != "none":
        return
    async with bench.open() as live:
        turn = await live.begin(bench.stage.stream(1))
        try:
            await live.runtime.interrupt(turn)
        except InterruptRefused:
            await live.ended(turn)
            return
        raise Fault(
            "interrupt() returned, and the driver declares that it cannot",
            "`interrupt` raises `InterruptRefused`: then the session ends the process.",
        )


async def _reach(live: Live, phase: str) -> TurnRef:
    """Begin a turn and wait until it is where it shall be cut."""
    bench = live.bench
    if phase == "streaming":
        turn = await live.begin(bench.stage.stream(LONG))
        await live.until(Output, lambda e: e.turn == turn)
        return turn
    program = traces.DEAF if phase == "deaf tool" else traces.SLEEPER
    turn = await live.begin(bench.tool(program, "tool"))
    if phase == "asking":
        await live.until(Asked, lambda e: e.turn == turn)
    else:
        await live.holding("tool")
    return turn


async def _cut(live: Live, turn: TurnRef, phase: str, shows: str = "") -> None:
    """Interrupt it; the turn is over, the process is the same, the next one works."""
    before = live.process
    await live.interrupt(turn)
    ended = await live.ended(turn, f" after its interrupt ({phase})")
    if live.all(Exited) or (before is not None and not traces.living([before])):
        raise Fault(f"the interrupt ({phase}) ended the runtime's process", GRACEFUL)
    if ended.status is not TurnStatus.interrupted:
        raise Fault(
            f"the turn that was cut ({phase}) ended as {ended.status}",
            "a turn that an interrupt ended is `interrupted`.",
        )
    await live.next_turn()
    if len(live.of(turn, TurnEnded)) != 1:
        raise Fault("the cut turn ended again", "one `TurnEnded` for each turn.")
    live.bench.claims.show("interrupt", shows or phase)


async def _interrupt_quietly(live: Live, turn: TurnRef) -> None:
    """A second one, or a late one, may be refused."""
    with trio.move_on_after(live.bench.patience):
        try:
            await live.runtime.interrupt(turn)
        except InterruptRefused:
            return
        return
    raise Fault(
        "an interrupt that was not needed any more did not return",
        "`interrupt` returns when the runtime took the request, or the turn is over.",
    )
