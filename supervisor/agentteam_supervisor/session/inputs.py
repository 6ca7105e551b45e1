"""Input from people and hosts: it enters the inbox, and nothing bypasses that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.control import ControlResult, CutCause
from agentteam_protocol.delivery import TERMINAL, DeliveryState, Diagnostic
from agentteam_protocol.inbox import Item, Lane
from agentteam_supervisor.session import effects as fx, events as ev, setbacks
from agentteam_supervisor.session.cuts import cut
from agentteam_supervisor.session.pending import copies, find, waiting
from agentteam_supervisor.session.settle import (
    CLEARED,
    doubted,
    has_urgent_copy,
    supersede_carried,
    superseded,
)
from agentteam_supervisor.session.state import DeliveryView, Maintenance, Phase
from agentteam_supervisor.session.turns import leave, start, steer, wake

if TYPE_CHECKING:
    from agentteam_supervisor.session.work import Work

ENDED = "closed: the session has ended"
_ACTIVE = (Phase.running, Phase.converging, Phase.starting, Phase.recovering)


def delivered(w: Work, e: ev.Delivered) -> None:
    """A delivery arrived; seen before, it changes nothing but gets its receipt."""
    item = e.item
    if item.delivery is None or w.live.closing is not None:
        return
    known = w.ledger.deliveries.get(item.delivery)
    if known is not None and not _again(known, item):
        w.do(fx.Received(known.item.id, item.attempt))
        return
    if known is not None and known.item.id in w.ledger.in_flight:
        w.do(fx.Received(known.item.id, item.attempt))
        _again_kept(w, evolve(known.item, attempt=item.attempt))
        return
    if known is not None:
        item = evolve(item, policy=known.policy)  # one policy for ever (R6)
    _join_target(w, item, e.floor)
    urgent = item.policy is not None
    item = evolve(
        item,
        lane=Lane.urgent if urgent else Lane.next_step,
        wakes=True,
        position=w.ledger.position + 1,
    )
    w.record(j.InboxSpliced(j.SpliceReason.accepted, added=(item,)))
    w.do(fx.Received(item.id, item.attempt))
    if urgent:
        _urgent(w, item)
    else:
        _ordinary(w, item)


def _again(known: DeliveryView, item: Item) -> bool:
    """Tell whether a person sends again what had come to no good end."""
    return item.attempt > known.attempt and known.state in _STUCK


_STUCK = TERMINAL - {DeliveryState.surfaced}


def _again_kept(w: Work, item: Item) -> None:
    """What the runtime keeps is never sent again: the agent goes on with it."""
    w.change(item, DeliveryState.accepted)
    _go_on(w)


def _join_target(w: Work, item: Item, floor: int | None) -> None:
    if floor is None or item.target is None:
        return
    if item.target not in w.ledger.frontiers:
        w.record(j.FrontierMoved(item.target, floor=floor))


def _urgent(w: Work, item: Item) -> None:
    """Mark urgent: the one input that cuts, whatever its body says (R3)."""
    if item.message is not None:
        queued = tuple(
            c for c in copies(w.ledger.lanes, item.message, item.id) if c.policy is None
        )
        w.drop(queued, j.SpliceReason.superseded, DeliveryState.superseded)
        for flight in tuple(w.ledger.in_flight.values()):
            copy = flight.item.message == item.message
            if flight.carried and copy and superseded(w, flight.item):
                supersede_carried(w, flight.item)
    match w.phase:
        case Phase.running | Phase.converging if w.open_turn is not None:
            who = item.author.name if item.author else ""
            cut(w, CutCause.urgent, delivery=item.delivery, who=who)
        case Phase.maintenance:
            abort_maintenance(w)
        case _:
            wake(w)


def _ordinary(w: Work, item: Item) -> None:
    if has_urgent_copy(w, item):
        w.drop((item,), j.SpliceReason.superseded, DeliveryState.superseded)
    elif w.phase is Phase.running:
        steer(w, item)
    else:
        wake(w)


def sent(w: Work, e: ev.Sent) -> None:
    """Host input; a pending id again is a mistake of the caller and changes nothing."""
    taken = {i.id for i in waiting(w.ledger.lanes)} | set(w.ledger.in_flight)
    ids = [i.id for i in e.items]
    if w.live.closing is not None:
        w.reply(e.ref, error=ENDED)
        return
    if len(set(ids)) != len(ids) or taken & set(ids):
        w.reply(e.ref, error="duplicate_id: an entry with this id is pending already")
        return
    at = w.ledger.position
    items = tuple(evolve(i, position=at + n) for n, i in enumerate(e.items, 1))
    w.record(j.InboxSpliced(j.SpliceReason.accepted, added=items))
    for item in items:
        if w.phase is Phase.running and item.lane is Lane.next_step and item.wakes:
            steer(w, item)
    wake(w)
    w.reply(e.ref, value=[i.id for i in items])


def dismissed(w: Work, e: ev.Dismissed) -> None:
    """A person withdrew a delivery: from its lane, or out of `unknown`."""
    view = w.ledger.deliveries.get(e.delivery)
    if view is None:
        return
    item = find(w.ledger.lanes, view.item.id)
    withdrawn = Diagnostic("a person withdrew the message", "send it again if needed")
    if item is not None:
        gone = (item,)
        w.drop(gone, j.SpliceReason.withdrawn, DeliveryState.cancelled, withdrawn)
        if w.phase is Phase.offline and not waiting(w.ledger.lanes):
            setbacks.forget(w)  # nothing waits for it to be mended
    elif (kept := w.ledger.in_flight.get(view.item.id)) and kept.carried:
        setbacks.withdraw_kept(w, kept.item, withdrawn)
        if w.phase in (Phase.idle, Phase.offline) and not w.ledger.waiting:
            setbacks.forget(w)
    elif view.state in _DISMISSABLE:
        w.change(
            evolve(view.item, attempt=view.attempt), DeliveryState.cancelled, withdrawn
        )
    elif view.item.id in w.ledger.in_flight:
        # Its state stays; who withdrew it must hear that it will be read all the same.
        w.change(evolve(view.item, attempt=view.attempt), view.state, note=TOO_LATE)


TOO_LATE = "too late to withdraw: the agent's runtime has it already"
_DISMISSABLE = (DeliveryState.unknown, DeliveryState.failed, DeliveryState.blocked)


# --- controls ------------------------------------------------------------------------


def stopped(w: Work, e: ev.StopRequested) -> None:
    """Stop names a run and touches no other (t14, t15, t38)."""
    turn = w.open_turn
    if turn is None or e.run_id is None or w.phase not in _ACTIVE:
        w.reply(e.ref, value=ControlResult.not_running)
        return
    if turn.run_id != e.run_id:
        w.reply(e.ref, value=ControlResult.stale_run)
        return
    _cut_and_park(w, CutCause.stop, strict=True, who=e.who)
    w.reply(e.ref, value=ControlResult.stopping)


def cancelled(w: Work, e: ev.CancelRequested) -> None:
    """cancel clears the lanes unless told to keep them; idle and empty it is nothing."""
    if not e.keep_inbox:
        _clear(w)
    if w.open_turn is not None and w.phase in _ACTIVE:
        _cut_and_park(w, CutCause.cancel, strict=False, who=e.cause)
    elif w.phase is Phase.maintenance:
        abort_maintenance(w)
    w.reply(e.ref)


def _cut_and_park(w: Work, cause: CutCause, *, strict: bool, who: str) -> None:
    """
    Park first, then cut: a cut that converges at once must find the mark.

    A cut that fails puts the mark back, so it is told where it stood.
    """
    before = (w.ledger.park, w.ledger.urgent_park)
    w.park(urgent=w.ledger.position)
    cut(w, cause, strict=strict, who=who)
    current = w.live.cut
    if current is not None and current.park_before == (w.ledger.position,) * 2:
        w.set(cut=evolve(current, park_before=before))


def _clear(w: Work) -> None:
    items = waiting(w.ledger.lanes)
    w.drop(items, j.SpliceReason.cancelled, DeliveryState.cancelled, CLEARED)
    w.set(cleared=w.ledger.position)


def resumed(w: Work, e: ev.ResumeRequested) -> None:
    """
    Un-park; a session that could not start tries again (t40).

    One that comes back between turns runs what waits as soon as it is there.
    """
    coming = w.phase in (Phase.starting, Phase.recovering)
    if coming and w.open_turn is None and w.live.closing is None:
        w.park(0, urgent=0)
    elif w.phase in (Phase.idle, Phase.offline):
        failed = w.ledger.problem is not None
        w.park(0, urgent=0)
        _go_on(w)
        if failed and w.phase is Phase.offline and doubted(w):
            start(w)  # its history may answer what that failure left unknown
    w.reply(e.ref, value=ControlResult.resumed)


def _go_on(w: Work) -> None:
    """Run what is due, and what a run left unfinished; elsewhere it is under way."""
    if w.phase not in (Phase.idle, Phase.offline) or w.live.closing is not None:
        return
    after = setbacks.unfinished(w)
    setbacks.forget(w)
    if after is not None and w.phase is Phase.offline:
        w.set(going_on=after)
        start(w)  # its history tells first what it keeps
    elif after is not None:
        setbacks.go_on(w, after)
    wake(w)


# --- maintenance -----------------------------------------------------------------------


def maintain(w: Work, e: ev.MaintenanceRequested) -> None:
    """Only from true idle, so that nothing else runs meanwhile (t5, t34)."""
    if w.phase is not Phase.idle or w.ledger.runnable or w.live.closing is not None:
        w.reply(e.ref, error="not_idle: maintenance starts only when the agent is idle")
        return
    begun = Maintenance(e.ref, w.serial("mnt"))
    w.set(phase=Phase.maintenance, maintenance=begun)
    w.do(fx.Maintain(w.ledger.inc, e.task, begun.id))


def abort_maintenance(w: Work) -> None:
    maintenance = w.live.maintenance
    if maintenance is None:
        return
    if not maintenance.aborted:
        w.set(maintenance=evolve(maintenance, aborted=True))
        w.do(fx.AbortMaintenance(maintenance.id))
    w.do(fx.SetDeadline("maintenance"))


# --- the session's end ------------------------------------------------------------------


def close(w: Work, cause: CutCause, ref: int | None) -> None:
    """Cut what runs, close everything, end (t35, t35a)."""
    refs = (*w.live.closing_refs, *(() if ref is None else (ref,)))
    w.set(closing_refs=refs)
    if w.live.closing is not None:
        return
    w.set(closing=cause)
    if w.open_turn is not None and w.phase in _ACTIVE:
        cut(w, cause)
    elif w.phase is Phase.maintenance:
        abort_maintenance(w)
    elif w.phase in (Phase.idle, Phase.offline):
        leave(w)
    elif w.phase in (Phase.starting, Phase.recovering):
        w.set(leaving=True)
        w.do(fx.Kill(w.ledger.inc + 1), fx.SetDeadline("kill"))
