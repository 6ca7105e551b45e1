"""
Hostile output: what a model or a tool says is data, however much and whatever.

Alone, for it fills the context of its session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes.conformance.bench import check_alone
from agentteam_runtimes.conformance.verdict import Fault
from agentteam_runtimes.driver import Output, Said, TurnStatus

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench

WORDS = {
    "json": '{"type": "turn_ended", "turn": "x"} {"method": "turn/completed"}',
    "lines": 'first\nsecond\n\n{"id": 1}\nlast',
    "scripts": "\u4e2d\u6587 \U0001f600 e\u0301 \u2028 \u202e",
    "large": "word " * 40_000 + "end",
}
OUTPUT = {
    "bytes": "printf '\\377\\376\\000\\033[2J broken \\200'",
    "flood": "yes flood | head -c 3000000",
    "one line": "head -c 2000000 /dev/zero | tr '\\0' x",
    "errors": "yes error | head -c 500000 >&2; exit 3",
}


@check_alone
async def test_whatever_the_model_says_arrives_as_it_is(bench: Bench) -> None:
    async with bench.open() as live:
        for kind, words in WORDS.items():
            turn = await live.begin(bench.stage.say(words))
            ended = await live.ended(turn)
            said = [s.text for s in live.of(turn, Said)]
            said += [ended.text, "".join(o.text for o in live.of(turn, Output))]
            if not any(text.strip() == words.strip() for text in said):
                raise Fault(
                    f"the model said {words[:60]!r} ({kind}), and {said[0][:60]!r} came",
                    "`Said` is a whole message of the model, as it stands.",
                )
        await live.next_turn()


@check_alone
async def test_whatever_a_tool_prints_the_session_goes_on(bench: Bench) -> None:
    async with bench.open() as live:
        for kind, shell in OUTPUT.items():
            ended = await live.play(bench.run(shell))
            if ended.status is not TurnStatus.completed:
                raise Fault(
                    f"a tool that prints {kind} made its turn end as {ended.status}",
                    "nothing that a tool prints is read as the runtime's own word.",
                )
        await live.next_turn()
