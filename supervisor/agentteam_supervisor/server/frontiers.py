"""What each agent has seen of each target, and its fence, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, insert, select, update

from agentteam_protocol.ids import AgentId, Generation, TargetId
from agentteam_supervisor.server.freshness import Fence, Fencing, Frontier
from agentteam_supervisor.server.prepared import Prepared
from agentteam_supervisor.server.schema import agents, frontiers, targets

if TYPE_CHECKING:
    from agentteam_supervisor.server.transaction import Row, Tx

_KEY = (frontiers.c.agent_id == bindparam("agent")) & (
    frontiers.c.target_id == bindparam("target")
)
_GET = Prepared(select(frontiers).where(_KEY))
_OF_AGENT = Prepared(
    select(frontiers).where(frontiers.c.agent_id == bindparam("agent"))
)
_MOVE = Prepared(update(frontiers).where(_KEY), "upto", "extras")
_HEAD = Prepared(select(targets.c.head).where(targets.c.id == bindparam("target")))
_FENCE = Prepared(
    update(agents).where(agents.c.id == bindparam("agent")),
    "fence_epoch",
    "fence_number",
    "fence_state",
)


def start(tx: Tx, agent: AgentId, target: TargetId, floor: int) -> None:
    """Begin at the target's head of the moment the agent joined."""
    key = {"agent_id": agent, "target_id": target}
    tx.run(insert(frontiers).values(**key, upto=floor, extras=list[int]()))


def forget(tx: Tx, agent: AgentId) -> None:
    tx.run(delete(frontiers).where(frontiers.c.agent_id == agent))


def get(tx: Tx, agent: AgentId, target: TargetId) -> Frontier:
    row = tx.one(_GET, agent=agent, target=target)
    return Frontier() if row is None else _frontier(row)


def of_agent(tx: Tx, agent: AgentId) -> dict[TargetId, int]:
    rows = tx.all(_OF_AGENT, agent=agent)
    return {TargetId(row["target_id"]): row["upto"] for row in rows}


def advance(tx: Tx, agent: AgentId, target: TargetId, *seqs: int) -> None:
    """Count sequences as seen; those that do not exist are not believed."""
    head = tx.scalar(_HEAD, target=target) or 0
    before = get(tx, agent, target)
    after = before.saw(*(seq for seq in seqs if 0 < seq <= head))
    if after == before:
        return
    key = {"agent": agent, "target": target}
    tx.run(_MOVE, **key, upto=after.upto, extras=sorted(after.extras))
    tx.acts.append("frontier")


def fence_of(agent: Row) -> Fence:
    newest = Generation(agent["fence_epoch"], agent["fence_number"])
    return Fence(newest, Fencing(agent["fence_state"]))


def fence(tx: Tx, agent: Row, gen: Generation, state: Fencing) -> None:
    """Remember the daemon's word on a generation."""
    after = fence_of(agent).reported(gen, state)
    tx.run(
        _FENCE,
        agent=agent["id"],
        fence_epoch=after.newest.epoch,
        fence_number=after.newest.number,
        fence_state=after.state,
    )


def _frontier(row: Row) -> Frontier:
    return Frontier(row["upto"], frozenset(row["extras"]))
