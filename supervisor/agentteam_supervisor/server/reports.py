"""
What the daemon tells, applied to the store: every report is idempotent.

Reports of an agent that was deleted, or of a delivery that does not exist, change
nothing: the daemon hears of the deletion on its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.codec import to_wire
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.frames import (
    ActivityReported,
    AgentTroubled,
    ApprovalReported,
    ControlReported,
    DeliveryReceived,
    DeliveryReported,
    FenceReported,
    Frame,
    FrontierReported,
    RunReported,
    SendAsked,
    SendRequested,
    StatusReported,
)
from agentteam_supervisor.server import (
    activities,
    agents,
    approvals,
    controls,
    deliveries,
    frontiers,
    messages,
    runs,
    sends,
)
from agentteam_supervisor.server.freshness import fencing
from agentteam_supervisor.server.lifecycle import moves

if TYPE_CHECKING:
    from agentteam_supervisor.server.transaction import Row, Tx

Report = (
    DeliveryReported
    | ControlReported
    | ActivityReported
    | StatusReported
    | AgentTroubled
    | FenceReported
    | FrontierReported
    | RunReported
    | ApprovalReported
)


def apply(tx: Tx, frame: Frame) -> None:
    """Apply a numbered frame of the daemon, or one that is answered by number."""
    tx.acts.append(frame)
    match frame:
        case DeliveryReceived():
            _received(tx, frame)
        case SendRequested():
            sends.request(tx, frame)
        case SendAsked():
            sends.answer(tx, frame)
        case (
            DeliveryReported()
            | ControlReported()
            | ActivityReported()
            | StatusReported()
            | AgentTroubled()
            | FenceReported()
            | FrontierReported()
            | RunReported()
            | ApprovalReported()
        ):
            agent = agents.get(tx, frame.agent)
            if agent is not None:
                _report(tx, agent, frame)
        case _:
            pass  # a frame of the other direction says nothing to us


def _report(tx: Tx, agent: Row, frame: Report) -> None:
    match frame:
        case DeliveryReported():
            _delivery(tx, agent, frame)
        case ControlReported():
            controls.report(tx, agent, frame)
        case ActivityReported():
            activities.record(tx, agent, frame)
        case StatusReported():
            _status(tx, agent, frame)
        case AgentTroubled():
            _trouble(tx, agent, frame)
        case FenceReported():
            frontiers.fence(tx, agent, frame.gen, fencing(frame.fence))
        case FrontierReported():
            frontiers.advance(tx, agent["id"], frame.target, *frame.seqs)
        case RunReported():
            runs.record(tx, frame)
        case ApprovalReported():
            if approvals.record(tx, frame):
                agents.tell(tx, agent["id"])


def _received(tx: Tx, frame: DeliveryReceived) -> None:
    row = deliveries.get(tx, frame.delivery)
    if row is not None:
        deliveries.mark_received(tx, row, frame.attempt)


def _delivery(tx: Tx, agent: Row, frame: DeliveryReported) -> None:
    row = deliveries.get(tx, frame.delivery)
    if row is None or row["agent_id"] != agent["id"]:
        return
    state = DeliveryState(row["state"])
    if not moves(state, row["attempt"], frame.state, frame.attempt):
        if frame.note:
            deliveries.annotate(tx, row, state, frame.note)
        return
    deliveries.move(
        tx,
        row,
        frame.state,
        frame.attempt,
        frame.evidence,
        frame.diagnostic,
        frame.note,
    )
    if frame.state is DeliveryState.surfaced:
        _surfaced(tx, row)


def _surfaced(tx: Tx, delivery: Row) -> None:
    """Move the frontier: this is the one place where a delivery does (R44)."""
    message = messages.find(tx, delivery["message_id"])
    frontiers.advance(
        tx, delivery["agent_id"], message["target_id"], message["target_seq"]
    )


def _status(tx: Tx, agent: Row, frame: StatusReported) -> None:
    if frame.epoch < agent["lease_epoch"]:
        return  # of a session that no longer is
    agents.set_status(tx, agent["id"], to_wire(frame))


def _trouble(tx: Tx, agent: Row, frame: AgentTroubled) -> None:
    """The last status stays, with this problem, until there is a new one."""
    if frame.epoch >= agent["lease_epoch"]:
        problem = to_wire(frame.problem)
        agents.set_status(tx, agent["id"], {**agent["status"], "problem": problem})
