"""One urgent message in a service that is killed at a point of its way."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field
from tests.kit.product_agent import TERMINAL, until

from agentteam_supervisor.chaos.births import Births
from agentteam_supervisor.chaos.faults import Faults
from agentteam_supervisor.chaos.live import Live
from agentteam_supervisor.chaos.observations import Observations, Sighting
from agentteam_supervisor.chaos.person import Person
from agentteam_supervisor.chaos.proxy import Proxy
from agentteam_supervisor.chaos.rest import Rest, look_around
from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Sightings
from agentteam_supervisor.chaos.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

BUSY = f"#do {json.dumps([{'run': 'sleep 600'}, {'say': 'never'}])}"
GONE_WITHIN = 5.0


@define(eq=False)
class Crashing:
    """A service with one agent, and the person who marks a message urgent."""

    service: Service
    sightings: Sightings
    traffic: Traffic
    crashed: bool = False
    outlived: list[Sighting] = field(factory=list[Sighting])

    @property
    def agent(self) -> str:
        return self.traffic.agents[0]

    async def make_agent(self) -> None:
        """Start for the first time, make the agent, and end."""
        assert await self.service.start("up"), self.service.log.read_text()
        await self.traffic.make_agents()
        assert await self.service.parts["up"].die() is not None
        assert await self.sightings.wait_gone(GONE_WITHIN) == []

    async def journey(self, log: Path | None = None) -> Counter[str]:
        """Send, mark urgent, wait for the end; gives the points before the mark."""
        busy = await self.traffic.send(self.agent, BUSY)
        await self._ended(busy)
        message = await self.traffic.send(self.agent, "and now?")
        passed = count_points(log)
        await self.traffic.mark(self.agent, message)
        for each in tuple(self.traffic.accepted):
            await self._state(each.delivery)
        return passed

    async def _ended(self, message: str) -> None:
        for each in tuple(self.traffic.accepted):
            if each.message == message:
                await self._state(each.delivery)

    async def _state(self, delivery: str) -> Any:
        async def look() -> Any:
            return await self.traffic.person.get(f"/api/deliveries/{delivery}")

        return await until(look, lambda view: view["state"] in TERMINAL)

    async def crash(self, crash: str) -> Observations:
        """Make the journey with a crash on its way, and look when it is over."""
        async with trio.open_nursery() as nursery:
            await self.service.start("up", crash)
            nursery.start_soon(self._revive)
            await self.journey()
            # The point may come after the journey: it is revived until all is seen.
            rested = await Rest(self.traffic, random.Random(0)).come()
            seen = await look_around(self.traffic, self.service, self.outlived)
            nursery.cancel_scope.cancel()
        assert rested
        return seen

    async def _revive(self) -> None:
        """Start it again when it has crashed; before, nothing of it may be alive."""
        await self.service.parts["up"].over.wait()
        with trio.CancelScope(shield=True):
            self.crashed = self.service.parts["up"].crashed
            alive = await self.sightings.wait_gone(GONE_WITHIN)
            self.outlived = [Sighting("down", f.pid, f.command) for f in alive]
            assert await self.service.start("up"), self.service.log.read_text()


def count_points(log: Path | None) -> Counter[str]:
    return Counter[str]() if log is None else Counter(log.read_text().split())


def furnish(place: Path, template: Path | None) -> None:
    """Make the place, with a copy of the template's state in it."""
    place.mkdir(parents=True, exist_ok=True)
    if template is not None:
        shutil.copytree(template / "state", place / "state")


@asynccontextmanager
async def open_crashing(
    place: Path,
    template: Path | None = None,
    agent: str = "",
    births: Births | None = None,
) -> AsyncGenerator[Crashing]:
    furnish(place, template)
    async with trio.open_nursery() as nursery:
        service = Service(place, nursery, Proxy(), births or Births())
        person = Person(lambda: service.url, place.name)
        live = Live(lambda: service.url)
        sightings = Sightings(place)
        faults = Faults(service, sightings, Counter(), print)
        traffic = Traffic(person, live, faults, print, configs=({},))
        if agent:
            traffic.agents.append(agent)
            traffic.names[agent] = "a0"
        nursery.start_soon(live.run)
        try:
            yield Crashing(service, sightings, traffic)
        finally:
            with trio.CancelScope(shield=True):
                for part in service.parts.values():
                    await part.die()
                for found in await sightings.wait_gone(GONE_WITHIN):
                    found.send(9)
                await person.client.aclose()
        nursery.cancel_scope.cancel()
