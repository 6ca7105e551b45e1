"""Restart intensity: when something that failed may be started again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


@frozen
class Intensity:
    """
    Delays double from `first` up to `cap`; more than `failures` in a row is the end.

    A run of `healthy` seconds forgives everything before it. A start does not: what
    starts and dies at once would else be restarted for ever.
    """

    failures: int = 5
    first: float = 0.5
    cap: float = 60.0
    healthy: float = 60.0

    def delay(self, failures: int) -> float:
        """Give the pause after that many failures in a row."""
        if failures < 1:
            return 0.0
        return float(min(self.cap, self.first * 2 ** min(failures - 1, 63)))


@frozen
class Verdict:
    """`wait` None: give up. `failures` are the times that still count."""

    wait: float | None
    failures: tuple[float, ...]


def judge(failures: Sequence[float], now: float, intensity: Intensity) -> Verdict:
    """Decide about a failure at `now`, after these ones, oldest first."""
    counted: tuple[float, ...] = (*in_a_row(failures, now, intensity), now)
    if len(counted) > intensity.failures:
        return Verdict(None, counted)
    return Verdict(intensity.delay(len(counted)), counted)


def in_a_row(
    failures: Sequence[float], now: float, intensity: Intensity
) -> tuple[float, ...]:
    """Keep the newest failures that no healthy run lies between."""
    kept: list[float] = []
    for time in failures:
        if kept and _healthy(kept, time, intensity):
            kept.clear()
        kept.append(time)
    if kept and _healthy(kept, now, intensity):
        kept.clear()
    return tuple(kept)


def _healthy(kept: Sequence[float], now: float, intensity: Intensity) -> bool:
    """The pause after a failure is no part of the run that follows it."""
    return now - kept[-1] - intensity.delay(len(kept)) >= intensity.healthy
