"""More output of the real Codex than anybody reads, and nobody who reads it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.product import of_kind

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.coder import Coder
    from tests.kit.product_agent import Live

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

FLOOD = do({"stream": 8000, "ms": 0})


async def nothing_late(coder: Coder, live: Live, run: str) -> None:
    """Insist that the cut run is not shown as live after it was asked to end."""
    kinds = [e["kind"] for e in live.of(coder.agent)]
    late = of_kind(live.of(coder.agent)[kinds.index("requested") :], "progress")
    assert [e for e in late if e["runId"] == run] == []


@pytest.mark.req("R37", "R39", "R43")
@pytest.mark.bug("B06")
@pytest.mark.inv(7, 8, 15, 35)
async def test_an_urgent_is_not_held_up_by_a_flood_of_words(
    coder: Coder, live: Live
) -> None:
    await coder.says(FLOOD)
    run = (await coder.agent.running())["currentRun"]["id"]
    with trio.fail_after(30):
        while not of_kind(live.of(coder.agent), "progress"):  # noqa: ASYNC110
            await trio.sleep(0.005)
    with trio.fail_after(10):
        await coder.product.surfaced(await coder.agent.urge("enough"))
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["aborted", "completed"]
    assert coder.model.requests[0].end == "client gone"
    assert coder.read == [FLOOD, "enough"]
    await nothing_late(coder, live, run)


@pytest.mark.req("R39", "R43")
@pytest.mark.bug("B02")
@pytest.mark.inv(8, 12, 13, 35)
async def test_what_nobody_read_for_a_while_is_read_and_an_urgent_goes_through(
    coder: Coder,
) -> None:
    """The supervisor stands still: the app-server's pipe fills up behind it."""
    supervisor = coder.product.up.process
    assert supervisor is not None
    await coder.says(FLOOD)
    message = await coder.agent.send("enough")
    supervisor.send_signal(signal.SIGSTOP)
    marked: list[str] = []

    async def mark() -> None:
        marked.append((await coder.agent.mark(message))["id"])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark)
        await trio.sleep(3)
        supervisor.send_signal(signal.SIGCONT)
    await coder.product.surfaced(marked[0])
    await coder.agent.idle()
    # It may have come to its end while nobody read it.
    outcomes = await coder.agent.outcomes()
    assert outcomes[0] in ("aborted", "completed")
    assert outcomes[-1] == "completed"
    assert "".join(coder.read).count("enough") == 1
