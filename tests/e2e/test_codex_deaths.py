"""The real Codex dies, hangs or fails, and the whole product with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.product import of_kind
from tests.kit.product_agent import until
from tests.kit.real_agent import STREAM

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

CUT = ["requested", "stopping", "interrupted", "started"]


async def first_words(coder: Coder) -> None:
    """Have one whole turn, so that there is a history to lose."""
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()


@pytest.mark.req("R33", "R53")
@pytest.mark.bug("B03", "B06")
@pytest.mark.inv(12, 13, 15, 22, 35)
async def test_killed_in_the_middle_of_the_interrupt_the_message_is_read_next(
    coder: Coder,
) -> None:
    await first_words(coder)
    await coder.says()
    hung = coder.runtime()
    hung.suspend()
    urgent = await coder.agent.urge("are you there? ")

    async def interrupted() -> bool:
        return "turn/interrupt" in coder.home.calls

    await until(interrupted, bool)
    hung.kill()
    await coder.product.surfaced(urgent)
    await coder.agent.idle()
    assert await coder.agent.lines(urgent) == CUT
    assert coder.read == ["remember me. ", STREAM, "are you there? "]


# What the model does, and a part of what is told of it.
FAILURES: dict[str, tuple[dict[str, int], str]] = {
    "HTTP 500": ({"http": 500}, "high demand"),
    "HTTP 401": ({"http": 401}, "401 Unauthorized"),
    "a cut answer": ({"cut": 3}, "disconnected"),
}


@pytest.mark.req("R56", "R117")
@pytest.mark.bug("B25")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failing_model_fails_the_turn_and_a_person_reads_why(
    coder: Coder, failure: str
) -> None:
    await coder.agent.deliver(do(FAILURES[failure][0]))
    await coder.agent.until(bool, "outcomes")
    view = await coder.agent.idle()
    (run,) = await coder.agent.runs()
    items = await coder.agent.activity()
    await coder.product.surfaced(await coder.agent.deliver("again"))
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["error", "completed"]
    (ended,) = of_kind(items, "run_ended")
    assert ended["detail"]["detail"] == run["detail"]
    assert FAILURES[failure][1] in run["detail"]
    assert view["currentRun"] is None
