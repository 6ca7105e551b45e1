"""Steer: an entry for the running turn is read in it, refused, or accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.errors import RuntimeFailure
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.bench import check
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import (
    EvidenceLevel,
    ItemOutcome,
    Steer,
    SteerRefused,
    TurnStatus,
)

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live
    from agentteam_runtimes.driver import TurnRef

UNHEARD = "steer() returned, and the turn went on to its end without it: {} is {}"


@check
async def test_a_steer_is_read_at_the_next_step_of_its_turn(bench: Bench) -> None:
    bench.needs_steer()
    async with bench.open() as live:
        turn = await live.begin(bench.tool(f"{_announce()}sleep 1\n", "tool"))
        await live.holding("tool")
        entry = await live.steer(turn, f"please note {bench.word()}")
        ended = await live.ended(turn)
        fate = entry.fate
        if bench.able.steer is Steer.ack and fate is not ItemOutcome.surfaced:
            raise Fault(
                UNHEARD.format(entry, fate or "named nowhere"),
                "steer == `ack`: a `Surfaced` sign follows. An entry that the runtime"
                " does not take is refused with `SteerRefused`, never dropped in"
                " silence.",
            )
        if fate is None and bench.able.evidence is not EvidenceLevel.none:
            fate = (await live.history(entry)).get(entry.item.id)
        if bench.able.steer is Steer.queue and fate in (None, ItemOutcome.dropped):
            raise Fault(
                UNHEARD.format(entry, fate or "named nowhere"),
                "steer == `queue`: `TurnEnded` names what became of the entry.",
            )
        if ended.status is not TurnStatus.completed:
            raise Fault(
                f"a steer made its turn end as {ended.status}",
                "an ordinary message never cuts the turn that it is handed to.",
            )
        await live.next_turn()
        bench.claims.show("steer", f"{bench.able.steer.value}: {fate or 'taken'}")


@check
async def test_a_steer_that_was_cut_is_what_it_is_said_to_be(bench: Bench) -> None:
    bench.needs_steer()
    bench.needs_interrupt()
    async with bench.open() as live:
        turn = await live.begin(bench.tool(traces.SLEEPER, "tool"))
        await live.holding("tool")
        entry = await live.steer(turn, f"please note {bench.word()}")
        await live.settle()
        await live.interrupt(turn)
        await live.ended(turn, " after the interrupt of its tool")
        if entry.fate is None and bench.able.evidence is not EvidenceLevel.none:
            await live.history(entry)
        # What was surfaced or carried is in the model's input now, what was dropped not.
        await live.next_turn()


@check
async def test_a_steer_of_a_turn_that_is_over_is_refused(bench: Bench) -> None:
    bench.needs_steer()
    async with bench.open() as live:
        ended = await live.next_turn()
        await _refused(live, ended.turn)
        await live.next_turn()


@check
async def test_a_runtime_that_cannot_steer_refuses(bench: Bench) -> None:
    if bench.able.steer is not Steer.none:
        return
    async with bench.open() as live:
        turn = await live.begin(bench.stage.stream(1))
        await _refused(live, turn)
        await live.ended(turn)
        await live.next_turn()


async def _refused(live: Live, turn: TurnRef) -> None:
    item = live.entry(f"please note {live.bench.word()}")
    live.judge.steers(item)
    try:
        await live.runtime.steer(turn, item)
    except SteerRefused as refused:
        if refused.written:
            raise Fault(
                "the refusal says that the entry may have been written",
                "`written` False: not a byte of it is with the runtime.",
            ) from refused
        return
    except RuntimeFailure as failure:
        raise Fault(
            f"steer() raised {type(failure).__name__}: {failure}",
            "an entry that is not taken is refused with `SteerRefused`.",
        ) from failure
    raise Fault(
        "steer() took an entry for a turn that cannot read it",
        "an entry that is not taken is refused with `SteerRefused`: then it is sent"
        " again, and not before.",
    )


def _announce() -> str:
    return 'echo $$ >"$1.new" && mv "$1.new" "$1"\n'
