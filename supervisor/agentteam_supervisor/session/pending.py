"""The inbox and its lanes: what waits, in which order, and what goes together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agentteam_protocol.inbox import Item, Lane

if TYPE_CHECKING:
    from agentteam_protocol.ids import ItemId, MessageId

Lanes = Mapping[Lane, tuple[Item, ...]]


def spliced(lanes: Lanes, removed: Iterable[ItemId], added: Iterable[Item]) -> Lanes:
    """Take entries out, then put entries in, each at its position in its lane."""
    gone = frozenset(removed)
    result = {
        lane: tuple(item for item in items if item.id not in gone)
        for lane, items in lanes.items()
    }
    for item in added:
        lane = (*result[item.lane], item)
        result[item.lane] = tuple(sorted(lane, key=lambda i: i.position))
    return result


def waiting(lanes: Lanes) -> tuple[Item, ...]:
    """List everything that waits, the lanes in their order."""
    return tuple(item for lane in Lane for item in lanes[lane])


def find(lanes: Lanes, item: ItemId) -> Item | None:
    return next((i for i in waiting(lanes) if i.id == item), None)


def copies(lanes: Lanes, message: MessageId, but: ItemId) -> tuple[Item, ...]:
    """List the waiting entries of a message besides one of them."""
    return tuple(i for i in waiting(lanes) if i.message == message and i.id != but)


def first_of_target(lanes: Lanes, item: Item) -> bool:
    """
    Tell whether nothing of the entry's target waits before it.

    Followups aside: a steer never waits behind an older one.
    """
    return not any(
        other.target == item.target and other.position < item.position
        for other in (*lanes[Lane.urgent], *lanes[Lane.next_step])
    )


def next_batch(lanes: Lanes, *, together: bool) -> tuple[Item, ...]:
    """
    Choose the next submission of a turn's start: one target, plus host input.

    The urgent lane goes first and takes the same target's pending lower sequences in
    front of it. Else the next_step lane goes, up to the first entry of another
    target; entries that do not wake take the oldest followup along, since they alone
    would not have begun a turn. Without `together` a submission is one entry.
    """
    if lanes[Lane.urgent]:
        return _urgent_batch(lanes, together=together)
    batch = _one_target(lanes[Lane.next_step])
    followups = lanes[Lane.next_turn]
    if followups and not any(item.wakes for item in batch):
        batch = _one_target(
            tuple(sorted((*batch, followups[0]), key=lambda i: i.position))
        )
    return batch if together else batch[:1]


def next_step_batch(lanes: Lanes) -> tuple[Item, ...]:
    """Choose what joins at a step boundary."""
    return _one_target(lanes[Lane.next_step])


def _urgent_batch(lanes: Lanes, *, together: bool) -> tuple[Item, ...]:
    first = lanes[Lane.urgent][0]
    if not together or first.target is None:
        return (first,)
    urgent = tuple(i for i in lanes[Lane.urgent] if i.target == first.target)
    newest = max(i.seq or 0 for i in urgent)
    context = tuple(
        i
        for lane in (Lane.next_step, Lane.next_turn)
        for i in lanes[lane]
        if i.target == first.target and i.seq is not None and i.seq < newest
    )
    return (*sorted(context, key=lambda i: i.seq or 0), *urgent)


def _one_target(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Take the longest head with one target, so that no entry overtakes another."""
    head: list[Item] = []
    target = None
    for item in items:
        if item.target is not None:
            if target is not None and item.target != target:
                break
            target = item.target
        head.append(item)
    return tuple(head)
