"""
What an error of a run leaves behind, and how the agent goes on after it.

What the runtime took, did not show its model and keeps for its next input (`carried`)
has failed as far as anybody can tell: after an error no turn is due that would read it.
It is never sent again while the runtime keeps it: a resume asks the runtime to go on,
and it surfaces with that, once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState, Diagnostic
from agentteam_protocol.ids import ItemId
from agentteam_protocol.inbox import Item, Lane, Source
from agentteam_supervisor.session.faults import RESUME
from agentteam_supervisor.session.settle import newest, requeue
from agentteam_supervisor.session.state import Unfinished

if TYPE_CHECKING:
    from agentteam_supervisor.session.state import Ended, Ledger, OpenTurn
    from agentteam_supervisor.session.work import Work

GO_ON = "[note: your last run did not finish; go on with what you were asked]"
_LOOK = "look at the agent's runtime (agentteam doctor)"
# A person withdrew what the runtime keeps: nobody can take it out of its record.
KEPT = "the agent's runtime keeps it: the agent may still read it with its next input"


def tell(w: Work, turn: OpenTurn, ended: Ended) -> None:
    """Say that the agent waits after an error, why, and what waits with it (t13)."""
    said = ended.detail.strip() or "it did not say why"
    problem = f"the run ended in an error of {w.runtime}: {said}"
    diagnostic = Diagnostic(problem, f"{ended.advice or _LOOK}, {RESUME}")
    fail_kept(w, diagnostic)
    first = next((i.target for i in w.ledger.kept if i.target is not None), None)
    w.record(j.RunProblem(diagnostic, turn.run_id, turn.target or first))


def fail_kept(w: Work, why: Diagnostic) -> None:
    """Say of what the runtime keeps that nothing is going to read it by itself."""
    for item in w.ledger.kept:
        if not has_failed(w.ledger, item):
            w.change(newest(w, item), DeliveryState.failed, why)


def has_failed(ledger: Ledger, item: Item) -> bool:
    """Tell whether an entry in the runtime's hands was said to have failed."""
    view = ledger.deliveries.get(item.delivery) if item.delivery else None
    return view is not None and view.state is DeliveryState.failed


def forget(w: Work) -> None:
    """Drop the problem: it is told again if it is still there."""
    if w.ledger.problem is not None:
        w.record(j.RunProblem(None))


def unfinished(w: Work) -> Unfinished | None:
    """Name what a resume has to go on with, besides what waits in the lanes."""
    kept = w.ledger.kept
    if w.ledger.failed is not None or not kept:
        return w.ledger.failed
    return Unfinished(next((i.target for i in kept if i.target is not None), None))


def go_on(w: Work, after: Unfinished) -> None:
    """Give the runtime a line of ours, unless something else will be read anyway."""
    if w.ledger.runnable:
        return
    item = Item(
        ItemId(w.serial("itm")),
        GO_ON,
        Lane.next_turn,
        position=w.ledger.position + 1,
        source=Source("plugin", "supervisor"),
        target=after.target,
    )
    w.record(j.InboxSpliced(j.SpliceReason.accepted, added=(item,)))


def came_up(w: Work) -> None:
    """Go on in the new process, now that its history has told what it keeps."""
    after = w.live.going_on
    if after is not None:
        w.set(going_on=None)
        go_on(w, after)


def lost(w: Work) -> None:
    """A fresh session has nothing of what the old one kept and never showed."""
    kept = tuple(i for i in w.ledger.kept if has_failed(w.ledger, i))
    requeue(w, kept, again=True, fault=False)


def withdraw_kept(w: Work, item: Item, why: Diagnostic) -> None:
    """Let go of what the runtime keeps; only its own record still has it."""
    w.change(newest(w, item), DeliveryState.cancelled, why, note=KEPT)
    w.record(j.ItemsInFlight(removed=(item.id,)))
