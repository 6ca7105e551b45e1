"""Samples of a floor and of ours, taken by turns, and what they say."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from attrs import field, frozen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Samples = list[float]


@frozen
class Scale:
    """How much is measured: `quick` only shows that everything runs."""

    rounds: int = 5
    quick: bool = False

    def of(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@frozen
class Spread:
    """The medians of the rounds' percentiles; `p99` is None where there is one sample."""

    p50: float
    p99: float | None = None


@frozen
class Goal:
    """A bound on one figure of a line, and the figure."""

    words: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@frozen(kw_only=True)
class Line:
    """One line of the table."""

    row: str
    what: str
    unit: str
    ours: Spread
    floor: Spread | None = None
    floor_is: str = ""
    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> Spread | None:
        if self.floor is None or not self.floor.p50:
            return None
        p99 = None
        if self.ours.p99 is not None and self.floor.p99:
            p99 = self.ours.p99 / self.floor.p99
        return Spread(self.ours.p50 / self.floor.p50, p99)


@frozen
class Taken:
    """The rounds of both sides, as they were taken."""

    floor: list[Samples] = field(factory=list[Samples])
    ours: list[Samples] = field(factory=list[Samples])


@frozen(kw_only=True)
class Bounds:
    """The goal of a row in ratios of ours to the floor."""

    p50: float | None = None
    p99: float | None = None
    rate: float | None = None  # of a throughput: at least so much of the floor


def percentile(samples: Sequence[float], part: float) -> float:
    """Give the smallest sample that `part` of them do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def spread(rounds: Sequence[Sequence[float]]) -> Spread:
    """Take each round's percentiles, and of those the medians."""
    p50 = statistics.median(percentile(r, 0.50) for r in rounds)
    if all(len(r) == 1 for r in rounds):
        return Spread(p50)
    return Spread(p50, statistics.median(percentile(r, 0.99) for r in rounds))


async def alternate(
    scale: Scale,
    floor: Callable[[], Samples],
    ours: Callable[[], Awaitable[Samples]],
    *,
    warm: bool = True,
) -> Taken:
    """
    Take the rounds of both by turns; which goes first changes with the round.

    The floor is blocking code: nothing of ours runs beside it. One round before the
    first is thrown away.
    """
    taken = Taken()
    for number in range(-1 if warm and not scale.quick else 0, scale.rounds):
        if number % 2:
            mine, theirs = await ours(), floor()
        else:
            theirs, mine = floor(), await ours()
        if number >= 0:
            taken.floor.append(theirs)
            taken.ours.append(mine)
    return taken


def compare(
    row: str,
    what: str,
    unit: str,
    taken: Taken,
    bounds: Bounds,
    *,
    floor_is: str,
    goals: Sequence[Goal] = (),
    notes: Sequence[str] = (),
) -> Line:
    """Make the line of a row whose goal is a ratio."""
    line = Line(
        row=row,
        what=what,
        unit=unit,
        ours=spread(taken.ours),
        floor=spread(taken.floor),
        floor_is=floor_is,
    )
    ratio = line.ratio
    assert ratio is not None
    judged: list[Goal] = []
    if bounds.p50 is not None:
        judged.append(Goal(f"{bounds.p50:g}x p50", ratio.p50, bounds.p50))
    if bounds.p99 is not None and ratio.p99 is not None:
        judged.append(Goal(f"{bounds.p99:g}x p99", ratio.p99, bounds.p99))
    if bounds.rate is not None:
        judged.append(Goal(f"{bounds.rate:g}x", ratio.p50, bounds.rate, at_least=True))
    return Line(
        row=row,
        what=what,
        unit=unit,
        ours=line.ours,
        floor=line.floor,
        floor_is=floor_is,
        goals=(*judged, *goals),
        notes=tuple(notes),
    )
