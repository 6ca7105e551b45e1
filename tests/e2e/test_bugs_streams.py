"""Real reports about what a runtime writes, played through the whole product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.kit.product import of_kind, open_product

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

MEGABYTE = 1 << 20
ANSWER = {"say": "at once", "ms": 1}
NOISE = '42\n"x"\n[]\n{}\n{"type": "unheard-of", "turn": 5}\nwarning: {hello} noise\n'


async def play(agent: Agent, body: str = "go") -> Any:
    """Run the next turn to its end; gives its run."""
    before = len(await agent.runs())
    await agent.person.surfaced(await agent.deliver(body))
    await agent.until(
        lambda runs: len(runs) > before and runs[before]["outcome"], "runs"
    )
    return (await agent.runs())[before]


# --- B05 -----------------------------------------------------------------------------


@pytest.mark.bug("B05")
async def test_a_line_of_any_length_is_read_or_ends_its_turn(tmp_path: Path) -> None:
    async with open_product(tmp_path) as product:
        assert product.up.process is not None
        memory = psutil.Process(product.up.process.pid).memory_info
        sibling = await product.agent([ANSWER], [ANSWER])
        long = [{"say": "x", "times": n} for n in (65_537, MEGABYTE + 1, 9 * MEGABYTE)]
        endless = {"raw": "x", "times": 64 * MEGABYTE}
        over = {"raw": "y", "times": 17 * MEGABYTE}
        agent = await product.agent(
            [*long, ANSWER],
            [endless, {"wait": 600_000}],
            [ANSWER],
            [over, {"raw": "\n"}, {"wait": 600_000}],
            [ANSWER],
        )
        assert (await play(agent))["outcome"] == "completed"
        await agent.until(lambda said: said == ["at once"], "said")
        for _ in range(2):
            run = await play(agent)
            assert run["outcome"] == "error"
            assert "line over limit" in run["detail"]
            assert (await play(agent))["outcome"] == "completed"
        await play(sibling)
        assert memory().rss < 400 * MEGABYTE
        assert [r["outcome"] for r in await sibling.runs()] == ["completed"]


# --- B09 -----------------------------------------------------------------------------


@pytest.mark.bug("B09")
async def test_a_full_stderr_stops_nobody_and_its_end_explains_a_failure(
    product: Product,
) -> None:
    agent = await product.agent(
        [{"stderr": MEGABYTE, "lines": False}, ANSWER],
        [{"stderr": 50 * MEGABYTE}, ANSWER],
        [{"stderr": 5000}, {"exit": 4}],
        [ANSWER],
        config={"start": [{"stderr": 300_000}]},
    )
    assert (await play(agent))["outcome"] == "completed"
    assert (await play(agent))["outcome"] == "completed"
    failed = await play(agent)
    assert failed["outcome"] == "error"
    assert "exit code 4" in failed["detail"]
    assert "diagnostics that nobody asked for" in failed["detail"]
    assert len(failed["detail"]) < 100_000
    assert (await play(agent))["outcome"] == "completed"
    assert set(await agent.said()) == {"at once"}


# --- B15 -----------------------------------------------------------------------------


@pytest.mark.bug("B15")
async def test_noise_between_the_lines_is_kept_apart_and_stops_nobody(
    product: Product,
) -> None:
    banner = "Welcome!\n{hello}\n\n\ufeff\r\nupdate available\n"
    agent = await product.agent(
        [{"raw": NOISE}, ANSWER],
        [{"raw": "noise\n", "times": 10_000}, ANSWER],
        config={"start": [{"raw": banner}]},
    )
    async with product.live() as live:
        assert (await play(agent))["outcome"] == "completed"
        assert (await play(agent))["outcome"] == "completed"
        await agent.until(lambda said: len(said) == 2, "said")
    assert set(await agent.said()) == {"at once"}
    assert "noise" not in live.progress(agent)
    assert "hello" not in live.progress(agent)
    late = await agent.journal("fence/late")
    assert 0 < len(late) < 120


@pytest.mark.bug("B15")
async def test_half_a_line_at_the_end_is_history_and_the_run_has_failed(
    product: Product,
) -> None:
    half = '{"type": "turn_ended", "turn": "tu'
    agent = await product.agent([{"raw": half}, {"exit": 1}], [ANSWER])
    run = await play(agent)
    assert run["outcome"] == "error"
    assert "exit code 1" in run["detail"]
    late = await agent.journal("fence/late")
    assert any(half in event["detail"] for event in late)
    assert (await play(agent))["outcome"] == "completed"


@pytest.mark.bug("B15", "B35")
async def test_noise_instead_of_a_handshake_is_no_start_and_can_be_stopped(
    product: Product,
) -> None:
    agent = await product.agent(config={"start": [{"raw": NOISE}, {"wait": 600_000}]})
    delivery = await agent.deliver("hello?")
    await agent.stop()
    view = await agent.idle(within=10)
    assert view["parked"]
    assert (await product.delivery(delivery))["state"] == "queued"
    assert await agent.heard() == []
    assert (await agent.outcomes()) == ["aborted"]


# --- B25 -----------------------------------------------------------------------------


@pytest.mark.bug("B25")
async def test_the_end_of_a_run_is_judged_by_its_result_alone(
    product: Product,
) -> None:
    agent = await product.agent(
        [{"say": "half an answer", "ms": 1}, {"exit": 0}],
        [{"end": "failed", "text": "success!", "detail": "rate limited"}],
        [{"say": "the answer", "ms": 1}, {"end": "completed", "text": ""}],
        [{"late": {"ms": 0, "step": {"exit": 1}}}, ANSWER],
        [{"late": {"ms": 0, "step": {"end": "completed"}}}, ANSWER],
        [ANSWER],
    )
    without = await play(agent)
    assert without["outcome"] == "error"
    assert "exit code 0" in without["detail"]
    failed = await play(agent)
    assert (failed["outcome"], failed["detail"]) == ("error", "rate limited")
    assert await agent.said() == []
    for _ in range(4):
        run = await play(agent)
        assert run["outcome"] == "completed", run
    assert len(await agent.runs()) == 6
    assert "success!" not in await agent.said()
    ended = of_kind(await agent.activity(), "run_ended")
    assert len(ended) == 6


@pytest.mark.bug("B25")
async def test_a_result_and_an_exit_in_the_same_instant_are_a_result(
    product: Product,
) -> None:
    rounds = 12
    turn: list[dict[str, Any]] = [{"late": {"ms": 0, "step": {"exit": 1}}}, ANSWER]
    agent = await product.agent(*[turn] * rounds)
    for _ in range(rounds):
        run = await play(agent)
        assert run["outcome"] == "completed", run
    assert len(await agent.journal("user/message")) == rounds


@pytest.mark.bug("B25")
async def test_a_turn_that_ends_before_its_start_is_answered_ends_once(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER], config={"turnAck": "after"})
    for _ in range(2):
        assert (await play(agent))["outcome"] == "completed"
    await agent.until(lambda said: said == ["at once"] * 2, "said")
    assert len(await agent.runs()) == 2
