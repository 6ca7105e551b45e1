"""
The drivers that are installed, found by the entry-point group `agentteam.runtimes`.

A driver of another distribution plugs in under a name of its own. One that cannot be
loaded is reported to whoever asks for it, and disturbs no other.
"""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from attrs import frozen

from agentteam_protocol.errors import RuntimeMissing
from agentteam_runtimes.driver import CONTRACT, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

GROUP = "agentteam.runtimes"
FITTING = "install a version of it that fits this one"


@frozen
class Broken:
    """A plugin that is installed and cannot be used."""

    name: str
    problem: str


@frozen
class Plugins:
    """The entry points by name; where two claim a name, neither has it."""

    points: dict[str, list[EntryPoint]]

    @property
    def names(self) -> list[str]:
        """The names that agents may use for a runtime, loadable or not."""
        return sorted(self.points)

    def load(self, name: str) -> Driver:
        """Make the driver of that name; raises `RuntimeMissing` with what to do."""
        points = self.points.get(name)
        if points is None:
            known = ", ".join(self.names) or "none"
            raise RuntimeMissing(
                f"there is no runtime {name}",
                f"use one that is installed ({known}), or install its driver",
            )
        if len(points) > 1:
            values = " and ".join(sorted(point.value for point in points))
            raise RuntimeMissing(
                f"two drivers are called {name}: {values}", "uninstall one of them"
            )
        return _make(points[0])

    def broken(self) -> list[Broken]:
        """Try all of them; return those that cannot be used, and why."""
        found: list[Broken] = []
        for name in self.names:
            try:
                self.load(name)
            except RuntimeMissing as missing:
                found.append(Broken(name, missing.problem))
        return found


def find_plugins(points: Iterable[EntryPoint] | None = None) -> Plugins:
    """Look at what is installed; no plugin is imported yet."""
    by_name: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP) if points is None else points:
        others = by_name.setdefault(point.name, [])
        # The same driver seen twice: an editable install beside its wheel.
        if point.value not in {other.value for other in others}:
            others.append(point)
    return Plugins(by_name)


def _make(point: EntryPoint) -> Driver:
    try:
        driver = cast("Callable[[], Driver]", point.load())()
    except Exception as exc:  # the boundary: a plugin is somebody else's code
        raise RuntimeMissing(
            f"the driver {point.value} cannot be loaded: {type(exc).__name__}: {exc}",
            "repair or uninstall the distribution that brings it",
        ) from exc
    for wanted in ("name", "contract", "probe", "open"):
        if not hasattr(driver, wanted):
            raise RuntimeMissing(f"the driver {point.value} has no {wanted}", FITTING)
    check_contract(driver, point.value)
    return driver


def check_contract(driver: Driver, called: str, ours: int = CONTRACT) -> None:
    """Refuse a driver of a contract to come; warn of one that has had its time."""
    theirs = driver.contract
    if theirs > ours:
        raise RuntimeMissing(
            f"the driver {called} is written for contract {theirs} of drivers, and this"
            f" agentteam-supervisor has contract {ours}",
            "upgrade agentteam-supervisor, or install an older version of the driver",
        )
    if theirs < ours:
        warnings.warn(
            f"the driver {called} is written for contract {theirs} of drivers, and this"
            f" is {ours}: what was deprecated before is gone; {FITTING}",
            DeprecationWarning,
            stacklevel=2,
        )
