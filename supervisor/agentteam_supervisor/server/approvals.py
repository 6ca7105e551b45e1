"""Approvals as people see them: what is asked, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, insert, select, update

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.codec import to_wire
from agentteam_protocol.frames import ApprovalDecide
from agentteam_supervisor.server import events, outbox
from agentteam_supervisor.server.prepared import Prepared
from agentteam_supervisor.server.problems import conflict, unknown
from agentteam_supervisor.server.schema import approvals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.frames import ApprovalReported
    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.server.transaction import Row, Tx

PENDING = "pending"

_FIND = Prepared(select(approvals).where(approvals.c.id == bindparam("approval")))
_PENDING = Prepared(
    select(approvals)
    .where(approvals.c.agent_id == bindparam("agent"), approvals.c.state == PENDING)
    .order_by(approvals.c.seq)
)


def record(tx: Tx, report: ApprovalReported) -> bool:
    """Take the daemon's word; its outcome is the last. Tells whether it was news."""
    known = tx.one(_FIND, approval=report.request.id)
    if known is None:
        tx.run(
            insert(approvals).values(
                id=report.request.id,
                agent_id=report.agent,
                epoch=report.gen.epoch,
                request=to_wire(report.request),
                state=report.outcome or PENDING,
                settled=report.outcome is not None,
            )
        )
    elif known["settled"] or report.outcome is None:
        return False
    else:
        _settle(tx, known, report.outcome)
    _tell(tx, report.request.id)
    return True


def decide(tx: Tx, approval: str, outcome: ApprovalOutcome, who: str) -> Row:
    """Pass a person's decision on, once; the cut of the run may still overtake it."""
    row = find(tx, approval)
    if row["state"] != PENDING:
        detail = f"it was decided before: {row['state']}; nothing more to do"
        raise conflict("already_decided", detail, decision=row["state"])
    values = {"state": outcome, "decided_by": who, "decided_at": tx.at}
    tx.run(update(approvals).where(approvals.c.id == approval).values(values))
    outbox.enqueue(tx, ApprovalDecide(row["id"], row["agent_id"], outcome, who))
    tx.acts.append("decision")
    _tell(tx, approval)
    return find(tx, approval)


def cancel_open(tx: Tx, agent: AgentId, before_epoch: int) -> None:
    """Close what a session asked that is gone; nobody waits for the answer."""
    table = approvals.c
    stale = (table.agent_id == agent) & (table.epoch < before_epoch)
    for row in tx.all(select(approvals).where(stale, table.settled.is_(False))):
        _settle(tx, row, ApprovalOutcome.cancelled)
        _tell(tx, row["id"])


def find(tx: Tx, approval: str) -> Row:
    row = tx.one(_FIND, approval=approval)
    if row is None:
        raise unknown("approval", approval)
    return row


def pending_of(tx: Tx, agent: AgentId) -> list[dict[str, Any]]:
    return [view(row) for row in tx.all(_PENDING, agent=agent)]


def listing(tx: Tx, state: str | None, after: int, limit: int) -> Sequence[Row]:
    query = select(approvals).where(approvals.c.seq > after)
    if state is not None:
        query = query.where(approvals.c.state == state)
    return tx.all(query.order_by(approvals.c.seq).limit(limit))


def view(row: Row) -> dict[str, Any]:
    request = row["request"]
    shown: dict[str, Any] = {
        "id": row["id"],
        "seq": row["seq"],
        "agentId": row["agent_id"],
        "runId": request["runId"],
        "toolName": request["toolName"],
        "input": request["input"],
        "askedAt": request["askedAt"],
        "state": row["state"],
    }
    optional = {name: request.get(name) for name in ("callId", "reason")}
    decided = {"decidedBy": row["decided_by"], "decidedAt": row["decided_at"]}
    shown.update({k: v for k, v in (optional | decided).items() if v is not None})
    return shown


def _settle(tx: Tx, row: Row, outcome: ApprovalOutcome) -> None:
    values = {
        "state": outcome,
        "settled": True,
        "decided_at": row["decided_at"] or tx.at,
    }
    tx.run(update(approvals).where(approvals.c.id == row["id"]).values(values))


def _tell(tx: Tx, approval: str) -> None:
    events.emit(tx, "approval", view(find(tx, approval)))
