"""A tour comes to both sides of every point, half of the time to die there twice."""

from __future__ import annotations

from collections import Counter

import pytest

from agentteam_supervisor.chaos.checker import Finding
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.registry import PATH, POINTS
from agentteam_supervisor.chaos.rows import Row, add_up
from agentteam_supervisor.chaos.tour import VISITS_OF_A_WORLD, Tour
from agentteam_supervisor.chaos.visits import LATEST_PASS, Visit, Visited, plan_visit
from agentteam_supervisor.chaos.workloads import WORKLOADS

EVERYWHERE = {
    workload.name: Counter(
        {f"{point}:{side}": 9 for point in POINTS for side in ("before", "after")}
    )
    for workload in WORKLOADS
}


def tour(seed: int = 1, visits: int = 2, jobs: int = 1, one_side: bool = False) -> Tour:
    made = Tour(seed, print, PATH, visits, jobs, one_side=one_side)
    made.passes = EVERYWHERE
    return made


def visits_of(tour: Tour) -> list[Visit]:
    return [visit for share in tour.shares() for visit in share]


@pytest.mark.parametrize("jobs", [1, 4])
def test_each_side_of_each_point_has_its_visits_however_many_worlds(jobs: int) -> None:
    visits = visits_of(tour(jobs=jobs))
    places = Counter((visit.point, visit.side) for visit in visits)
    assert places == {(p, side): 2 for p in PATH for side in ("before", "after")}
    assert all(len(share) <= VISITS_OF_A_WORLD for share in tour(jobs=jobs).shares())
    assert len(visits) == tour().planned


@pytest.mark.parametrize("seed", [1, 2])
def test_half_of_the_visits_to_each_side_die_twice(seed: int) -> None:
    for (point, side), mine in by_place(visits_of(tour(seed))).items():
        assert sorted(visit.twice for visit in mine) == [False, True], (point, side)


def by_place(visits: list[Visit]) -> dict[tuple[str, str], list[Visit]]:
    found: dict[tuple[str, str], list[Visit]] = {}
    for visit in visits:
        found.setdefault((visit.point, visit.side), []).append(visit)
    return found


def test_sides_take_turns_and_each_of_them_dies_once_and_twice() -> None:
    visits = visits_of(tour(visits=1, one_side=True))
    assert sorted(visit.point for visit in visits) == sorted(PATH)
    assert len({(visit.side, visit.twice) for visit in visits}) == 4
    next_seed = visits_of(tour(seed=2, visits=1, one_side=True))
    sides = {visit.point: visit.side for visit in visits}
    assert all(sides[visit.point] != visit.side for visit in next_seed)


def test_parts_of_other_seeds_make_the_same_visits_at_other_numbers() -> None:
    whole = {(v.point, v.side, v.twice) for v in visits_of(tour(seed=1, visits=2))}
    parts = [v for seed in (1, 2) for v in visits_of(tour(seed=seed, visits=1))]
    assert {(v.point, v.side, v.twice) for v in parts} == whole


def test_one_form_of_the_service_comes_after_the_other_in_a_world() -> None:
    made = tour()
    for share in made.shares():
        plans = [plan_visit(made.seed, visit, EVERYWHERE) for visit in share]
        apart = [plan.apart for plan in plans if plan is not None]
        assert apart == sorted(apart)


def test_a_visit_is_planned_by_its_seed_and_name_and_can_be_made() -> None:
    for visit in visits_of(tour()):
        plan = plan_visit(1, visit, EVERYWHERE)
        assert plan is not None
        assert plan == plan_visit(1, visit, EVERYWHERE)
        assert 1 <= plan.nth <= LATEST_PASS
        assert plan.mortal(visit.point) in plan.verbs
    server = Visit("store/urgent", "before", 0, False)
    daemon = Visit("effect/submit", "before", 0, False)
    for number in range(50):
        plan = plan_visit(number, server, EVERYWHERE)
        if plan is not None and plan.apart:
            assert plan.mortal(server.point) == "server"
            assert plan.mortal(daemon.point) == "daemon"


def test_nobody_can_visit_what_no_workload_passes() -> None:
    nowhere = {workload.name: Counter[str]() for workload in WORKLOADS}
    visit = Visit("store/urgent", "before", 0, False)
    assert plan_visit(1, visit, nowhere) is None


def test_rows_tell_what_was_come_to() -> None:
    made = tour()
    made.made = [
        Visited(Visit(PATH[0], "before", 0, False), 1),
        Visited(Visit(PATH[0], "after", 1, True), 2),
        Visited(Visit(PATH[0], "after", 2, False), 0),
    ]
    (row,) = made.rows()
    assert row == Row(PATH[0], 3, 3, 1, Counter({"after": 1}))
    assert Row.read(row.as_json()) == row
    assert row.cells() == [PATH[0], "3", "3", "1", "after 1"]


def test_tours_of_several_seeds_are_added_up() -> None:
    row = Row(PATH[0], 2, 3, 1, Counter({"after": 1}))
    one = Proof(1, seconds=2.0, lives=2, stops=1, worst_settle=0.5)
    one.faults["crash point"] += 3
    one.states["surfaced"] += 4
    two = Proof(2, seconds=3.0, lives=1, worst_settle=0.25)
    two.findings.append(Finding("lost", "d1", "nowhere"))
    reports = [proof.as_json() | {"points": [row.as_json()]} for proof in (one, two)]
    total, seeds, rows = add_up(reports)
    assert seeds == [1, 2]
    assert rows == [Row(PATH[0], 4, 6, 2, Counter({"after": 2}))]
    assert (total.lives, total.seconds, total.stops) == (3, 5.0, 1)
    assert (total.faults.total(), total.states.total()) == (3, 4)
    assert total.worst_settle == 0.5
    assert total.findings == two.findings
    assert "seeds 1, 2, version" in total.line("seeds 1, 2")
