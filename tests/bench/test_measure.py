"""The arithmetic of the measurements."""

from __future__ import annotations

import pytest
from bench.measure import (
    Bounds,
    Goal,
    Line,
    Samples,
    Scale,
    Spread,
    Taken,
    alternate,
    compare,
    percentile,
    spread,
)
from bench.table import show


def test_a_percentile_is_a_sample_that_was_taken() -> None:
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert percentile(samples, 0.50) == 3.0
    assert percentile(samples, 0.99) == 5.0
    assert percentile(samples, 0.0) == 1.0
    assert percentile([7.0], 0.99) == 7.0


def test_a_spread_is_the_median_of_the_rounds_so_one_bad_round_decides_nothing() -> (
    None
):
    good, bad = [1.0, 2.0, 3.0], [100.0, 200.0, 300.0]
    assert spread([good, bad, good]) == Spread(2.0, 3.0)


def test_rounds_of_one_sample_have_no_tail() -> None:
    assert spread([[1.0], [3.0], [2.0]]) == Spread(2.0, None)


async def test_both_sides_are_taken_by_turns_and_the_first_round_is_thrown_away() -> (
    None
):
    order: list[str] = []

    def floor() -> Samples:
        order.append("floor")
        return [float(len(order))]

    async def ours() -> Samples:
        order.append("ours")
        return [float(len(order))]

    taken = await alternate(Scale(rounds=2), floor, ours)
    assert order == ["ours", "floor", "floor", "ours", "ours", "floor"]
    assert taken == Taken([[3.0], [6.0]], [[4.0], [5.0]])


def line(floor: float, ours: float, bounds: Bounds) -> Line:
    taken = Taken([[floor] * 100], [[ours] * 100])
    return compare("1", "what", "us", taken, bounds, floor_is="by hand")


@pytest.mark.parametrize(
    ("bounds", "met"),
    [
        (Bounds(p50=2.0), True),
        (Bounds(p50=1.4), False),
        (Bounds(p99=1.5), True),
        (Bounds(rate=1.5), True),
        (Bounds(rate=1.6), False),
    ],
)
def test_a_goal_is_judged_by_the_ratio(bounds: Bounds, met: bool) -> None:
    (goal,) = line(100.0, 150.0, bounds).goals
    assert goal.met is met


def test_the_table_shows_both_numbers_the_ratio_and_the_verdict() -> None:
    shown = show([line(100.0, 150.0, Bounds(p50=1.4))])
    assert "100 / 100" in shown
    assert "150 / 150" in shown
    assert "1.50x / 1.50x" in shown
    assert "1.4x p50 MISSED" in shown
    assert "floor: by hand" in shown


def test_a_goal_of_ours_alone_needs_no_floor() -> None:
    alone = Line(
        row="M", what="w", unit="MB", ours=Spread(59.0), goals=(Goal("60", 59, 60),)
    )
    assert alone.ratio is None
    assert "60 met" in show([alone])
