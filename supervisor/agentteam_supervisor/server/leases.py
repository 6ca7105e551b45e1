"""
Who holds the agents: the handshake's transaction.

All agents are granted to the one daemon of record. A new process of it (another
`boot`), a daemon that lost its state, or another daemon gets every lease anew, under
an epoch greater than any before: that alone forbids a generation to come back.

| the daemon | its queue afterwards |
|---|---|
| same process, reconnected | what it has not yet made durable |
| new process, same state | new grants, then what it has not made durable |
| new, or without its state | new grants, then every open delivery again |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen
from sqlalchemy import bindparam, delete, insert, select, update

from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.frames import AgentDeliver, AgentGranted, Frame, Hello
from agentteam_supervisor.server import (
    agents,
    approvals,
    deliveries,
    messages,
    outbox,
)
from agentteam_supervisor.server.prepared import Prepared
from agentteam_supervisor.server.schema import agents as agent_table, daemons

if TYPE_CHECKING:
    from agentteam_protocol.ids import DaemonId
    from agentteam_supervisor.server.transaction import Row, Tx

_RECEIVED = Prepared(
    update(daemons).where(daemons.c.id == bindparam("daemon")), "received"
)

LOST = Diagnostic(
    "the daemon lost its state while the runtime had the message",
    "look whether the agent acted on it, then redeliver or dismiss it",
)


@frozen
class Session:
    """Where a connection begins: the last numbers both sides have made durable."""

    received: int  # of the daemon's frames, by us
    sent: int  # of our frames, by the daemon


def greet(tx: Tx, store_id: str, hello: Hello) -> Session:
    """Take a daemon in: leases, its outbound queue, and the numbers to go on from."""
    known = tx.one(select(daemons).where(daemons.c.id == hello.daemon))
    stateless = known is None or hello.server != store_id
    taken_over = outbox.holder(tx) != hello.daemon
    anew = stateless or taken_over
    rebooted = anew or (known is not None and known["boot"] != hello.boot)
    sent = 0 if stateless else hello.received
    received = 0 if stateless or known is None else int(known["received"])

    queue = [] if anew else [f for _, f in outbox.pending(tx, hello.daemon, sent)]
    outbox.clear(tx)
    outbox.appoint(tx, hello.daemon)
    _write_daemon(tx, hello, received)
    if rebooted:
        queue = [f for f in queue if not isinstance(f, AgentGranted)]
        queue = [*_grant_all(tx, hello.daemon, anew), *queue]
    queue.extend(_owed(tx, queue))
    outbox.put(tx, hello.daemon, sent + 1, queue)
    tx.acts.append(hello)
    for agent in agents.living(tx):
        agents.tell(tx, agent["id"])
    return Session(received, sent)


def part(tx: Tx, daemon: DaemonId) -> None:
    """Note that the daemon's connection ended; its leases stay."""
    mine = daemons.c.id == daemon
    tx.run(update(daemons).where(mine).values(connected=False))
    tx.acts.append("parting")
    for agent in agents.living(tx):
        if agent["daemon_id"] == daemon:
            agents.tell(tx, agent["id"])


def progress(tx: Tx, daemon: DaemonId, received: int) -> None:
    """Remember the daemon's last numbered frame, with the effects of it."""
    tx.run(_RECEIVED, daemon=daemon, received=received)


def _write_daemon(tx: Tx, hello: Hello, received: int) -> None:
    tx.run(delete(daemons).where(daemons.c.id == hello.daemon))
    tx.run(
        insert(daemons).values(
            id=hello.daemon,
            name=hello.name,
            boot=hello.boot,
            connected=True,
            sent=0,
            received=received,
            runtimes={name: dict(caps) for name, caps in hello.runtimes.items()},
        )
    )


def _grant_all(tx: Tx, daemon: DaemonId, anew: bool) -> list[Frame]:
    return [_grant(tx, agent, daemon, anew) for agent in agents.living(tx)]


def _grant(tx: Tx, agent: Row, daemon: DaemonId, anew: bool) -> AgentGranted:
    epoch = agent["lease_epoch"] + 1
    values: dict[str, Any] = {
        "lease_epoch": epoch,
        "daemon_id": daemon,
        "status": agents.OFFLINE,
    }
    mine = agent_table.c.id == agent["id"]
    tx.run(update(agent_table).where(mine).values(values))
    approvals.cancel_open(tx, agent["id"], epoch)
    if anew:
        _settle(tx, agent)
    return agents.grant(tx, agents.find(tx, agent["id"]))


def _settle(tx: Tx, agent: Row) -> None:
    """Queued deliveries go to the new holder; what a runtime had is not known."""
    for row in deliveries.open_of(tx, agent["id"]):
        if row["state"] == DeliveryState.accepted:
            deliveries.move(tx, row, DeliveryState.unknown, diagnostic=LOST)
        else:
            deliveries.forget_received(tx, row)


def _owed(tx: Tx, queue: list[Frame]) -> list[Frame]:
    """List the deliveries that the daemon never said to have, and that no row carries."""
    carried = {(f.delivery, f.attempt) for f in queue if isinstance(f, AgentDeliver)}
    frames: list[Frame] = []
    for agent in agents.living(tx):
        for row in deliveries.open_of(tx, agent["id"]):
            known = (row["id"], row["attempt"]) in carried
            if row["received"] < row["attempt"] and not known:
                frames.append(messages.deliver_frame(tx, row))
    return frames
