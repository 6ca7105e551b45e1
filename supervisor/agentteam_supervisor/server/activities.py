"""The user-facing lifecycle of an agent's runs, stored as words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select

from agentteam_protocol.activity import ActivityKind
from agentteam_supervisor.server import events, frontiers
from agentteam_supervisor.server.freshness import Fencing
from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.schema import activities

if TYPE_CHECKING:
    from agentteam_protocol.frames import ActivityReported
    from agentteam_protocol.ids import AgentId, RunId
    from agentteam_supervisor.server.transaction import Row, Tx

_PLACE = ("run_id", "epoch", "number", "delivery_id")
_INSERT = insertion(activities)
_NEWEST_OF_RUN = Prepared(
    select(activities)
    .where(
        activities.c.agent_id == bindparam("agent"),
        activities.c.run_id == bindparam("run"),
    )
    .order_by(activities.c.seq.desc())
    .limit(5)
)


def record(tx: Tx, agent: Row, report: ActivityReported) -> None:
    """Keep a line; progress of a fenced generation is kept as late, never as live."""
    detail = dict(report.detail)
    gen = report.gen
    fenced = gen is not None and frontiers.fence_of(agent).of(gen) is Fencing.fenced
    if report.kind is ActivityKind.progress and fenced:
        detail["late"] = True
    _insert(
        tx,
        agent_id=agent["id"],
        kind=report.kind,
        run_id=report.run_id,
        epoch=None if gen is None else gen.epoch,
        number=None if gen is None else gen.number,
        delivery_id=report.delivery,
        words=dict(report.words),
        detail=detail,
        at=report.at or tx.at,
    )


def notice(
    tx: Tx, agent: AgentId, run: RunId | None, english: str, chinese: str
) -> None:
    """Add a line of the server's own."""
    _insert(
        tx,
        agent_id=agent,
        kind=ActivityKind.notice,
        run_id=run,
        words={"text": english, "textZh": chinese},
        detail={},
        at=tx.at,
    )


def after(tx: Tx, agent: AgentId, seq: int, limit: int) -> list[dict[str, Any]]:
    mine = (activities.c.agent_id == agent) & (activities.c.seq > seq)
    query = select(activities).where(mine).order_by(activities.c.seq).limit(limit)
    return [view(row) for row in tx.all(query)]


def newest(tx: Tx, agent: AgentId, count: int) -> list[dict[str, Any]]:
    """List the last lines, oldest first."""
    query = select(activities).where(activities.c.agent_id == agent)
    rows = tx.all(query.order_by(activities.c.seq.desc()).limit(count))
    return [view(row) for row in reversed(rows)]


def latest_line(tx: Tx, agent: AgentId, run: RunId) -> dict[str, Any] | None:
    """Give the newest line of a run, to be put in words later; late ones are not."""
    for row in tx.all(_NEWEST_OF_RUN, agent=agent, run=run):
        if not row["detail"].get("late"):
            return {"line": {"kind": row["kind"], "words": row["words"]}}
    return None


def view(row: Row) -> dict[str, Any]:
    generation = None if row["epoch"] is None else [row["epoch"], row["number"]]
    return {
        "seq": row["seq"],
        "agentId": row["agent_id"],
        "kind": row["kind"],
        "words": row["words"],
        "runId": row["run_id"],
        "generation": generation,
        "deliveryId": row["delivery_id"],
        "at": row["at"],
        "detail": row["detail"],
    }


def _insert(tx: Tx, **values: Any) -> None:
    row = {**dict.fromkeys(_PLACE), **values}
    seq = tx.insert(_INSERT, **row)
    events.emit(tx, "activity", view({"seq": seq, **row}))
