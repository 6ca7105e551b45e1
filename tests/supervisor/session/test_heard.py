"""Pieces of text that came in one read are one piece; nothing else is touched."""

from __future__ import annotations

from agentteam_runtimes.driver import (
    Noticed,
    Output,
    RuntimeEvent,
    Said,
    ToolEnded,
    TurnRef,
)
from agentteam_supervisor.session.heard import joined

ONE, TWO = TurnRef("turn-1"), TurnRef("turn-2")


def test_pieces_of_one_read_are_shown_as_one() -> None:
    pieces = [Output(ONE, "a "), Output(ONE, "b "), Output(TurnRef("turn-1"), "c")]
    assert joined(pieces) == [Output(ONE, "a b c")]


def test_text_keeps_its_turn_and_its_place_between_other_events() -> None:
    events: list[RuntimeEvent] = [
        Output(ONE, "a"),
        Output(TWO, "b"),
        Output(None, "c"),
        Said(ONE, "a"),
        Output(ONE, "d"),
        Output(ONE, "e"),
    ]
    assert joined(events) == [*events[:4], Output(ONE, "de")]


def test_events_that_are_equal_are_all_kept() -> None:
    twice: list[RuntimeEvent] = [
        Noticed("noise"),
        Noticed("noise"),
        ToolEnded(ONE, "1"),
        ToolEnded(ONE, "1"),
    ]
    assert joined(twice) == twice
    assert joined([]) == []
