"""The inbox: lanes in their order, first in first out, one target in a batch."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given, strategies as st
from tests.kit.driving import followup, injected, ordinary, steering, urgent

from agentteam_protocol.ids import ItemId, MessageId
from agentteam_protocol.inbox import Item, Lane
from agentteam_supervisor.session.pending import (
    copies,
    find,
    first_of_target,
    next_batch,
    next_step_batch,
    spliced,
    waiting,
)

EMPTY: dict[Lane, tuple[Item, ...]] = dict.fromkeys(Lane, ())


def lanes_of(*items: Item) -> dict[Lane, tuple[Item, ...]]:
    placed = [
        evolve(item, position=n, lane=Lane.urgent if item.policy else item.lane)
        for n, item in enumerate(items, 1)
    ]
    return dict(spliced(EMPTY, (), placed))


def ids(items: tuple[Item, ...]) -> list[str]:
    return [str(item.id) for item in items]


@pytest.mark.req("R108")
@pytest.mark.inv(14)
@given(order=st.permutations(range(6)))
def test_an_entry_comes_back_to_its_place(order: list[int]) -> None:
    items = [evolve(followup(f"f{n}"), position=n) for n in range(6)]
    lanes = EMPTY
    for n in order:
        lanes = dict(spliced(lanes, (), (items[n],)))
    assert ids(lanes[Lane.next_turn]) == [f"f{n}" for n in range(6)]
    taken = spliced(lanes, (ItemId("f2"),), ())
    assert ids(spliced(taken, (), (items[2],))[Lane.next_turn])[2] == "f2"


def test_everything_that_waits_is_listed_lane_by_lane() -> None:
    lanes = lanes_of(followup("f"), steering("s"), urgent("u", 1))
    assert ids(waiting(lanes)) == ["dlv_u", "s", "f"]
    assert find(lanes, ItemId("s")) is not None
    assert find(lanes, ItemId("none")) is None


def test_copies_are_the_other_entries_of_a_message() -> None:
    lanes = lanes_of(ordinary("x", 1, message="m"), urgent("u", 1, message="m"))
    assert ids(copies(lanes, MessageId("m"), ItemId("dlv_u"))) == ["dlv_x"]


def test_an_entry_waits_behind_its_own_target_and_no_other() -> None:
    lanes = lanes_of(ordinary("x", 1), ordinary("y", 2), ordinary("z", 1, "tgt_b"))
    first, second, other = lanes[Lane.next_step]
    assert first_of_target(lanes, first)
    assert not first_of_target(lanes, second)
    assert first_of_target(lanes, other)


def test_a_steer_does_not_wait_behind_a_followup_but_behind_an_inject() -> None:
    after_followup = lanes_of(followup("f"), steering("s"))
    assert first_of_target(after_followup, after_followup[Lane.next_step][0])
    after_inject = lanes_of(injected("i"), steering("s"))
    assert not first_of_target(after_inject, after_inject[Lane.next_step][1])


@pytest.mark.inv(15)
def test_the_urgent_batch_has_its_lower_sequences_in_front() -> None:
    lanes = lanes_of(
        ordinary("later", 5),
        ordinary("b", 2),
        ordinary("a", 1),
        ordinary("other", 1, "tgt_b"),
        urgent("u", 3),
        urgent("w", 4),
        urgent("v", 1, "tgt_b"),
    )
    batch = ids(next_batch(lanes, together=True))
    assert batch == ["dlv_a", "dlv_b", "dlv_u", "dlv_w"]
    assert ids(next_batch(lanes, together=False)) == ["dlv_u"]


def test_an_urgent_entry_without_a_target_goes_alone() -> None:
    lanes = lanes_of(steering("s"), evolve(urgent("u", 1), target=None))
    assert ids(next_batch(lanes, together=True)) == ["dlv_u"]


def test_a_batch_has_one_target_and_host_input_between() -> None:
    lanes = lanes_of(
        steering("s"), ordinary("x", 1), steering("t"), ordinary("y", 1, "tgt_b")
    )
    assert ids(next_batch(lanes, together=True)) == ["s", "dlv_x", "t"]
    assert ids(next_batch(lanes, together=False)) == ["s"]
    assert ids(next_step_batch(lanes)) == ["s", "dlv_x", "t"]


@pytest.mark.req("R108")
def test_an_inject_goes_along_with_the_oldest_followup_in_their_order() -> None:
    lanes = lanes_of(injected("i"), followup("f"), followup("g"))
    assert ids(next_batch(lanes, together=True)) == ["i", "f"]
    lanes = lanes_of(followup("f"), injected("i"))
    assert ids(next_batch(lanes, together=True)) == ["f", "i"]


def test_a_followup_is_a_turn_of_its_own_behind_what_wakes() -> None:
    lanes = lanes_of(followup("f"), steering("s"))
    assert ids(next_batch(lanes, together=True)) == ["s"]
    assert next_batch(EMPTY, together=True) == ()
