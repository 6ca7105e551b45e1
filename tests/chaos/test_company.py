"""A world of real agents is made, plays its messages, and is judged by its models."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.parts import find_part

from agentteam_protocol.errors import RuntimeMissing
from agentteam_supervisor.chaos.births import Births
from agentteam_supervisor.chaos.company import TROUPES, find_program
from agentteam_supervisor.chaos.plan import Act, plan_life
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.scripts import NUMBERED, REAL
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.world import open_world

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.checker import Finding

STREAM = '#do [{"stream": 900, "ms": 20}] (no. 000000001)'
URGENT = "plain words (no. 000000002)"


def test_every_message_of_a_real_agent_bears_a_number_of_its_own() -> None:
    acts = [act for number in range(50) for act in plan_life(3, number, REAL).acts]
    numbers = [NUMBERED.findall(act.body) for act in acts]
    assert all(len(found) == 1 for found in numbers)
    assert len({found[0] for found in numbers}) == len(acts)
    assert {act.agent for act in acts} == {0, 1}


def test_a_program_that_is_not_there_is_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RuntimeMissing, match="no codex on PATH; name it with --bin"):
        find_program("codex", None)


@pytest.mark.slow
@pytest.mark.req("R11", "R40")
@pytest.mark.parametrize(
    "runtime", [pytest.param(name, marks=pytest.mark.needs(name)) for name in TROUPES]
)
async def test_a_real_agent_is_urged_killed_and_judged(runtime: str) -> None:
    proof, story = Proof(1, runtime=runtime), Story(trio.current_time())
    found: list[Finding] = []
    real = (runtime, find_program(runtime, str(find_part(runtime))))
    with trio.fail_after(300):
        async with open_world(
            Births(), proof, story, lambda seen, _: found.extend(seen), real=real
        ) as world:
            company = world.traffic.company
            assert company is not None
            model = company.heard[0].model
            await world.traffic.act(Act(0.0, "send", 0, STREAM))
            await model.wait_until_told(STREAM)
            await world.traffic.act(Act(0.0, "urgent", 0, URGENT))
            await model.wait_until_told(URGENT)
            await world.restart("up")
            await world.judge(random.Random(1))
            told = company.told(0, URGENT)
            await world.end()
    assert found == [], story.lines
    assert told.most == 1
    assert proof.states["surfaced"] >= 1
