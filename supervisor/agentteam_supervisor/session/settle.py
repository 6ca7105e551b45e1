"""
What became of entries in the runtime's hands.

`surfaced` needs evidence, `dropped` goes back to its lane, `carried` stays with the
runtime and is never sent again, and what nobody can know is `unknown`: never sent
again blindly, never claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState, Diagnostic, Evidence
from agentteam_runtimes.driver import ItemOutcome
from agentteam_supervisor.session.faults import RESUME
from agentteam_supervisor.session.pending import copies, waiting
from agentteam_supervisor.session.prompt import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_protocol.ids import ItemId
    from agentteam_protocol.inbox import Item
    from agentteam_supervisor.session.work import Work

# A runtime that refuses or drops an entry this often will not read it (t13a). What a
# cut dropped is no fault of the runtime and does not count.
MAX_ATTEMPTS = 3

CLEARED = Diagnostic("the host cancelled all waiting input", "send it again")
_UNKNOWN = Diagnostic(
    "the runtime ended before it could say whether the agent read the message",
    "look at the agent's answer; then deliver it again or dismiss it",
)
_NOT_READ = Diagnostic(
    "the runtime ended before the agent read the message",
    "deliver it again",
)


def settle(
    w: Work, outcomes: Mapping[ItemId, ItemOutcome], *, fault: bool = True
) -> None:
    """Apply what the runtime's receipt or history says; entries not named stay open."""
    for item_id, outcome in outcomes.items():
        flight = w.ledger.in_flight.get(item_id)
        if flight is None:
            continue
        match outcome:
            case ItemOutcome.surfaced:
                surface(w, flight.item, Evidence("history"))
            case ItemOutcome.dropped:
                problem = "the runtime dropped it"
                requeue(w, (flight.item,), again=True, problem=problem, fault=fault)
            case ItemOutcome.carried if superseded(w, flight.item):
                supersede_carried(w, flight.item)
            case ItemOutcome.carried:
                w.record(j.ItemsInFlight(carried=(item_id,)))
            case ItemOutcome.unknown if flight.carried:
                pass  # it was told what became of it, as far as that is known
            case ItemOutcome.unknown:
                _give_up(w, flight.item)


def settle_rest(w: Work, items: tuple[Item, ...]) -> None:
    """Nobody can tell about these any more."""
    for item in items:
        if item.id in w.ledger.in_flight:
            _give_up(w, item)


def doubted(w: Work) -> tuple[Item, ...]:
    """Give what nobody could tell about so far; a process to come may know it."""
    views = w.ledger.deliveries.values()
    doubts = [v for v in views if v.state is DeliveryState.unknown]
    return tuple(evolve(v.item, attempt=v.attempt) for v in doubts)


def resolve_doubts(w: Work, outcomes: Mapping[ItemId, ItemOutcome]) -> None:
    """
    Apply what a later process knows of entries that were given up as `unknown`.

    What it never had has failed, and is not sent again: by now a person may have.
    """
    for item in doubted(w):
        match outcomes.get(item.id):
            case ItemOutcome.surfaced:
                surface(w, item, Evidence("history"))
            case ItemOutcome.dropped:
                w.change(item, DeliveryState.failed, _NOT_READ)
            case _:
                pass


def tell_forgotten(w: Work, outcomes: Mapping[ItemId, ItemOutcome]) -> None:
    """
    Have the next input repeat what a killed process had not yet recorded.

    Its delivery stays surfaced, for the model did read it; the agent of today has not.
    """
    for item in w.ledger.just_read:
        if outcomes.get(item.id) is ItemOutcome.dropped:
            w.record(
                j.InputForgotten(item.id, text_of(item), item.delivery),
                j.RunNotice(_FORGOTTEN, detail=item.delivery or item.id),
            )


_FORGOTTEN = (
    "the runtime was killed before it had recorded a message that the agent had read:"
    " the agent is told it again with its next input"
)


def _give_up(w: Work, item: Item) -> None:
    w.change(item, DeliveryState.unknown, _UNKNOWN)
    w.record(j.ItemsInFlight(removed=(item.id,)))
    if item.delivery is None:
        w.record(j.RunNotice(_UNKNOWN.problem, detail=item.id))


def surface(w: Work, item: Item, evidence: Evidence) -> None:
    """The entry is in the model's input: the only thing that moves freshness (t8)."""
    turn = w.open_turn
    if turn is not None:
        message = j.UserMessage(
            turn.number, item.id, item.body, item.delivery, item.message
        )
        w.record(message)
    w.change(newest(w, item), DeliveryState.surfaced, evidence=evidence)
    if item.target is not None and item.seq is not None:
        w.record(j.FrontierMoved(item.target, (item.seq,)))
    if item.id in w.ledger.in_flight:
        w.record(j.ItemsInFlight(removed=(item.id,)))


def newest(w: Work, item: Item) -> Item:
    """Count the attempts of a person, too, whose entry the runtime had all along."""
    view = w.ledger.deliveries.get(item.delivery) if item.delivery else None
    if view is None or view.attempt <= item.attempt:
        return item
    return evolve(item, attempt=view.attempt)


