"""Does the faults of a plan to the processes that are there."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define

from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Sightings

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.plan import Fault
    from agentteam_supervisor.chaos.service import Part
    from agentteam_supervisor.chaos.sightings import Found


@define(eq=False)
class Faults:
    """Counts only what was really done; `lost_time` is what it cost a Stop."""

    service: Service
    sightings: Sightings
    done: Counter[str]
    tell: Callable[[str], None]
    lost_time: float = 0.0

    async def inject(self, fault: Fault) -> None:
        """Do it; whatever it stops runs again when this returns."""
        if self.service.alive and await self._do(fault):
            self.done[fault.what] += 1
            self.tell(f"{fault.what} ({fault.seconds} s)")

    async def _do(self, fault: Fault) -> bool:
        match fault.what:
            case "runtime killed":
                return self._kill(fault, lambda found: found.is_runtime)
            case "warden killed":
                return self._kill(fault, lambda found: found.is_warden)
            case "tool killed":
                return self._kill(fault, lambda found: found.is_tool)
            case "runtime stopped":
                found = self._choose(fault, lambda found: found.is_runtime)
                return found is not None and await self._stop(found, fault.seconds)
            case "service stopped":
                return await self._stop_service(fault)
            case "disk full":
                return await self._fill_disk(fault)
            case "link cut":
                return self.service.proxy.cut() > 0
            case "server killed" | "daemon killed":
                part = self.service.parts.get(fault.what.split()[0])
                return part is not None and part.alive and await _killed(part)
            case _:
                raise ValueError(fault.what)

    def _choose(self, fault: Fault, which: Callable[[Found], bool]) -> Found | None:
        there = [f for f in self.sightings.look(*self.service.pids) if which(f)]
        return there[fault.which % len(there)] if there else None

    def _kill(self, fault: Fault, which: Callable[[Found], bool]) -> bool:
        found = self._choose(fault, which)
        return found is not None and found.send(signal.SIGKILL)

    async def _stop(self, found: Found, seconds: float) -> bool:
        if not found.send(signal.SIGSTOP):
            return False
        try:
            await trio.sleep(seconds)
        finally:
            found.send(signal.SIGCONT)
        self.lost_time += seconds
        return True

    async def _stop_service(self, fault: Fault) -> bool:
        part = self._part(fault)
        if part is None:
            return False
        part.send(signal.SIGSTOP)
        try:
            await trio.sleep(fault.seconds)
        finally:
            part.send(signal.SIGCONT)
        self.lost_time += fault.seconds
        return True

    async def _fill_disk(self, fault: Fault) -> bool:
        part = self._part(fault)
        if part is None:
            return False
        part.fill_disk(True)
        try:
            await trio.sleep(fault.seconds)
        finally:
            part.fill_disk(False)
        self.lost_time += fault.seconds
        return True

    def _part(self, fault: Fault) -> Part | None:
        parts = [part for part in self.service.parts.values() if part.alive]
        return parts[fault.which % len(parts)] if parts else None


async def _killed(part: Part) -> bool:
    await part.die()
    return True
