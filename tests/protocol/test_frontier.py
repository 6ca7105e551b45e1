"""The freshness frontier never forgets, never skips and never claims too much."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from agentteam_protocol.frontier import MAX_EXTRAS, Frontier

SEQ = st.integers(1, 40)
SEQS = st.lists(SEQ, max_size=8)
# A step is a floor, or what was surfaced.
STEPS = st.lists(SEQ | SEQS, max_size=12)


def walked(steps: list[int | list[int]]) -> list[Frontier]:
    found = [Frontier()]
    for step in steps:
        last = found[-1]
        found.append(last.raised(step) if isinstance(step, int) else last.saw(step))
    return found


def seen(frontier: Frontier) -> set[int]:
    return {seq for seq in range(1, 50) if frontier.covers(seq)}


@pytest.mark.inv(9)
@given(STEPS)
def test_it_covers_exactly_what_was_seen_or_lies_below_a_floor(
    steps: list[int | list[int]],
) -> None:
    expected: set[int] = set()
    for step in steps:
        expected |= set(range(1, step + 1)) if isinstance(step, int) else set(step)
    assert seen(walked(steps)[-1]) == expected


@pytest.mark.req("R52")
@pytest.mark.inv(10)
@given(STEPS)
def test_it_is_monotone(steps: list[int | list[int]]) -> None:
    frontiers = walked(steps)
    for before, after in pairwise(frontiers):
        assert before.contiguous <= after.contiguous
        assert seen(before) <= seen(after)


@given(STEPS)
def test_its_extras_lie_beyond_a_gap(steps: list[int | list[int]]) -> None:
    frontier = walked(steps)[-1]
    assert all(extra > frontier.contiguous + 1 for extra in frontier.extras)


@given(STEPS, st.integers(0, 45))
def test_the_unseen_are_the_rest_up_to_the_head(
    steps: list[int | list[int]], head: int
) -> None:
    frontier = walked(steps)[-1]
    expected = [seq for seq in range(1, head + 1) if not frontier.covers(seq)]
    assert frontier.unseen(head) == expected


@given(SEQS)
def test_the_order_of_surfacing_does_not_matter(seqs: list[int]) -> None:
    one_by_one = Frontier()
    for seq in seqs:
        one_by_one = one_by_one.saw([seq])
    assert one_by_one == Frontier().saw(seqs) == Frontier().saw(reversed(seqs))


def test_beyond_its_bound_it_forgets_the_highest_and_never_claims_more() -> None:
    frontier = Frontier().saw(range(2, MAX_EXTRAS + 100))
    assert len(frontier.extras) == MAX_EXTRAS
    assert frontier.contiguous == 0
    assert frontier.covers(MAX_EXTRAS + 1)
    assert not frontier.covers(MAX_EXTRAS + 2)
    assert frontier.saw([1]).contiguous == MAX_EXTRAS + 1
