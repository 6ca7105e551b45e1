"""What an agent reads of a target: `read_history`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol.frames import HistoryGiven
from agentteam_supervisor.server import frontiers, messages, targets
from agentteam_supervisor.server.problems import Problem

if TYPE_CHECKING:
    from agentteam_protocol.frames import HistoryAsked
    from agentteam_supervisor.server.transaction import Row, Tx

MOST = 200


def read(tx: Tx, asked: HistoryAsked) -> HistoryGiven:
    """
    Give the messages after a sequence.

    Without one: from the first unseen message on, or the newest if all were seen.
    Reading moves no frontier; the daemon reports what reached the runtime.
    """
    try:
        target = targets.find(tx, asked.target)
    except Problem as problem:
        return HistoryGiven(asked.ref, None, problem=problem.detail)
    if not targets.is_member(tx, target["id"], asked.agent):
        detail = f"you are not a member of {target['name']}"
        return HistoryGiven(asked.ref, None, problem=detail)
    limit = max(1, min(asked.limit, MOST))
    after = _start(tx, asked, target, limit)
    rows = messages.after(tx, target["id"], after, limit)
    refs = tuple(messages.ref(row, target) for row in messages.bearable(rows))
    return HistoryGiven(asked.ref, target["id"], refs)


def _start(tx: Tx, asked: HistoryAsked, target: Row, limit: int) -> int:
    if asked.after is not None:
        return asked.after
    frontier = frontiers.get(tx, asked.agent, target["id"])
    if frontier.covers(target["head"]):
        return max(0, int(target["head"]) - limit)
    return frontier.upto
