"""Late events: what a cut turn still tells bears its own name, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes.conformance.bench import check
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import Exited, TurnRef

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench

# Deaf to TERM for a moment, so that it speaks when its turn is over.
LATE = """
trap '' TERM HUP INT
echo $$ >"$1.new" && mv "$1.new" "$1"
sleep 0.6
echo LATE-WORDS
"""


@check
async def test_late_output_never_bears_the_name_of_the_next_turn(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        cut = await live.begin(bench.tool(LATE, "tool"))
        await live.holding("tool")
        await live.interrupt(cut)
        await live.ended(cut, " after the interrupt of its tool")
        following = await live.begin(bench.stage.stream(1.2))
        await live.ended(following)
        for event in live.all(object, lambda e: getattr(e, "turn", None) == following):
            if "LATE-WORDS" in f"{getattr(event, 'output', '')}":
                raise Fault(
                    f"the output of a tool of {cut.id} came as an event of"
                    f" {following.id}",
                    "every event of a turn carries the runtime's own turn id; a driver"
                    " never guesses it by the turn that runs.",
                )


@check
async def test_turns_do_not_mix(bench: Bench) -> None:
    bench.needs_interrupt()
    async with bench.open() as live:
        order: list[TurnRef] = []
        for _ in range(3):
            cut = await live.begin(bench.stage.stream(30))
            await live.interrupt(cut)
            await live.ended(cut, " after the interrupt")
            order += [cut, (await live.next_turn()).turn]
        told = [t for e in live.all(object) if (t := getattr(e, "turn", None))]
        if set(told) != set(order):
            raise Fault(
                "events name turns that nobody started",
                "an event that cannot be tied to a turn has `turn=None`.",
            )
        if live.all(Exited):
            raise Fault(
                "the runtime ended between two turns",
                "interrupt == `turn`: the runtime lives on.",
            )
