"""Close what a crash left open: the journal's tail, before anything else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import Generation

if TYPE_CHECKING:
    from agentteam_supervisor.session.state import Ledger, OpenTurn

ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"


def repair(ledger: Ledger, epoch: int, damaged: int = 0) -> list[j.JournalEvent]:
    """
    Make the records that close an open turn and begin a new epoch.

    A turn that the crash cut is not run again; entries in flight stay so until the
    runtime's own history tells what became of them.
    """
    records: list[j.JournalEvent] = []
    if ledger.turn is not None:
        records += closing_records(ledger.turn)
        records.append(j.TurnEnd(ledger.turn.number, j.TurnOutcome.interrupted))
    if ledger.alive:
        records.append(j.RunProcess(ledger.inc, alive=False, detail="supervisor died"))
    records.append(j.EpochBegun(Generation(epoch, 1), damaged))
    return records


def closing_records(turn: OpenTurn) -> list[j.JournalEvent]:
    """
    Balance an open turn: a result for each call, an outcome for each ask, the step.

    A call that was never allowed to start was aborted before dispatch; one that was
    started has an unknown outcome, since side effects are possible.
    """
    records: list[j.JournalEvent] = [
        j.ApprovalDecided(turn.number, ask, ApprovalOutcome.cancelled)
        for ask in turn.asks
    ]
    for call in turn.calls:
        never = call in turn.withheld
        error = ABORTED_BEFORE_DISPATCH if never else TOOL_OUTCOME_UNKNOWN
        records.append(j.ToolResult(turn.number, call, error=error))
    if turn.step_open:
        records.append(j.StepEnd(turn.number, turn.steps))
    return records
