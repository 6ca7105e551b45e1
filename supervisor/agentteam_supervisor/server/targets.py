"""Conversations: a name, members, and the sequence of their messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select, update

from agentteam_protocol.ids import AgentId, TargetId, mint
from agentteam_supervisor.server import frontiers
from agentteam_supervisor.server.prepared import Prepared
from agentteam_supervisor.server.problems import Problem, conflict, invalid, unknown
from agentteam_supervisor.server.schema import agents, members, targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.server.transaction import Row, Tx

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

# Who else can have said something: an agent of that name could be mistaken for it.
RESERVED = frozenset({"user", "system", "agent"})

# How ids of what is found by id or name begin.
IDS = ("agt_", "tgt_")

_BY_ID = Prepared(select(targets).where(targets.c.id == bindparam("ref")))
_BY_NAME = Prepared(
    select(targets).where(
        targets.c.name == bindparam("ref"), targets.c.retired_at.is_(None)
    )
)
_PAST = Prepared(
    select(targets)
    .where(targets.c.name == bindparam("ref"), targets.c.retired_at.is_not(None))
    .order_by(targets.c.seq.desc())
    .limit(1)
)
_MEMBERS = Prepared(
    select(agents, members.c.floor)
    .select_from(members.join(agents, agents.c.id == members.c.agent_id))
    .where(members.c.target_id == bindparam("target"), agents.c.deleted_at.is_(None))
    .order_by(agents.c.seq)
)


def check_name(name: str) -> str:
    """Refuse what is no name of an agent or a target."""
    if not NAME.fullmatch(name):
        detail = (
            f"{name!r} is not a name: use 1 to 63 of a-z, 0-9, '-' and '_',"
            " beginning with a letter or digit"
        )
        raise invalid("invalid_name", detail, field="name")
    if name in RESERVED:
        detail = (
            f"{name!r} is a word of the API: it would be taken for who wrote a"
            " message; choose another name"
        )
        raise invalid("reserved_name", detail, field="name")
    return name


def check_free(tx: Tx, name: str) -> None:
    """Refuse a name that could be taken for an agent, another target, or an id."""
    if name.startswith(IDS):
        detail = f"{name!r} looks like an id; choose a name that does not"
        raise conflict("name_taken", detail)
    alive = agents.c.deleted_at.is_(None) & (agents.c.name == name)
    if tx.one(select(agents.c.id).where(alive)) is not None:
        detail = f"there is an agent {name!r} already; choose another name"
        raise conflict("name_taken", detail)
    taken = (targets.c.name == name) & targets.c.retired_at.is_(None)
    if tx.one(select(targets.c.id).where(taken)) is not None:
        detail = f"there is a target {name!r} already; choose another name"
        raise conflict("name_taken", detail)


def find(tx: Tx, ref: str) -> Row:
    """Find a target by id or name; raises `Problem`. An id finds retired ones too."""
    for query in (_BY_ID, _BY_NAME):
        row = tx.one(query, ref=ref)
        if row is not None:
            return row
    past = tx.one(_PAST, ref=ref)
    if past is None:
        raise unknown("target", ref)
    raise Problem(
        404,
        "unknown_target",
        f"the agent of {ref} was removed; its messages are kept under {past['id']}",
        removed={"target": past["id"]},
    )


def create(tx: Tx, name: str, direct: bool = False) -> Row:
    """Make a target without members; raises `Problem` if the name is taken."""
    taken = (targets.c.name == name) & targets.c.retired_at.is_(None)
    if tx.one(select(targets.c.id).where(taken)) is not None:
        raise conflict("name_taken", f"there is a target {name!r} already")
    target = mint("tgt")
    values = {"id": target, "name": name, "direct": direct}
    tx.run(insert(targets).values(**values, head=0, created_at=tx.at))
    return find(tx, target)


def join(tx: Tx, target: Row, agent: AgentId) -> None:
    """Make the agent a member; what was said before is not owed to it."""
    row = {"target_id": target["id"], "agent_id": agent, "floor": target["head"]}
    tx.run(insert(members).values(row))
    frontiers.start(tx, agent, target["id"], target["head"])


def rename(tx: Tx, target: TargetId, name: str) -> None:
    tx.run(update(targets).where(targets.c.id == target).values(name=name))


def leave_all(tx: Tx, agent: Row) -> None:
    """Retire the agent's direct target and end its memberships; messages stay."""
    own = targets.c.id == agent["target_id"]
    tx.run(update(targets).where(own).values(retired_at=tx.at))
    tx.run(delete(members).where(members.c.agent_id == agent["id"]))
    frontiers.forget(tx, agent["id"])


def member_agents(tx: Tx, target: TargetId) -> Sequence[Row]:
    """List the member agents, with the `floor` of each."""
    return tx.all(_MEMBERS, target=target)


def is_member(tx: Tx, target: TargetId, agent: AgentId) -> bool:
    key = (members.c.target_id == target) & (members.c.agent_id == agent)
    return tx.one(select(members.c.floor).where(key)) is not None


def listing(tx: Tx, after: int, limit: int) -> list[dict[str, Any]]:
    query = select(targets).where(targets.c.seq > after).order_by(targets.c.seq)
    return [view(tx, row) for row in tx.all(query.limit(limit))]


def view(tx: Tx, target: Row) -> dict[str, Any]:
    there = member_agents(tx, target["id"])
    return {
        "id": target["id"],
        "seq": target["seq"],
        "name": target["name"],
        "direct": target["direct"],
        "head": target["head"],
        "agents": [{"id": a["id"], "name": a["name"]} for a in there],
        "createdAt": target["created_at"],
        "retired": target["retired_at"] is not None,
    }
