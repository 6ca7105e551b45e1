"""The seed decides what a campaign does."""

from __future__ import annotations

import json

from agentteam_runtimes.rehearsal.script import parse_steps
from agentteam_supervisor.chaos.plan import plan_life
from agentteam_supervisor.chaos.points import parse
from agentteam_supervisor.chaos.scripts import STEPS


def test_the_same_seed_and_number_plan_the_same_life() -> None:
    assert plan_life(7, 3) == plan_life(7, 3)
    assert plan_life(7, 3) != plan_life(7, 4)
    assert plan_life(7, 3) != plan_life(8, 3)


def test_every_planned_crash_is_a_point() -> None:
    for number in range(500):
        crash = plan_life(1, number).crash
        assert not crash or str(parse(crash)) == crash


def test_every_script_can_be_played() -> None:
    parse_steps(json.loads(json.dumps([step for _, step in STEPS])))
