"""What a person decides about a delivery that is not going anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.control import Resolution
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.frames import AgentResolve
from agentteam_supervisor.server import agents, deliveries, messages, outbox
from agentteam_supervisor.server.lifecycle import DISMISSABLE, REDELIVERABLE
from agentteam_supervisor.server.problems import conflict

if TYPE_CHECKING:
    from agentteam_supervisor.server.transaction import Row, Tx


def resolve(tx: Tx, delivery: Row, resolution: Resolution) -> Row:
    """Apply a decision; raises `Problem` where the state leaves nothing to decide."""
    match resolution:
        case Resolution.redeliver:
            return _redeliver(tx, delivery)
        case Resolution.dismiss:
            return _dismiss(tx, delivery)


def _redeliver(tx: Tx, delivery: Row) -> Row:
    """Send it once more under the same identity and policy."""
    _check(delivery, REDELIVERABLE, "redelivered")
    if agents.get(tx, delivery["agent_id"]) is None:
        detail = "its agent was deleted; send the message to another agent"
        raise conflict("agent_deleted", detail)
    attempt = delivery["attempt"] + 1
    moved = deliveries.move(tx, delivery, DeliveryState.queued, attempt)
    messages.push(tx, moved)
    return moved


def _dismiss(tx: Tx, delivery: Row) -> Row:
    """
    Let it go.

    A queued one may already be in the daemon's hands, which alone can say whether
    the withdrawal came in time: it stays queued until the daemon reports.
    """
    _check(delivery, DISMISSABLE, "dismissed")
    frame = AgentResolve(delivery["id"], delivery["agent_id"], Resolution.dismiss)
    outbox.enqueue(tx, frame)
    queued = delivery["state"] == DeliveryState.queued
    if queued and outbox.holder(tx) is not None:
        return delivery
    diagnostic = Diagnostic("dismissed by a person", "send the message again if needed")
    return deliveries.move(tx, delivery, DeliveryState.cancelled, diagnostic=diagnostic)


def _check(delivery: Row, states: frozenset[DeliveryState], done: str) -> None:
    if delivery["state"] not in states:
        names = ", ".join(sorted(states))
        detail = (
            f"the delivery is {delivery['state']}; it can be {done} only in: {names}"
        )
        raise conflict("not_resolvable", detail, state=delivery["state"])
