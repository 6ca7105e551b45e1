"""
Which way a delivery's state may move: pure.

A report speaks of an attempt. Of an older attempt than ours it is stale; of ours it
moves the state along this table; of a newer one (the daemon put the message back in
its lane) it moves any state that is not final. What has failed may still be read, where
the runtime keeps it; what an urgent copy replaced waits again when that one failed.

| from | to |
|---|---|
| queued | accepted, surfaced, failed, blocked, cancelled, superseded, unknown |
| accepted | surfaced, failed, blocked, cancelled, superseded, unknown |
| unknown | surfaced, failed, cancelled, superseded |
| failed | surfaced, cancelled, superseded |
| blocked | cancelled |
| surfaced | |
| cancelled | |
| superseded | |
"""

from __future__ import annotations

from agentteam_protocol.delivery import DeliveryState

_S = DeliveryState
_ENDS = frozenset(
    {_S.surfaced, _S.failed, _S.blocked, _S.cancelled, _S.superseded, _S.unknown}
)

MOVES: dict[DeliveryState, frozenset[DeliveryState]] = {
    _S.queued: _ENDS | {_S.accepted},
    _S.accepted: _ENDS,
    _S.unknown: frozenset({_S.surfaced, _S.failed, _S.cancelled, _S.superseded}),
    _S.failed: frozenset({_S.surfaced, _S.cancelled, _S.superseded}),
    _S.blocked: frozenset({_S.cancelled}),
    _S.surfaced: frozenset(),
    _S.cancelled: frozenset(),
    _S.superseded: frozenset(),
}
FINAL = frozenset({_S.surfaced, _S.cancelled})

# The first urgent delivery is handed out again while it is in one of these.
STANDING = frozenset({_S.queued, _S.accepted, _S.surfaced, _S.unknown})

# A person may send it once more, or let it go.
REDELIVERABLE = frozenset({_S.unknown, _S.failed, _S.blocked})
DISMISSABLE = REDELIVERABLE | {_S.queued, _S.accepted}
# Only the daemon knows whether it comes in time, or the runtime has read it already.
ON_ITS_WAY = frozenset({_S.queued, _S.accepted})


def moves(
    state: DeliveryState, attempt: int, to: DeliveryState, to_attempt: int
) -> bool:
    """Tell whether a report of `to` at `to_attempt` changes a delivery."""
    if to_attempt < attempt or state in FINAL:
        return False
    return to_attempt > attempt or to in MOVES[state]
