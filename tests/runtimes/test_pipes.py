"""The lines of one read come in portions, with room for everybody else in between."""

from __future__ import annotations

import time

import pytest
import trio

from agentteam_runtimes.pipes import MOST_LINES, Portions

COSTLY = 0.0002


async def test_costly_lines_come_in_small_portions_whole_and_in_order() -> None:
    lines = [b"%d" % n for n in range(2 * MOST_LINES)]
    heard: list[list[bytes]] = []
    turns: list[int] = []

    def take(portion: list[bytes]) -> None:
        heard.append(portion)
        time.sleep(COSTLY * len(portion))  # the cost of a line is what is tried

    async def live() -> None:
        while True:
            turns.append(len(heard))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
        await Portions().serve(lines, take)
        nursery.cancel_scope.cancel()
    assert [line for portion in heard for line in portion] == lines
    assert len(heard[0]) <= MOST_LINES
    assert max(len(portion) for portion in heard[1:]) < 100
    assert set(range(1, len(heard))) <= set(turns)


@pytest.mark.parametrize("count", [1, MOST_LINES, 40 * MOST_LINES + 1])
async def test_cheap_lines_come_in_portions_as_large_as_allowed(count: int) -> None:
    lines = [b""] * count
    heard: list[int] = []
    await Portions().serve(lines, lambda portion: heard.append(len(portion)))
    assert sum(heard) == count
    assert max(heard) == min(count, MOST_LINES)
