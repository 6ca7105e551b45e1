"""Our tools: the model calls `send_message`, and reads what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes.conformance.bench import check, played
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import CallRef, SendCalled, TurnStatus

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench


@check
async def test_a_call_of_the_model_waits_for_its_result(bench: Bench) -> None:
    bench.needs("tools")
    word = bench.word()
    body = played(bench.stage.call(word), "call")
    async with bench.open() as live:
        turn = await live.begin(body)
        called = await live.until(SendCalled)
        if called.turn != turn or called.text != word:
            raise Fault(
                f"the model sent {word!r} in {turn.id}, and it came as {called}",
                "`SendCalled` carries the turn it belongs to and the text as it is.",
            )
        result = live.runtime.tool_result(called.call, "forwarded", error=False)
        await live.bounded("tool_result", result)
        ended = await live.ended(turn, " after its call was answered")
        if ended.status is not TurnStatus.completed:
            raise Fault(
                f"a turn with a call of send_message ended as {ended.status}",
                "the result goes to the model, and the turn goes on.",
            )
        bench.claims.show("tools", "send_message")


@check
async def test_a_cut_turn_waits_for_no_result(bench: Bench) -> None:
    bench.needs("tools")
    bench.needs_interrupt()
    body = played(bench.stage.call(bench.word()), "call")
    async with bench.open() as live:
        turn = await live.begin(body)
        called = await live.until(SendCalled)
        await live.interrupt(turn)
        await live.ended(turn, " after an interrupt while it called send_message")
        # The result of a call that nobody waits for any more.
        late = live.runtime.tool_result(called.call, "forwarded", error=False)
        await live.bounded("tool_result", late)
        nobody = live.runtime.tool_result(CallRef("of-nobody"), "what?", error=True)
        await live.bounded("tool_result", nobody)
        await live.next_turn()
