"""Sub-agents of the real Claude: their work belongs to the turn, and is cut with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.trees import eventually

from agentteam_runtimes.driver import (
    Noticed,
    Said,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStatus,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.claude_desk import ClaudeDesk

pytestmark = [pytest.mark.slow]

ERRAND = "an errand for a sub-agent"
GIVEN = {"description": "errand", "prompt": ERRAND, "subagent_type": "general-purpose"}
SENT = do({"call": "Task", "with": GIVEN}, {"say": "all is done"})
DEAF = """\
trap '' TERM INT; echo $$ > child.new && mv child.new child; while :; do sleep 1; done
"""


@pytest.mark.bug("B19", "B24")
@pytest.mark.inv(6)
async def test_a_cut_reaches_the_calls_of_a_sub_agent(desk: ClaudeDesk) -> None:
    desk.model.script(ERRAND, {"run": DEAF}, {"say": "the errand is done"})
    with trio.fail_after(60):
        async with desk.open() as runtime:
            contained = runtime.containment
            assert contained is not None
            mark = contained.mark()
            turn = await desk.begin(runtime, desk.item(SENT))
            file = desk.home.workdir / "child"
            await eventually(file.exists, 30)
            child = Path("/proc") / file.read_text().strip()
            calls = desk.seen.of(ToolStarted)
            await runtime.interrupt(turn)
            ended = await desk.ended(turn)
            await contained.sweep(mark)
            await eventually(lambda: not child.exists())
            after = await desk.ended(await desk.begin(runtime, desk.item("go on")))

    assert [call.name for call in calls] == ["Task", "Bash"]
    assert {call.turn for call in calls} == {turn}
    # Whatever still comes of its calls bears the name of the turn that made them.
    assert {call.turn for call in desk.seen.of(ToolEnded)} <= {turn}
    assert ended.status is TurnStatus.interrupted
    assert after.status is TurnStatus.completed
    assert [said.text for said in desk.seen.of(Said)] == ["Heard: go on"]


@pytest.mark.inv(6)
async def test_a_turn_lasts_as_long_as_its_sub_agents(desk: ClaudeDesk) -> None:
    """Else Claude would begin a turn of its own when they are done."""
    desk.model.script(ERRAND, {"run": "sleep 1"}, {"say": "the errand is done"})
    with trio.fail_after(60):
        async with desk.open() as runtime:
            turn = await desk.begin(runtime, desk.item(SENT))
            await desk.ended(turn)
            after = await desk.ended(await desk.begin(runtime, desk.item("go on")))

    kinds = [type(event) for event in desk.seen.of_turn(turn)]
    assert kinds.count(ToolStarted) == kinds.count(ToolEnded) == 2
    assert kinds[-1] is TurnEnded
    assert after.text == "Heard: go on"
    assert not desk.seen.of(Noticed, lambda e: "nobody asked for" in e.what)
