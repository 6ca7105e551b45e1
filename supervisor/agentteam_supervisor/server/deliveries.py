"""Deliveries as rows: their identity, policy, state and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

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
from agentteam_supervisor.server.problems import unknown
from agentteam_supervisor.server.schema import deliveries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.ids import AgentId, MessageId
    from agentteam_supervisor.server.transaction import Row, Tx

# A history longer than this keeps its first and its newest entries.
HISTORY = 64


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
    tx.run(insert(deliveries).values(row))
    tx.acts.append("delivery")
    return row


def get(tx: Tx, delivery: str) -> Row | None:
    return tx.one(select(deliveries).where(deliveries.c.id == delivery))


def find(tx: Tx, delivery: str) -> Row:
    row = get(tx, delivery)
    if row is None:
        raise unknown("delivery", delivery)
    return row


def of_message(tx: Tx, message: MessageId) -> Sequence[Row]:
    mine = deliveries.c.message_id == message
    return tx.all(select(deliveries).where(mine).order_by(deliveries.c.seq))


def standing_urgent(tx: Tx, message: MessageId, agent: AgentId) -> Row | None:
    """Find the urgent delivery that is handed out again instead of a second one."""
    table = deliveries.c
    mine = (table.message_id == message) & (table.agent_id == agent)
    urgent = table.policy == InterruptPolicy.interrupt_current_run
    return tx.one(
        select(deliveries)
        .where(mine, urgent, table.state.in_(STANDING))
        .order_by(table.seq)
        .limit(1)
    )


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
    mine = deliveries.c.id == row["id"]
    tx.run(update(deliveries).where(mine).values(received=received))


def forget_received(tx: Tx, row: Row) -> None:
    mine = deliveries.c.id == row["id"]
    tx.run(update(deliveries).where(mine).values(received=0))


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
    tx.run(update(deliveries).where(deliveries.c.id == row["id"]).values(values))
    after = find(tx, row["id"])
    events.emit(tx, "delivery", view(after))
    return after


def _extended(row: Row, entry: dict[str, Any]) -> list[dict[str, Any]]:
    history = [*row["history"], entry]
    return history if len(history) <= HISTORY else [history[0], *history[2:]]
