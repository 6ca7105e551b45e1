"""Deliveries as rows: their identity, policy, state and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, or_, select, update

from agentteam_protocol.codec import to_wire
from agentteam_protocol.delivery import (
    DeliveryState,
    Diagnostic,
    Evidence,
    InterruptPolicy,
)
from agentteam_protocol.ids import mint
from agentteam_supervisor.server import events
from agentteam_supervisor.server.lifecycle import STANDING
from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.problems import unknown
from agentteam_supervisor.server.schema import deliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.ids import AgentId, MessageId
    from agentteam_supervisor.server.transaction import Row, Tx

# A history longer than this keeps its first and its newest entries.
HISTORY = 64

_MINE = deliveries.c.id == bindparam("delivery")
_GET = Prepared(select(deliveries).where(_MINE))
_INSERT = insertion(deliveries)
_CHANGING = ("state", "attempt", "evidence", "diagnostic", "history")
_CHANGE = Prepared(update(deliveries).where(_MINE), *_CHANGING)
_RECEIVED = Prepared(update(deliveries).where(_MINE), "received")
_OF_MESSAGE = Prepared(
    select(deliveries)
    .where(deliveries.c.message_id == bindparam("message"))
    .order_by(deliveries.c.seq)
)
_STANDING = Prepared(
    select(deliveries)
    .where(
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.agent_id == bindparam("agent"),
        deliveries.c.policy == InterruptPolicy.interrupt_current_run,
        or_(*(deliveries.c.state == state for state in sorted(STANDING))),
    )
    .order_by(deliveries.c.seq)
    .limit(1)
)


def create(
    tx: Tx, message: MessageId, agent: AgentId, policy: InterruptPolicy | None
) -> Row:
    """Make a new delivery identity; its policy stands for ever."""
    state = DeliveryState.queued
    row: dict[str, Any] = {
        "id": mint("dlv"),
        "message_id": message,
        "agent_id": agent,
        "policy": policy,
        "state": state,
        "attempt": 1,
        "received": 0,
        "evidence": None,
        "diagnostic": None,
        "history": [{"state": state, "at": tx.at}],
        "created_at": tx.at,
    }
    tx.run(_INSERT, **row)
    tx.acts.append("delivery")
    return row


def get(tx: Tx, delivery: str) -> Row | None:
    return tx.one(_GET, delivery=delivery)


def find(tx: Tx, delivery: str) -> Row:
    row = get(tx, delivery)
    if row is None:
        raise unknown("delivery", delivery)
    return row


def of_message(tx: Tx, message: MessageId) -> Sequence[Row]:
    return tx.all(_OF_MESSAGE, message=message)


def standing_urgent(tx: Tx, message: MessageId, agent: AgentId) -> Row | None:
    """Find the urgent delivery that is handed out again instead of a second one."""
    return tx.one(_STANDING, message=message, agent=agent)


def read_before(tx: Tx, message: MessageId, agent: AgentId) -> dict[str, Any] | None:
    """Say by which delivery the agent has read the message already, with the proof."""
    for row in of_message(tx, message):
        if row["agent_id"] == agent and row["state"] == DeliveryState.surfaced:
            return {"deliveryId": row["id"], "evidence": row["evidence"]}
    return None


def open_of(tx: Tx, agent: AgentId) -> Sequence[Row]:
    table = deliveries.c
    live = table.state.in_([DeliveryState.queued, DeliveryState.accepted])
    mine = table.agent_id == agent
    return tx.all(select(deliveries).where(mine, live).order_by(table.seq))


def move(
    tx: Tx,
    row: Row,
    state: DeliveryState,
    attempt: int | None = None,
    evidence: Evidence | None = None,
    diagnostic: Diagnostic | None = None,
    note: str = "",
) -> Row:
    """Write a new state with its place in the history, and tell who watches."""
    now = row["attempt"] if attempt is None else attempt
    entry = {"state": state, "at": tx.at, "attempt": now}
    values = {
        "state": state,
        "attempt": now,
        "evidence": None if evidence is None else to_wire(evidence),
        "diagnostic": None if diagnostic is None else to_wire(diagnostic),
        "history": _extended(row, {**entry, "note": note} if note else entry),
    }
    return _write(tx, row, values)


def annotate(tx: Tx, row: Row, state: DeliveryState, note: str) -> None:
    """Keep what a report said that moves nothing, such as "may have been seen twice"."""
    entry = {"state": state, "at": tx.at, "note": note}
    _write(tx, row, {"history": _extended(row, entry)})


def mark_received(tx: Tx, row: Row, attempt: int) -> None:
    received = max(row["received"], attempt)
    tx.run(_RECEIVED, delivery=row["id"], received=received)


def forget_received(tx: Tx, row: Row) -> None:
    tx.run(_RECEIVED, delivery=row["id"], received=0)


def view(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "messageId": row["message_id"],
        "agentId": row["agent_id"],
        "interruptPolicy": row["policy"],
        "state": row["state"],
        "attempt": row["attempt"],
        "evidence": row["evidence"],
        "diagnostic": row["diagnostic"],
        "history": row["history"],
        "createdAt": row["created_at"],
    }


def _write(tx: Tx, row: Row, values: dict[str, Any]) -> Row:
    after = {**row, **values}
    tx.run(_CHANGE, delivery=row["id"], **{name: after[name] for name in _CHANGING})
    events.emit(tx, "delivery", view(after))
    return after


def _extended(row: Row, entry: dict[str, Any]) -> list[dict[str, Any]]:
    history = [*row["history"], entry]
    return history if len(history) <= HISTORY else [history[0], *history[2:]]
