"""What a turn cost, by the runtime's own count."""

from __future__ import annotations

from tests.kit.driving import Drive, urgent

from agentteam_protocol import journal as j
from agentteam_protocol.ids import ItemId
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx

COST = {"totalTokens": 15}


def test_the_end_of_a_turn_carries_what_the_runtime_counted() -> None:
    drive = Drive().running()
    drive.surface(ItemId("first"))
    turn = drive.turn
    assert turn is not None
    drive.hear(d.TurnEnded(turn, d.TurnStatus.completed, usage=COST))
    (end,) = drive.records(j.TurnEnd)
    assert isinstance(end, j.TurnEnd)
    assert (end.outcome, end.usage) == (j.TurnOutcome.completed, COST)


def test_a_turn_that_was_cut_has_cost_something_all_the_same() -> None:
    drive = Drive().running()
    drive.surface(ItemId("first"))
    turn = drive.turn
    assert turn is not None
    drive.deliver(urgent("u", 1))
    drive.hear(d.TurnEnded(turn, d.TurnStatus.interrupted, usage=COST))
    drive.turn = None  # it is over, and answers no interrupt
    drive.owed = [e for e in drive.owed if not isinstance(e, fx.Interrupt)]
    drive.settle()
    first = drive.records(j.TurnEnd)[0]
    assert isinstance(first, j.TurnEnd)
    assert (first.outcome, first.usage) == (j.TurnOutcome.aborted, COST)
