"""Every crash point that is listed is passed by some workload of a tour."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from agentteam_supervisor.chaos.births import open_fork_server
from agentteam_supervisor.chaos.registry import NO_POINTS, POINTS
from agentteam_supervisor.chaos.tour import Tour


@pytest.mark.slow
async def test_every_listed_point_is_passed_by_a_workload_and_no_other() -> None:
    story: list[str] = []
    tour = Tour(1, story.append, tuple(POINTS), visits=1, jobs=2)
    with trio.fail_after(300):
        async with open_fork_server() as births:
            passes = await tour.measure(births)
    assert tour.proof.ok, "\n".join(story)
    reached = {place.rpartition(":")[0] for place in sum(passes.values(), Counter())}
    assert set(POINTS) - reached == set()
    assert reached - {*POINTS, *NO_POINTS} == set()
