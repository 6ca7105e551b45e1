"""What a person decides about a delivery that is not going anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.control import Resolution
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.frames import AgentResolve
from agentteam_supervisor.server import agents, deliveries, messages, outbox
from agentteam_supervisor.server.lifecycle import DISMISSABLE, ON_ITS_WAY, REDELIVERABLE
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

    One on its way may be in the hands of the daemon, or of the runtime: the daemon
    alone can say whether the withdrawal came in time, so it stays until that reports.
    """
    _check(delivery, DISMISSABLE, "dismissed")
    frame = AgentResolve(delivery["id"], delivery["agent_id"], Resolution.dismiss)
    outbox.enqueue(tx, frame)
    held = outbox.holder(tx) is not None
    if delivery["state"] == DeliveryState.accepted or (held and on_its_way(delivery)):
        return delivery
    diagnostic = Diagnostic("dismissed by a person", "send the message again if needed")
    return deliveries.move(tx, delivery, DeliveryState.cancelled, diagnostic=diagnostic)


def on_its_way(delivery: Row) -> bool:
    """Tell whether only the daemon's report decides about it now."""
    return delivery["state"] in ON_ITS_WAY


def _check(delivery: Row, states: frozenset[DeliveryState], done: str) -> None:
    if delivery["state"] not in states:
        names = ", ".join(sorted(states))
        detail = (
            f"the delivery is {delivery['state']}; it can be {done} only in: {names}"
        )
        if on_its_way(delivery):
            detail += "; if its agent waits, resume that (agentteam resume NAME)"
        raise conflict("not_resolvable", detail, state=delivery["state"])