def superseded(w: Work, item: Item) -> bool:
    return item.policy is None and has_urgent_copy(w, item)


def supersede_carried(w: Work, item: Item) -> None:
    """The runtime keeps an ordinary copy that its urgent copy has replaced."""
    note = "the runtime has kept this copy: it may be seen twice"
    w.change(item, DeliveryState.superseded, note=note)
    w.record(j.ItemsInFlight(removed=(item.id,)))


def requeue(
    w: Work,
    items: tuple[Item, ...],
    *,
    again: bool,
    problem: str = "",
    fault: bool = True,
) -> None:
    """
    Put entries back at their places; `again` makes it a new attempt.

    An ordinary copy of a message whose urgent copy waits is superseded instead, an
    entry that a cancel found here is cancelled, and one that the runtime refused too
    often (`fault`, outside a cut) has failed.
    """
    items = tuple(i for i in items if i.id in w.ledger.in_flight)
    if not items:
        return
    w.record(j.ItemsInFlight(removed=tuple(i.id for i in items)))
    for item in items:
        back = item
        if again:
            refusals = item.refusals + (1 if fault and w.is_open else 0)
            attempt = newest(w, item).attempt + 1
            back = evolve(item, attempt=attempt, refusals=refusals)
        if superseded(w, item):
            w.change(item, DeliveryState.superseded)
        elif item.position <= w.live.cleared:
            w.change(item, DeliveryState.cancelled, CLEARED)
        elif back.refusals >= MAX_ATTEMPTS:
            _exhausted(w, item, problem)
        else:
            w.record(j.InboxSpliced(j.SpliceReason.requeued, added=(back,)))
            w.change(back, DeliveryState.queued)


def _exhausted(w: Work, item: Item, problem: str) -> None:
    failed = Diagnostic(
        f"the runtime did not take the message in {MAX_ATTEMPTS} attempts: {problem}",
        "look at the agent's runtime (agentteam doctor), then deliver it again",
    )
    w.change(item, DeliveryState.failed, failed)
    if item.delivery is None:
        w.record(j.RunNotice(failed.problem, detail=item.id))


def fail_urgents(
    w: Work, items: tuple[Item, ...], state: DeliveryState, why: Diagnostic
) -> None:
    """
    Tell of waiting urgents that they were not delivered, and how they can be.

    The ordinary copy that one of them had replaced takes its place again: a message
    that was accepted is not lost by being marked urgent.
    """
    for item in items:
        _restore(w, item, but=items)
    for item in items:
        w.drop((item,), j.SpliceReason(state), state, _with_way(why, item))


def _with_way(why: Diagnostic, item: Item) -> Diagnostic:
    way = f"then deliver it again (agentteam resolve {item.id} --as redeliver)"
    first = why.what_to_do.removesuffix(RESUME).rstrip(" ,")
    return Diagnostic(why.problem, f"{first}, {way}" if first else way)


def _restore(w: Work, urgent: Item, but: tuple[Item, ...]) -> None:
    """Before the urgent copy goes, so that no part of the journal has neither."""
    ours = [v for v in w.ledger.deliveries.values() if v.message == urgent.message]
    failing = {item.id for item in but}
    elsewhere = {i.id for i in waiting(w.ledger.lanes)} | set(w.ledger.in_flight)
    for view in ours:
        if view.item.id in elsewhere - failing or view.state in _MAY_BE_READ:
            return
    for view in ours:
        gone = view.state is DeliveryState.superseded and view.policy is None
        if gone and not view.kept:
            back = evolve(view.item, attempt=view.attempt + 1)
            w.record(j.InboxSpliced(j.SpliceReason.requeued, added=(back,)))
            w.change(back, DeliveryState.queued, note=RESTORED)
            return


_MAY_BE_READ = (DeliveryState.surfaced, DeliveryState.unknown)
RESTORED = "its urgent copy was not delivered: this one waits again"


def has_urgent_copy(w: Work, item: Item) -> bool:
    """Tell whether an urgent copy of the entry's message waits or is in flight."""
    if item.message is None:
        return False
    waiting = copies(w.ledger.lanes, item.message, item.id)
    flying = (f.item for f in w.ledger.in_flight.values() if f.item.id != item.id)
    return any(
        other.policy is not None and other.message == item.message
        for other in (*waiting, *flying)
    )


def late_evidence(w: Work, item_id: ItemId, key: str) -> None:
    """
    Tell that an attempt that was given up reached the agent after all.

    Only where another attempt was made: a repeat of the same evidence is nothing.
    """
    view = next((v for v in w.ledger.deliveries.values() if v.item.id == item_id), None)
    if view is None or view.item.delivery is None:
        return
    if key == evolve(view.item, attempt=view.attempt).key and view.state in _SEEN:
        return
    note = "an earlier attempt reached the agent late: it may have been seen twice"
    w.record(
        j.DeliveryChanged(
            view.item.delivery, view.state, view.attempt, w.gen, note=note
        )
    )


_SEEN = (DeliveryState.surfaced, DeliveryState.accepted)
