"""The model of the real Codex fails: for a moment, for long, or for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.coder import open_coder

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.coder import Coder
    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

# It never tries again after a 429, whatever it is told.
PATIENT = {
    "model_providers": {"scripted": {"request_max_retries": 4, "stream_max_retries": 4}}
}
PASSING = [{"http": 500}, {"cut": 3}]


@pytest.mark.bug("B25")
@pytest.mark.parametrize("failure", PASSING, ids=str)
async def test_a_failure_that_codex_gets_over_ends_nothing_and_doubles_nothing(
    product: Product, failure: dict[str, int]
) -> None:
    body = do(failure, failure, {"say": "the whole answer"})
    with trio.fail_after(60):
        async with open_coder(product, PATIENT) as coder:
            await product.surfaced(await coder.agent.deliver(body))
            await coder.agent.idle()
            said = await coder.agent.until(bool, "said")
            assert await coder.agent.outcomes() == ["completed"]
            assert await coder.agent.heard() == [body]
    assert said == ["the whole answer"]
    assert len(coder.model.requests) == 3


@pytest.mark.req("R29", "R35")
@pytest.mark.bug("B11")
@pytest.mark.inv(15, 20, 35)
@pytest.mark.parametrize("failure", PASSING, ids=str)
async def test_an_urgent_ends_the_retries_of_codex_and_is_read_next(
    product: Product, failure: dict[str, int]
) -> None:
    with trio.fail_after(60):
        async with open_coder(product, PATIENT) as coder:
            await coder.agent.deliver(do(*[failure] * 20))
            await coder.model.wait_for_requests(2)
            await product.surfaced(await coder.agent.urge("instead"))
            await coder.agent.idle()
            assert await coder.agent.outcomes() == ["aborted", "completed"]
    first = coder.model.told("instead")[0]
    after = coder.model.requests[first.number :]
    assert [r for r in after if "instead" not in r.user_texts] == []
    assert coder.turn_calls.count("interrupt") == 1


@pytest.mark.req("R55", "R117")
@pytest.mark.bug("B02", "B11")
async def test_nothing_is_tried_against_a_rate_limit_and_an_urgent_acts_at_once(
    coder: Coder,
) -> None:
    await coder.agent.deliver(do({"http": 429, "after": 1}))
    await coder.model.wait_for_requests(1)
    await coder.agent.intervene("followup", messages=["later"])
    view = await coder.agent.idle()
    await trio.sleep(1)
    assert view["parked"]
    assert len(coder.model.requests) == 1
    (run,) = await coder.agent.runs()
    assert (run["outcome"], "429" in run["detail"]) == ("error", True)
    await coder.product.surfaced(await coder.agent.urge("now"))
    await coder.agent.idle()
    assert coder.read[-1] == "now"
    assert "later" not in coder.read
    await coder.agent.resume()
    await coder.model.wait_until_told("later")


@pytest.mark.req("R38", "R56")
@pytest.mark.bug("B10")
async def test_a_cut_call_has_its_result_and_a_model_that_refuses_is_not_asked_again(
    coder: Coder,
) -> None:
    coder.model.script("refused", {"http": 400})
    await coder.runs("touch begun; sleep 30", "begun")
    await coder.product.surfaced(await coder.agent.urge("refused"))
    await coder.agent.until(lambda runs: len(runs) == 2 and runs[1]["outcome"], "runs")
    await coder.agent.idle()
    failed = (await coder.agent.runs())[1]
    assert (failed["outcome"], "scripted failure" in failed["detail"]) == (
        "error",
        True,
    )
    assert len(coder.model.told("refused")) == 1
    await coder.product.surfaced(await coder.agent.deliver("and now?"))
    await coder.agent.idle()
    last = coder.model.requests[-1]
    # Each call of the history has its one result, and what was refused is in it still.
    calls = [i["call_id"] for i in last.items if i.get("type") == "function_call"]
    results = [i["call_id"] for i in last.items if str(i["type"]).endswith("_output")]
    assert calls == results == ["call_1_0"]
    assert "aborted" in last.outputs[0]
    assert last.user_texts[1:] == ["refused", "and now?"]
    assert (await coder.agent.outcomes())[-1] == "completed"
