"""Names of things: opaque strings with a prefix, and the fence token."""

from __future__ import annotations

import secrets
from typing import NewType

from attrs import frozen

AgentId = NewType("AgentId", str)
TargetId = NewType("TargetId", str)
MessageId = NewType("MessageId", str)
DeliveryId = NewType("DeliveryId", str)
RunId = NewType("RunId", str)
ApprovalId = NewType("ApprovalId", str)
SendId = NewType("SendId", str)
ControlId = NewType("ControlId", str)
DaemonId = NewType("DaemonId", str)

# An entry of a session's inbox. A delivery's entry bears the delivery's id.
ItemId = NewType("ItemId", str)


def mint(prefix: str) -> str:
    """Make a fresh id, `prefix_` and 16 hex digits."""
    return f"{prefix}_{secrets.token_hex(8)}"


@frozen(order=True)
class Generation:
    """
    The fence token: ordered by the lease's epoch, then by its own number.

    The number grows by one whenever a run is cut or a process replaced; the epoch
    alone forbids reuse across restarts. On the wire it is the list [epoch, number].
    """

    epoch: int
    number: int

    def next(self) -> Generation:
        return Generation(self.epoch, self.number + 1)

    def __str__(self) -> str:
        return f"{self.epoch}.{self.number}"
