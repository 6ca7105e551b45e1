"""What is not declared is refused, and leaves the session as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.errors import RuntimeRefused
from agentteam_runtimes.conformance.bench import check
from agentteam_runtimes.conformance.verdict import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from agentteam_runtimes.conformance.bench import Bench
    from agentteam_runtimes.conformance.live import Live


@check
async def test_steps_are_refused_where_the_runtime_takes_them_itself(
    bench: Bench,
) -> None:
    if bench.able.steps:
        return
    async with bench.open() as live:
        ended = await live.next_turn()
        await _refused(live, "next_step", live.runtime.next_step(ended.turn, []))
        await live.next_turn()


@check
async def test_maintenance_is_done_or_refused(bench: Bench) -> None:
    async with bench.open() as live:
        await live.next_turn()
        unknown = live.runtime.maintain("a-task-of-nobody")
        await _refused(live, "maintain", unknown)
        if bench.able.maintenance:
            await live.bounded("maintain", live.runtime.maintain("compact"))
            bench.claims.show("maintenance", "compact")
        await live.next_turn()


async def _refused(live: Live, method: str, call: Awaitable[object]) -> None:
    async def refuse() -> bool:
        try:
            await call
        except RuntimeRefused:
            return True
        return False

    if not await live.bounded(method, refuse()):
        raise Fault(
            f"{method}() returned, and the runtime has no such thing",
            "what a runtime cannot do raises `RuntimeRefused`.",
        )
