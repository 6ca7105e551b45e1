"""Restart intensity, tested with numbers."""

from __future__ import annotations

import pytest

from agentteam_supervisor.daemon.restarts import Intensity, judge

FIVE = Intensity(failures=5, first=1.0, cap=10.0, healthy=60.0)


def play(gaps: list[float], intensity: Intensity = FIVE) -> list[float | None]:
    """Fail again and again: each run lasts so long, after the pause before it."""
    now = 1000.0
    failures: tuple[float, ...] = ()
    waits: list[float | None] = []
    for gap in gaps:
        now += gap + (waits[-1] or 0.0 if waits else 0.0)
        verdict = judge(failures, now, intensity)
        failures = verdict.failures
        waits.append(verdict.wait)
    return waits


@pytest.mark.bug("B11")
def test_delays_grow_to_a_cap_and_then_it_is_given_up() -> None:
    assert play([0.05] * 7) == [1.0, 2.0, 4.0, 8.0, 10.0, None, None]


@pytest.mark.bug("B11")
def test_a_start_that_succeeds_and_dies_does_not_renew_the_budget() -> None:
    # Each run lives for most of the healthy time, and that is not enough.
    assert play([59.0] * 6)[-1] is None


@pytest.mark.bug("B11")
def test_a_long_healthy_run_forgives_what_was_before_it() -> None:
    assert play([0.1, 0.1, 0.1, 60.5, 0.1]) == [1.0, 2.0, 4.0, 1.0, 2.0]


@pytest.mark.bug("B11")
def test_the_pause_is_no_part_of_the_run_after_it() -> None:
    slow = Intensity(failures=9, first=100.0, cap=100.0, healthy=60.0)
    assert play([1.0] * 10, slow)[-1] is None


def test_a_single_failure_is_tried_again_after_the_first_delay() -> None:
    verdict = judge((), 5.0, FIVE)
    assert (verdict.wait, verdict.failures) == (1.0, (5.0,))


def test_the_list_of_failures_stays_bounded_by_giving_up_or_forgiving() -> None:
    failures: tuple[float, ...] = ()
    for number in range(1000):
        failures = judge(failures, number * 200.0, FIVE).failures
    assert len(failures) == 1
