"""Does the faults of a plan to the processes that are there."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Sightings
from agentteam_supervisor.chaos.uptime import Uptime

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.plan import Fault
    from agentteam_supervisor.chaos.service import Part
    from agentteam_supervisor.chaos.sightings import Found


AGAIN = 0.05


@define(eq=False)
class Faults:
    """
    Counts only what was really done; `uptime` does not count what it keeps.

    `unguarded`: a warden was killed, so its supervisor alone can end the tree.
    """

    service: Service
    sightings: Sightings
    done: Counter[str]
    tell: Callable[[str], None]
    uptime: Uptime = field(factory=Uptime)
    unguarded: bool = False

    async def inject(self, fault: Fault) -> bool:
        """Do it, if there is one to do it to; whatever it stops runs on afterwards."""
        return self.service.alive and await self._do(fault)

    async def inject_soon(self, fault: Fault) -> None:
        """Do it as soon as there is one to do it to."""
        while not await self.inject(fault):  # noqa: ASYNC110 - no event tells of one
            await trio.sleep(AGAIN)

    async def _do(self, fault: Fault) -> bool:
        match fault.what.split():
            case ["runtime" | "warden" | "tool" as kind, "killed"]:
                return self._kill(fault, kind)
            case ["runtime" | "warden" as kind, "stopped"]:
                found = self._choose(fault, kind)
                if found is None or not found.send(signal.SIGSTOP):
                    return False
                await self._last(fault, lambda: found.send(signal.SIGCONT))
            case ["service", "stopped"]:
                part = self._part(fault)
                part.send(signal.SIGSTOP)
                await self._last(fault, lambda: part.send(signal.SIGCONT))
            case ["disk", "full"]:
                part = self._part(fault)
                part.fill_disk(True)
                await self._last(fault, lambda: part.fill_disk(False))
            case ["link", "cut"]:
                return self._did(fault, self.service.proxy.cut() > 0)
            case ["server" | "daemon" as verb, "killed"]:
                named = self.service.parts.get(verb)
                if named is None or not named.alive:
                    return False
                self._did(fault)
                await named.die()
            case _:
                raise ValueError(fault.what)
        return True

    def _did(self, fault: Fault, really: bool = True) -> bool:
        if really:
            self.done[fault.what] += 1
            self.tell(f"{fault.what} ({fault.seconds} s)")
        return really

    async def _last(self, fault: Fault, undo: Callable[[], object]) -> None:
        """Let it last, until the end of the life at most."""
        self._did(fault)
        with self.uptime.kept():
            try:
                await trio.sleep(fault.seconds)
            finally:
                undo()

    def _choose(self, fault: Fault, kind: str) -> Found | None:
        there = [f for f in self.sightings.look(*self.service.pids) if f.kind == kind]
        return there[fault.which % len(there)] if there else None

    def _kill(self, fault: Fault, kind: str) -> bool:
        found = self._choose(fault, kind)
        killed = found is not None and found.send(signal.SIGKILL)
        self.unguarded |= killed and kind == "warden"
        return self._did(fault, killed)

    def _part(self, fault: Fault) -> Part:
        parts = [part for part in self.service.parts.values() if part.alive]
        return parts[fault.which % len(parts)]
