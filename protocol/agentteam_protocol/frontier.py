"""The freshness frontier of one agent in one target: what it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

# Beyond this many out-of-order sequences the lowest ones wait for their gap to close
# anyway; forgetting the highest only makes the agent read again, never skip.
MAX_EXTRAS = 1000


@frozen
class Frontier:
    """
    All sequences up to `contiguous`, and the `extras` above it, were seen.

    Monotone: no method ever forgets a seen sequence below the bound (R52).
    """

    contiguous: int = 0
    extras: frozenset[int] = frozenset()

    def covers(self, seq: int) -> bool:
        return seq <= self.contiguous or seq in self.extras

    def saw(self, seqs: Iterable[int]) -> Frontier:
        """Add sequences and close the gaps that they fill."""
        extras = {*self.extras, *(s for s in seqs if s > self.contiguous)}
        return _closed(self.contiguous, extras)

    def raised(self, floor: int) -> Frontier:
        """Count everything up to `floor` as seen: the target's head at joining."""
        if floor <= self.contiguous:
            return self
        return _closed(floor, {s for s in self.extras if s > floor})

    def unseen(self, head: int) -> list[int]:
        """List what is missing up to `head`."""
        return [s for s in range(self.contiguous + 1, head + 1) if s not in self.extras]


def _closed(contiguous: int, extras: set[int]) -> Frontier:
    while contiguous + 1 in extras:
        contiguous += 1
        extras.discard(contiguous)
    kept = sorted(extras)[:MAX_EXTRAS]
    return Frontier(contiguous, frozenset(kept))
