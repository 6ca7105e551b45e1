"""The ledger of turns is a fold of the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentteam_protocol.codec import to_wire
from agentteam_protocol.control import CutCause
from agentteam_protocol.ids import Generation, ItemId, RunId
from agentteam_protocol.journal import (
    KINDS,
    AssistantMessage,
    FenceClosed,
    FenceLate,
    InterruptRequested,
    RunNotice,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)
from agentteam_supervisor.cli.ledger import ledger_lines, turns_of

if TYPE_CHECKING:
    from agentteam_protocol.journal import JournalEvent

GEN = Generation(1, 4)
RUN = RunId("run_1")


def wire(*events: JournalEvent) -> list[dict[str, Any]]:
    return [
        {"seq": n, "at": "", "event": {"kind": KINDS[type(e)], **to_wire(e)}}
        for n, e in enumerate(events, 1)
    ]


CUT = (
    RunNotice("history not available"),
    TurnStart(1, RUN, GEN),
    StepStart(1, 1),
    UserMessage(1, ItemId("itm_1"), "old\ntask"),
    AssistantMessage(1, "half of", partial=True),
    ToolCall(1, "c1", "shell", "sleep 60"),
    InterruptRequested(GEN, RUN, CutCause.urgent, who="@ann"),
    ToolResult(1, "c1", error="TOOL_OUTCOME_UNKNOWN"),
    StepEnd(1, 1),
    TurnEnd(1, TurnOutcome.aborted, CutCause.urgent),
    FenceClosed(GEN, GEN.next()),
    FenceLate(GEN, "output", "too late"),
    TurnStart(2, RUN, GEN.next()),
    UserMessage(2, ItemId("itm_2"), "new task"),
    AssistantMessage(2, "done"),
    TurnEnd(2, TurnOutcome.completed),
)


@pytest.mark.req("R38", "R39")
def test_a_cut_turn_reads_from_top_to_bottom() -> None:
    runs = [{"turn": 1, "startedAt": "2026-01-01T00:00:00Z"}]
    assert list(ledger_lines(runs, wire(*CUT))) == [
        "  i history not available",
        "turn 1  run_1  1.4  2026-01-01T00:00:00Z",
        "  > old task",
        "  < half of [cut here]",
        "  * shell sleep 60",
        "  ! interrupt: urgent by @ann",
        "    = TOOL_OUTCOME_UNKNOWN",
        "  = aborted (urgent)",
        "  | generation 1.4 is closed",
        "  ~ late, not shown live: output too late",
        "turn 2  run_1  1.5",
        "  > new task",
        "  < done",
        "  = completed",
    ]


def test_the_last_turns_can_be_asked_for() -> None:
    lines = list(ledger_lines([], wire(*CUT), last=1))
    assert lines[0].startswith("turn 2")
    assert len(list(ledger_lines([], wire(*CUT), last=5))) == 14


def test_what_happened_between_turns_belongs_to_none() -> None:
    assert [t.number for t in turns_of(wire(*CUT))] == [None, 1, None, 2]


def test_an_empty_journal_is_an_empty_ledger() -> None:
    assert list(ledger_lines([], [])) == []


def test_control_characters_of_an_agent_do_not_reach_the_terminal() -> None:
    events = wire(TurnStart(1, RUN, GEN), AssistantMessage(1, "a\x1b]0;b\x07"))
    assert list(ledger_lines([], events))[1] == "  < a?]0;b?"
