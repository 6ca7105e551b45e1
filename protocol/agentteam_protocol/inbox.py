"""One entry of a session's inbox, the only queue that input passes through."""

from __future__ import annotations

import enum

from attrs import field, frozen

from agentteam_protocol.delivery import (
    Author,
    InterruptPolicy,
)
from agentteam_protocol.ids import (
    DeliveryId,
    ItemId,
    MessageId,
    TargetId,
)


class Lane(enum.StrEnum):
    """Lanes are served in this order, each first in, first out."""

    urgent = "urgent"
    next_step = "next_step"
    next_turn = "next_turn"


@frozen
class Source:
    """`user`, or `plugin` with the plugin's name (R114)."""

    kind: str = "user"
    name: str = ""


@frozen
class Item:
    """
    An entry of the inbox.

    `position` is its place in order of first enqueue and survives requeues; the
    machine sets it. `attempt` counts submissions from 1.
    """

    id: ItemId
    body: str
    lane: Lane
    wakes: bool = True
    position: int = 0
    attempt: int = 1
    refusals: int = 0  # how often the runtime did not take or keep it, cuts aside
    source: Source = field(factory=Source)
    delivery: DeliveryId | None = None
    message: MessageId | None = None
    target: TargetId | None = None
    seq: int | None = None
    policy: InterruptPolicy | None = None
    target_name: str = ""
    direct: bool = True
    author: Author | None = None

    @property
    def key(self) -> str:
        """The id under which the runtime knows this attempt, fresh for each."""
        return f"{self.id}.{self.attempt}"
