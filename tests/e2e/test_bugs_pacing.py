"""Real reports about restarts and silence, through the whole product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.product import of_kind, open_product
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

ANSWER = {"say": "at once", "ms": 1}


async def starts(agent: Agent) -> int:
    """Count the processes that it has had."""
    return sum(p["alive"] for p in await agent.journal("run/process"))


# --- B11 -----------------------------------------------------------------------------


@pytest.mark.req("R55", "R121")
@pytest.mark.bug("B02", "B11")
@pytest.mark.inv(35)
async def test_a_runtime_that_keeps_dying_is_given_up_and_a_restart_forgives_nothing(
    tmp_path: Path,
) -> None:
    """Each start is a good one, and one of the waiting messages kills the process."""
    turns: list[list[dict[str, Any]]] = [[{"exit": 3}]] * 20
    async with open_product(tmp_path) as product:
        agent = await product.agent(*turns)
        sibling = await product.agent([ANSWER], [ANSWER])
        for number in range(9):
            await agent.intervene("followup", messages=[f"message {number}"])
        await agent.until(lambda runs: len(runs) > 2 and runs[2]["outcome"], "runs")
        await product.surfaced(await sibling.deliver("hello"))
        await product.restart()
        await product.surfaced(await sibling.deliver("hello again"))
        begun = trio.current_time()
        view = await agent.until(lambda v: v["problem"])
        assert trio.current_time() - begun > 2, "it was tried again at once"
        assert await starts(agent) == 6
        assert view["parked"]
        assert "exit code 3" in view["problem"]["problem"]
        assert view["problem"]["whatToDo"]
        assert await agent.heard() == [f"message {number}" for number in range(6)]
        # A person may have it tried once more.
        await agent.resume()
        await until(lambda: starts(agent), lambda count: count == 7)


# --- B31 -----------------------------------------------------------------------------


@pytest.mark.req("R53")
@pytest.mark.bug("B31")
async def test_only_silence_without_a_reason_is_cut_and_it_is_said_why(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "agentteam.toml").write_text("[limits]\nsilence = 3.0\n")
    long: dict[str, Any] = {"run": "sleep 5"}
    async with open_product(tmp_path) as product:
        mute = await product.agent([{"wait": 600_000}], [ANSWER])
        honest = {
            "a tool": await product.agent([long, ANSWER]),
            "a person": await product.agent([{"ask": "shell"}, ANSWER]),
            "words": await product.agent([{"say": "word " * 30, "ms": 100}]),
        }
        await product.surfaced(await mute.deliver("go"))
        for agent in honest.values():
            await product.surfaced(await agent.deliver("go"))
        (run,) = await mute.until(lambda runs: runs[0]["outcome"], "runs")
        assert (run["outcome"], run["cause"]) == ("aborted", "silent")
        (stopping,) = of_kind(await mute.activity(), "stopping")
        assert stopping["detail"]["cause"] == "silent"
        await product.surfaced(await mute.deliver("and now?"))
        approval = (await honest["a person"].approval())["id"]
        await product.decide(approval, "allowed-once")
        for how, agent in honest.items():
            await agent.idle()
            assert await agent.outcomes() == ["completed"], how
            assert await agent.journal("interrupt/requested") == [], how
