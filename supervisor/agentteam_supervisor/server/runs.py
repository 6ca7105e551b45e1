"""The ledger of turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, select, update

from agentteam_protocol.codec import to_wire
from agentteam_supervisor.server.prepared import Prepared, insertion
from agentteam_supervisor.server.schema import runs

if TYPE_CHECKING:
    from agentteam_protocol.frames import RunReported
    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.server.transaction import Row, Tx

_KEY = (
    (runs.c.agent_id == bindparam("agent"))
    & (runs.c.run_id == bindparam("run"))
    & (runs.c.turn == bindparam("number"))
)
_FIND = Prepared(select(runs).where(_KEY))
_INSERT = insertion(runs)
_UPDATE = Prepared(update(runs).where(_KEY), "ended", "report")


def record(tx: Tx, report: RunReported) -> None:
    """Write a turn's line; once it has ended, no report opens it again."""
    key = {"agent": report.agent, "run": report.run_id, "number": report.turn}
    known = tx.one(_FIND, **key)
    ended = report.outcome is not None
    values = {"ended": ended, "report": to_wire(report)}
    if known is None:
        names = {"agent_id": report.agent, "run_id": report.run_id}
        tx.run(_INSERT, **names, turn=report.turn, **values)
    elif ended or not known["ended"]:
        tx.run(_UPDATE, **key, **values)


def after(tx: Tx, agent: AgentId, seq: int, limit: int) -> list[dict[str, Any]]:
    mine = (runs.c.agent_id == agent) & (runs.c.seq > seq)
    query = select(runs).where(mine).order_by(runs.c.seq).limit(limit)
    return [view(row) for row in tx.all(query)]


def newest(tx: Tx, agent: AgentId, count: int) -> list[dict[str, Any]]:
    """List the last turns, oldest first."""
    query = select(runs).where(runs.c.agent_id == agent)
    rows = tx.all(query.order_by(runs.c.seq.desc()).limit(count))
    return [view(row) for row in reversed(rows)]


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
