"""Close what a crash left open: the journal's tail, before anything else happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import TERMINAL, DeliveryState
from agentteam_protocol.ids import Generation
from agentteam_protocol.inbox import Lane
from agentteam_supervisor.session.pending import waiting

if TYPE_CHECKING:
    from agentteam_protocol.ids import MessageId
    from agentteam_protocol.inbox import Item
    from agentteam_supervisor.session.state import Ledger, OpenTurn

ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"

SUPERVISOR_ENDED = "its supervisor ended"


def _cut_off(why: str) -> j.RunNotice:
    return j.RunNotice(
        f"this run was cut off when {why}, and is not run again; send the message again"
        " if its answer is missing"
    )


def repair(
    ledger: Ledger, epoch: int, damaged: int = 0, why: str = SUPERVISOR_ENDED
) -> list[j.JournalEvent]:
    """
    Make the records that close an open turn and begin a new epoch.

    `why` says what cut the turn: most often the end of the whole supervisor.
    A turn that the crash cut is not run again; entries in flight stay so until the
    runtime's own history tells what became of them. A delivery whose last record left
    it nowhere goes back to its lane: what moved it on did not become durable, so
    nothing was sent.
    """
    records: list[j.JournalEvent] = []
    if stranded := _stranded(ledger):
        records.append(j.InboxSpliced(j.SpliceReason.requeued, added=stranded))
    inbox = (*stranded, *waiting(ledger.lanes))
    urgents = {i.message for i in inbox if i.lane is Lane.urgent}
    for item in inbox:
        records += _superseded(item, urgents)
    if ledger.turn is not None:
        records += closing_records(ledger.turn)
        records.append(j.TurnEnd(ledger.turn.number, j.TurnOutcome.interrupted))
        if ledger.turn.steps:
            records.append(_cut_off(why))
    if ledger.alive:
        records.append(j.RunProcess(ledger.inc, alive=False, detail="supervisor died"))
    records.append(j.EpochBegun(Generation(epoch, 1), damaged))
    return records


def _stranded(ledger: Ledger) -> tuple[Item, ...]:
    somewhere = {i.id for i in waiting(ledger.lanes)} | set(ledger.in_flight)
    return tuple(
        evolve(view.item, attempt=view.attempt)
        for view in ledger.deliveries.values()
        if view.state not in TERMINAL and view.item.id not in somewhere
    )


def _superseded(item: Item, urgents: set[MessageId | None]) -> list[j.JournalEvent]:
    if item.delivery is None or item.policy is not None or item.message not in urgents:
        return []
    why = j.SpliceReason.superseded
    gone = j.DeliveryChanged(item.delivery, DeliveryState.superseded, item.attempt)
    return [j.InboxSpliced(why, removed=(item.id,)), gone]


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
    return records + closing_step(turn)


def closing_step(turn: OpenTurn) -> list[j.JournalEvent]:
    """Balance the open step, each call before its end."""
    records: list[j.JournalEvent] = []
    for call in turn.calls:
        never = call in turn.withheld
        error = ABORTED_BEFORE_DISPATCH if never else TOOL_OUTCOME_UNKNOWN
        records.append(j.ToolResult(turn.number, call, error=error))
    if turn.step_open:
        records.append(j.StepEnd(turn.number, turn.steps))
    return records
