"""What the model reads of an entry."""

from __future__ import annotations

from typing import Any

import pytest

from agentteam_protocol.delivery import Author, AuthorKind, DeliveryState
from agentteam_protocol.ids import DeliveryId, Generation, ItemId, RunId, TargetId
from agentteam_protocol.inbox import Item, Lane
from agentteam_protocol.journal import (
    DeliveryChanged,
    JournalEvent,
    RunSession,
    SendDecided,
    StepStart,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)
from agentteam_supervisor.session.prompt import (
    DRAFT_HELD,
    HISTORY_LOST,
    Notes,
    compose,
)

GEN = Generation(1, 1)
START = TurnStart(1, RunId("run_1"), GEN)


def _item(body: str, **more: Any) -> Item:
    return Item(ItemId("itm_1"), body, Lane.next_step, **more)


def _sent(verdict: str, text: str = "done", *, auto_reply: bool = False) -> SendDecided:
    target = TargetId("tgt_1")
    return SendDecided(GEN, target, verdict, text=text, auto_reply=auto_reply)


@pytest.mark.req("R10")
@pytest.mark.parametrize(
    "body", ["hello", "", " two\r\nlines\t", "[#x 1 from y]\n", "加急\0"]
)
def test_direct_target_gives_the_body_byte_for_byte(body: str) -> None:
    (item,) = compose([_item(body, target=TargetId("tgt_1"), seq=4)])
    assert item.text == body
    assert item.key == "itm_1.1"


@pytest.mark.parametrize("name", ["plans", "#plans"])
def test_group_target_has_one_header_line_above_the_body(name: str) -> None:
    alice = Author(AuthorKind.user, "alice")
    item = _item(
        "hello",
        target=TargetId("tgt_1"),
        target_name=name,
        direct=False,
        seq=42,
        author=alice,
    )
    assert compose([item])[0].text == "[#plans 42 from alice]\nhello"


def test_host_input_has_no_header() -> None:
    assert compose([_item("hello", direct=False)])[0].text == "hello"


def test_notes_stand_above_the_first_entry_only() -> None:
    first, second = compose([_item("a"), _item("b")], ["[note: x]", "[note: y]"])
    assert first.text == "[note: x]\n[note: y]\na"
    assert second.text == "b"


def test_cut_turn_owes_the_next_one_its_public_sends() -> None:
    notes = Notes()
    for event in (
        START,
        _sent("forwarded", "first\nline " + "x" * 100),
        _sent("held", "not this"),
        TurnEnd(1, TurnOutcome.aborted),
    ):
        notes = notes.after(event)
    (line,) = notes.due
    assert "tgt_1" in line
    assert "first line" in line
    assert "\n" not in line
    assert len(line) < 200


def test_turn_that_completed_owes_nothing() -> None:
    notes = Notes()
    for event in (START, _sent("forwarded"), TurnEnd(1, TurnOutcome.completed)):
        notes = notes.after(event)
    assert notes.due == ()
    # Nor does the one after it, when that is cut.
    for event in (START, TurnEnd(2, TurnOutcome.aborted)):
        notes = notes.after(event)
    assert notes.due == ()


def test_held_draft_is_told_once() -> None:
    notes = Notes()
    for _ in range(2):
        notes = notes.after(_sent("held", auto_reply=True))
    assert notes.due == (DRAFT_HELD,)


ITEM = ItemId("dlv_1")
GIVEN = (RunSession("new", lost=True), START, StepStart(1, 1, (ITEM, ItemId("b"))))
SURFACED = DeliveryChanged(DeliveryId("dlv_1"), DeliveryState.surfaced)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((UserMessage(1, ITEM, "hello"),), True),
        # A restart finds in the runtime's history that it was read.
        ((TurnEnd(1, TurnOutcome.interrupted), SURFACED), True),
        ((TurnEnd(1, TurnOutcome.completed),), True),
        ((UserMessage(1, ItemId("steered"), "hello"),), False),
        ((DeliveryChanged(DeliveryId("dlv_1"), DeliveryState.accepted),), False),
        ((TurnEnd(1, TurnOutcome.aborted),), False),
        # The next turn was given nothing.
        (
            (
                TurnEnd(1, TurnOutcome.aborted),
                TurnStart(2, RunId("run_2"), GEN),
                TurnEnd(2, TurnOutcome.completed),
            ),
            False,
        ),
    ],
)
def test_what_was_given_is_owed_until_the_agent_has_it(
    events: tuple[JournalEvent, ...], told: bool
) -> None:
    notes = Notes()
    for event in (*GIVEN, *events):
        notes = notes.after(event)
    assert notes.due == (() if told else (HISTORY_LOST,))


def test_what_came_after_the_submission_is_owed_to_the_next() -> None:
    notes = Notes()
    told = UserMessage(1, ITEM, "hello")
    for event in (*GIVEN, _sent("held", auto_reply=True), told):
        notes = notes.after(event)
    assert notes.given == ()
    assert notes.due == (DRAFT_HELD,)
