"""The ledger of turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from agentteam_protocol.codec import to_wire
from agentteam_supervisor.server.schema import runs

if TYPE_CHECKING:
    from agentteam_protocol.frames import RunReported
    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.server.transaction import Row, Tx


def record(tx: Tx, report: RunReported) -> None:
    """Write a turn's line; once it has ended, no report opens it again."""
    table = runs.c
    key = (
        (table.agent_id == report.agent)
        & (table.run_id == report.run_id)
        & (table.turn == report.turn)
    )
    known = tx.one(select(runs).where(key))
    ended = report.outcome is not None
    values = {"ended": ended, "report": to_wire(report)}
    if known is None:
        names = {"agent_id": report.agent, "run_id": report.run_id}
        tx.run(insert(runs).values(**names, turn=report.turn, **values))
    elif ended or not known["ended"]:
        tx.run(update(runs).where(key).values(values))


def after(tx: Tx, agent: AgentId, seq: int, limit: int) -> list[dict[str, Any]]:
    mine = (runs.c.agent_id == agent) & (runs.c.seq > seq)
    query = select(runs).where(mine).order_by(runs.c.seq).limit(limit)
    return [view(row) for row in tx.all(query)]


def view(row: Row) -> dict[str, Any]:
    report = row["report"]
    return {
        "seq": row["seq"],
        "id": row["run_id"],
        "turn": row["turn"],
        "generation": report["gen"],
        "startedAt": report["startedAt"],
        "endedAt": report.get("endedAt"),
        "outcome": report.get("outcome"),
        "cause": report.get("cause"),
        "detail": report["detail"],
        "deliveries": report["deliveries"],
        "usage": report["usage"],
        "draft": report.get("draft"),
    }
