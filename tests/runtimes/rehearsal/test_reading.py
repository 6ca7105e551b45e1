"""Lines become events: pure, no process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from agentteam_protocol.ids import ItemId
from agentteam_runtimes.driver import (
    Asked,
    InputItem,
    ItemOutcome,
    Noticed,
    Output,
    Said,
    Surfaced,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.rehearsal.reading import KEYS_KEPT, Reading, Reply
from agentteam_runtimes.rehearsal.wire import SHAPES

ONE = InputItem(ItemId("item"), "key", "text")


def line(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields}).encode()


def started(turn: str = "t1", batch: str = "b1") -> bytes:
    return line("turn_started", turn=turn, batch=batch)


def ended(turn: str = "t1", **fields: Any) -> bytes:
    whole = {"status": "completed", "detail": "", "items": {}, "text": ""}
    return line("turn_ended", turn=turn, **(whole | fields))


def test_a_turn_is_active_between_its_start_and_its_end() -> None:
    reading = Reading()
    assert reading.read([started()]) == [TurnStarted(TurnRef("t1"), "b1")]
    assert reading.active == TurnRef("t1")
    assert not reading.has_ended(TurnRef("t1"))
    reading.read([ended()])
    assert reading.active is None
    assert reading.has_ended(TurnRef("t1"))


@pytest.mark.bug("B28")
def test_the_end_of_an_old_turn_does_not_end_the_next() -> None:
    reading = Reading()
    reading.read([started("t1"), started("t2")])
    (event,) = reading.read([ended("t1")])
    assert isinstance(event, TurnEnded)
    assert event.turn == TurnRef("t1")
    assert reading.active == TurnRef("t2")


@pytest.mark.bug("B25")
def test_a_turn_ends_once_and_starts_once() -> None:
    reading = Reading()
    reading.read([started(), ended()])
    again = reading.read([started(), ended(), ended("t9")])
    assert [type(event) for event in again] == [Noticed, Noticed, Noticed]


def test_a_line_of_an_unknown_turn_has_no_turn() -> None:
    reading = Reading()
    asked = line("asked", turn="t9", ask="a", tool="x", input="", reason=None)
    output, ask = reading.read([line("delta", turn="t9", text="x"), asked])
    assert output == Output(None, "x")
    assert isinstance(ask, Asked)
    assert ask.turn is None


def test_pieces_that_follow_each_other_are_one_and_nothing_overtakes_them() -> None:
    a, b, c = (line("delta", turn="t1", text=text) for text in "abc")
    said = line("said", turn="t1", text="ab")
    read = Reading().read([started(), a, b, said, b, b"noise", c, ended(), a, b])
    turn = TurnRef("t1")
    assert [each for each in read if isinstance(each, Output | Said)] == [
        Output(turn, "ab"),
        Said(turn, "ab"),
        Output(turn, "b"),
        Output(turn, "c"),
        Output(turn, "a"),  # after its end they are no stream any more
        Output(turn, "b"),
    ]
    kinds = [type(each) for each in read[3:8]]
    assert kinds == [Output, Noticed, Output, TurnEnded, Output]


@pytest.mark.bug("B25")
def test_pieces_of_two_turns_are_never_joined() -> None:
    read = Reading().read(
        [
            started("t1"),
            line("delta", turn="t1", text="a"),
            started("t2"),
            line("delta", turn="t1", text="late"),
            line("delta", turn="t2", text="b"),
            line("delta", turn="t9", text="strange"),
        ]
    )
    outputs = [each for each in read if isinstance(each, Output)]
    assert outputs == [
        Output(TurnRef("t1"), "a"),
        Output(TurnRef("t1"), "late"),
        Output(TurnRef("t2"), "b"),
        Output(None, "strange"),
    ]


def test_only_our_keys_of_known_turns_are_surfaced() -> None:
    reading = Reading()
    reading.expect([ONE])
    early, _, known, unknown = reading.read(
        [
            line("surfaced", turn="t1", key="key"),
            started(),
            line("surfaced", turn="t1", key="key"),
            line("surfaced", turn="t1", key="other"),
        ]
    )
    assert isinstance(early, Noticed)
    assert isinstance(unknown, Noticed)
    assert isinstance(known, Surfaced)
    assert (known.item, known.key) == ("item", "key")
    assert known.evidence.kind == "recorded"


def test_the_end_names_our_entries_and_no_others() -> None:
    reading = Reading()
    reading.expect([ONE])
    items = {"key": "dropped", "other": "dropped"}
    _, event = reading.read([started(), ended(items=items)])
    assert isinstance(event, TurnEnded)
    assert event.items == {ONE.id: ItemOutcome.dropped}


@pytest.mark.parametrize("word", ["eaten", 5, None, ["dropped"]])
def test_an_unknown_outcome_decides_nothing(word: Any) -> None:
    reading = Reading()
    reading.expect([ONE])
    _, event = reading.read([started(), ended(items={"key": word})])
    assert isinstance(event, TurnEnded)
    assert event.items == {ONE.id: ItemOutcome.unknown}


def test_an_unknown_status_is_a_failure_that_names_it() -> None:
    _, event = Reading().read([started(), ended(status="success", detail="d")])
    assert isinstance(event, TurnEnded)
    assert (event.status, event.detail) == (TurnStatus.failed, "ended as success: d")


def test_replies_stay_in_the_order_of_the_stream() -> None:
    read = Reading().read([started(), line("reply", id=3), ended()])
    assert [type(each) for each in read] == [TurnStarted, Reply, TurnEnded]


@pytest.mark.bug("B15")
@pytest.mark.parametrize("kind", list(SHAPES))
def test_a_line_with_a_part_missing_is_noise(kind: str) -> None:
    reading = Reading()
    assert [type(each) for each in reading.read([line(kind)])] == [Noticed]
    assert reading.noise.lines == 1


@pytest.mark.bug("B15")
def test_noise_is_counted_and_shown_ever_more_seldom() -> None:
    reading = Reading()
    notices = reading.read([b"noise"] * 100_000)
    assert reading.noise.lines == 100_000
    assert len(notices) == 20 + 12


def test_the_keys_of_lost_entries_do_not_pile_up() -> None:
    reading = Reading()
    for n in range(KEYS_KEPT + 10):
        reading.expect([InputItem(ItemId(f"i{n}"), f"k{n}", "")])
    first, last = f"k{9}", f"k{KEYS_KEPT + 9}"
    reading.read([started()])
    old = reading.read([line("surfaced", turn="t1", key=first)])
    new = reading.read([line("surfaced", turn="t1", key=last)])
    assert isinstance(old[0], Noticed)
    assert isinstance(new[0], Surfaced)


@given(st.lists(st.binary()))
def test_no_bytes_end_the_reading(lines: list[bytes]) -> None:
    Reading().read(lines)


@given(
    st.sampled_from(list(SHAPES)),
    st.dictionaries(
        st.sampled_from(sorted({name for shape in SHAPES.values() for name in shape})),
        st.sampled_from([None, "", "t1", "key", 0, 7, [], {}, {"key": "x"}, True]),
    ),
)
def test_no_line_of_a_known_type_ends_the_reading(
    kind: str, fields: dict[str, Any]
) -> None:
    reading = Reading()
    reading.expect([ONE])
    reading.read([started(), line(kind, **fields)])
