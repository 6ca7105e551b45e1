"""Routes of approvals: what is asked, and a person's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_supervisor.server import agents, approvals
from agentteam_supervisor.server.bodies import page, read_body
from agentteam_supervisor.server.commands import commit, look
from agentteam_supervisor.server.idempotency import Reply
from agentteam_supervisor.server.problems import invalid

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agentteam_supervisor.server.transaction import Tx

# A person says one of these two; the other outcomes come about by themselves.
DECISIONS = (ApprovalOutcome.allowed_once, ApprovalOutcome.rejected)
STATES = (approvals.PENDING, *map(str, ApprovalOutcome))


async def list_approvals(request: Request) -> Response:
    after, limit = page(request)
    state = request.query_params.get("state")
    if state is not None and state not in STATES:
        detail = f"'state' must be one of: {', '.join(STATES)}"
        raise invalid("invalid_parameter", detail)

    def view(tx: Tx) -> Any:
        rows = approvals.listing(tx, state, after, limit)
        return {"approvals": [approvals.view(row) for row in rows]}

    return await look(request, view)


async def decide_approval(request: Request) -> Response:
    fields = await read_body(request, "outcome", "who")
    outcome = fields.choice("outcome", ApprovalOutcome, "unknown_outcome", None)
    if outcome not in DECISIONS:
        detail = f"'outcome' must be one of: {', '.join(DECISIONS)}"
        raise invalid("unknown_outcome", detail)
    ref, who = request.path_params["approval"], fields.line("who", "user")

    def decide(tx: Tx) -> Reply:
        row = approvals.decide(tx, ref, outcome, who)
        if agents.get(tx, row["agent_id"]) is not None:
            agents.tell(tx, row["agent_id"])
        return Reply(200, approvals.view(row))

    return await commit(request, fields, decide)
