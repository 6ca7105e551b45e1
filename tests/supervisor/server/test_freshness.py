"""The compare-and-set and its parts: pure."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from agentteam_protocol.ids import Generation
from agentteam_supervisor.server.freshness import (
    EXTRAS,
    Fence,
    Fencing,
    Forwarded,
    Frontier,
    Held,
    Rejected,
    judge,
)

G = Generation(2, 5)
OPEN = Fence(G, Fencing.open)


@pytest.mark.req("R52")
@pytest.mark.inv(10)
@given(st.lists(st.integers(min_value=0, max_value=40), max_size=60))
def test_frontier_is_monotone_and_contiguous(seqs: list[int]) -> None:
    frontier, seen = Frontier(), set[int]()
    for seq in seqs:
        after = frontier.saw(seq)
        seen.add(seq)
        assert after.upto >= frontier.upto
        assert all(s in seen for s in range(1, after.upto + 1))
        assert after.upto + 1 not in after.extras
        frontier = after
    assert frontier.unseen(40) == [s for s in range(1, 41) if s not in seen]


def test_extras_are_bounded_and_what_does_not_fit_counts_as_unseen() -> None:
    frontier = Frontier().saw(*range(2, EXTRAS + 12))
    assert len(frontier.extras) == EXTRAS
    assert EXTRAS + 11 in frontier.unseen(EXTRAS + 11)


@pytest.mark.req("R51")
@pytest.mark.inv(11)
def test_send_is_forwarded_only_if_the_frontier_covers_the_head() -> None:
    assert judge(G, 2, OPEN, Frontier(3), 3) == Forwarded()
    assert judge(G, 2, OPEN, Frontier(2), 3) == Held("unseen", (3,))
    behind = Frontier(1, frozenset({3}))
    assert judge(G, 2, OPEN, behind, 4) == Held("unseen", (2, 4))


@pytest.mark.req("R40", "R43")
@pytest.mark.inv(7)
def test_fenced_generation_is_rejected_whatever_it_has_seen() -> None:
    verdict = judge(Generation(2, 4), 2, OPEN, Frontier(9), 3)
    assert isinstance(verdict, Rejected)
    assert "interrupted" in verdict.reason


@pytest.mark.req("R41")
def test_generation_on_hold_is_held_as_interrupted() -> None:
    hold = Fence(G, Fencing.hold)
    assert judge(G, 2, hold, Frontier(3), 3) == Held("interrupted", ())


def test_generation_of_a_lost_lease_is_rejected() -> None:
    assert isinstance(judge(G, 3, OPEN, Frontier(3), 3), Rejected)


def test_generation_that_the_server_has_not_heard_of_yet_is_open() -> None:
    assert judge(G.next(), 2, OPEN, Frontier(3), 3) == Forwarded()


@pytest.mark.inv(7)
def test_fenced_is_final_and_older_reports_change_nothing() -> None:
    reports = [
        (Generation(1, number), state)
        for number in (1, 2)
        for state in (Fencing.open, Fencing.hold, Fencing.fenced)
    ]
    for order in itertools.permutations(reports):
        fence, fenced = Fence(), set[Generation]()
        for gen, state in order:
            fence = fence.reported(gen, state)
            if state is Fencing.fenced:
                fenced.add(gen)
            assert all(fence.of(g) is Fencing.fenced for g in fenced)


def test_hold_goes_back_to_open_when_every_stage_failed() -> None:
    held = Fence(G, Fencing.hold)
    assert held.reported(G, Fencing.open) == Fence(G, Fencing.open)
