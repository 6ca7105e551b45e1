"""Sub-agents of the real Codex, inside the whole product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.product import of_kind

from agentteam_supervisor.chaos.models.responses import Step, do

if TYPE_CHECKING:
    from tests.kit.coder import Coder
    from tests.kit.product_agent import Live

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

WORK = "touch begun; sleep 4; touch late"


def spawn(*script: Step) -> Step:
    """A call that starts a sub-agent, whose model plays this script."""
    given = {"message": do(*script)}
    return {"call": "spawn_agent", "in": "multi_agent_v1", "with": given}


@pytest.mark.req("R36", "R38", "R39", "R42", "R43")
@pytest.mark.bug("B01", "B19", "B24")
@pytest.mark.inv(6, 7, 8, 15)
@pytest.mark.parametrize("parent", ["speaks", "runs a command"])
async def test_a_cut_ends_the_sub_agent_its_command_and_all_that_it_says(
    coder: Coder, live: Live, parent: str
) -> None:
    child = spawn({"run": f"(setsid sleep 300 &); {WORK}"}, {"say": "not said"})
    mine: Step = {"stream": 900, "ms": 20} if parent == "speaks" else {"run": "sleep 9"}
    await coder.agent.deliver(do(child, mine))
    await coder.appears("begun")
    await coder.model.wait_for_requests(3)
    began = trio.current_time()
    run = (await coder.agent.running())["currentRun"]["id"]
    urgent = await coder.agent.urge("leave that")
    await coder.product.surfaced(urgent)
    left = coder.processes("sleep")
    await coder.agent.idle()
    await trio.sleep_until(began + 4.3)
    assert left == []
    assert not coder.file("late").exists()
    assert coder.model.requests[-1].user_texts[-1] == "leave that"
    assert await coder.agent.outcomes() == ["aborted", "completed"]
    assert await coder.agent.said() == ["Heard: leave that"]
    requested = [e["kind"] for e in live.of(coder.agent)].index("requested")
    shown = of_kind(live.of(coder.agent)[requested:], "progress", "tool")
    assert [e for e in shown if e["runId"] == run] == []
    assert "not said" not in str(live.of(coder.agent))


@pytest.mark.bug("B19")
@pytest.mark.inv(19)
async def test_the_end_of_a_sub_agent_is_not_the_runs_and_a_message_meets_the_run(
    coder: Coder,
) -> None:
    child = spawn({"run": "touch begun; sleep 0.5"}, {"say": "the child's answer"})
    mine: Step = {"run": "sleep 3"}
    await coder.agent.deliver(do(child, mine, {"say": "the parent's answer"}))
    await coder.appears("begun")
    note = await coder.agent.deliver("by the way. ")
    await coder.product.surfaced(note)
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["completed"]
    assert coder.turn_calls == ["start", "steer"]
    assert coder.read[-1] == "by the way. "
    assert await coder.agent.until(bool, "said") == ["the parent's answer"]


@pytest.mark.req("R42", "R92")
@pytest.mark.bug("B07", "B19", "B24")
@pytest.mark.inv(4, 5)
async def test_a_sub_agent_that_outlives_its_run_is_told_of_and_asks_nobody(
    asking_coder: Coder,
) -> None:
    """Its question belongs to a run that is over, so nobody may grant it."""
    coder = asking_coder
    child = spawn({"run": "touch asked_for", "after": 2}, {"say": "the child's answer"})
    await coder.agent.deliver(do(child, {"say": "the parent's answer"}))
    assert await coder.agent.until(bool, "said") == ["the parent's answer"]
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["completed"]
    answer = await coder.model.wait_for_requests(4)
    view = await coder.agent.view()
    assert view["pendingApprovals"] == []
    assert await coder.agent.journal("approval/asked") == []
    assert "rejected" in answer.outputs[-1]
    assert not coder.file("asked_for").exists()
    texts = [item["text"] for item in await coder.agent.activity()]
    assert any("sub-agent" in text for text in texts), texts
    assert await coder.agent.said() == ["the parent's answer"]


@pytest.mark.bug("B01", "B24")
@pytest.mark.inv(15)
async def test_a_cut_also_ends_the_sub_agent_of_an_earlier_run(coder: Coder) -> None:
    child = spawn({"run": WORK}, {"say": "not said"})
    await coder.agent.deliver(do(child, {"say": "the parent's answer"}))
    await coder.appears("begun")
    began = trio.current_time()
    assert await coder.agent.until(bool, "said") == ["the parent's answer"]
    await coder.says(do({"stream": 900, "ms": 20}))
    await coder.product.surfaced(await coder.agent.urge("leave all that"))
    left = coder.processes("sleep")
    await trio.sleep_until(began + 4.3)
    assert left == []
    assert not coder.file("late").exists()
