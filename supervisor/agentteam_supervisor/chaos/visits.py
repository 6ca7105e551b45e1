"""
Every crash point, one after the other: killed there, and killed there once more.

A visit arms a point, lets a workload that passes it be played, and is killed. Every
second visit is armed again at the restart, and dies there again if it comes there
again. Then comes a clean start, and the judgement; the life that was judged is the next
one to be armed. Which workload passes which point is
measured first, in a life that is not disturbed.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio
from attrs import frozen

from agentteam_supervisor.chaos.desk import Desk, Hurried
from agentteam_supervisor.chaos.person import GaveUp
from agentteam_supervisor.chaos.rest import Rest
from agentteam_supervisor.chaos.workloads import CONFIGS, WORKLOADS, Workload
from agentteam_supervisor.chaos.world import World

if TYPE_CHECKING:
    from pathlib import Path

# workload: how often it passes POINT:SIDE
Passes = Mapping[str, Counter[str]]
SERVER_STAGES = frozenset({"store", "server-sends", "server-receives"})
LATEST_PASS = 4
# What comes after the last answer that a person waits for.
LINGER = 0.3


@frozen
class Visit:
    """
    One time at one side of a point; its number draws what is done there.

    `twice`: it is armed again at the restart.
    """

    point: str
    side: str
    number: int
    twice: bool

    @property
    def where(self) -> str:
        return f"{self.point}:{self.side}"

    def __str__(self) -> str:
        return f"visit {self.number} of {self.where}{', twice' if self.twice else ''}"


@frozen
class Plan:
    """How a visit is made."""

    workload: Workload
    nth: int
    nth_again: int
    apart: bool

    @property
    def verbs(self) -> tuple[str, ...]:
        return ("server", "daemon") if self.apart else ("up",)

    def mortal(self, point: str) -> str:
        """Name the part that passes the point."""
        if not self.apart:
            return "up"
        return "server" if point.partition("/")[0] in SERVER_STAGES else "daemon"


@frozen
class Visited:
    """How often it came to its point, and was killed there."""

    visit: Visit
    deaths: int


def plan_visit(seed: int, visit: Visit, passes: Passes) -> Plan | None:
    """Draw how it is made; None: no workload passes the point."""
    rng = Random(f"{seed}/{visit}")
    able = [w for w in WORKLOADS if passes[w.name][visit.where]]
    if not able:
        return None
    workload = rng.choice(able)
    most = min(passes[workload.name][visit.where], LATEST_PASS)
    return Plan(
        workload=workload,
        nth=rng.randint(1, most),
        nth_again=rng.choice([1, 1, 2]),
        apart=rng.random() < 0.3,
    )


async def measure(world: World, log: Path, workloads: Sequence[Workload]) -> Passes:
    """Play these workloads undisturbed, and see what they pass."""
    await _begin(world, log)
    passes: dict[str, Counter[str]] = {}
    for workload in workloads:
        before = _count(log)
        if workload.ends or workload.fresh:
            await _begin(world, log, workload.fresh)
            before.clear()
        played = trio.Event()
        await _work(workload, _desk(world, workload), Random(0), played)
        if workload.ends:
            await world.service.parts["up"].die(signal.SIGTERM)
        else:
            await trio.sleep(LINGER)
        passes[workload.name] = _count(log) - before
    await world.restart("up")
    await world.judge(Random(0))
    return passes


async def _begin(world: World, log: Path, fresh: bool = False) -> None:
    """Begin a life with its own log of what it passes."""
    await world.service.parts["up"].die(signal.SIGTERM)
    if fresh:
        await world.renew()
    await trio.Path(log).write_text("")
    await world.service.start("up", log=log)


def _count(log: Path) -> Counter[str]:
    return Counter(log.read_text().split()) if log.exists() else Counter[str]()


def _desk(world: World, workload: Workload) -> Desk:
    if workload.fresh:
        return Desk(world.traffic, "")
    agent = world.traffic.agents[CONFIGS.index(dict(workload.config))]
    return Desk(world.traffic, agent)


@frozen
class Visitor:
    """Makes visits to one world."""

    world: World
    passes: Passes

    async def make(self, visit: Visit) -> Visited:
        """Make one, and judge it; a point that it did not come to counts no death."""
        seed = self.world.proof.seed
        plan = plan_visit(seed, visit, self.passes)
        if plan is None:
            return Visited(visit, 0)
        self.world.proof.lives += 1
        self.world.story.tell(f"{visit}, {plan.workload.name}, {plan.nth}")
        rng = Random(f"{seed}/{visit}/play")
        deaths = await self._die(visit, plan, plan.nth, rng)
        if deaths == 0 and plan.nth > 1:
            deaths = await self._die(visit, plan, 1, rng)
        if not self.world.traffic.agents:
            await self.world.traffic.make_agents()
        await self.world.judge(rng)
        if plan.apart and deaths and plan.mortal(visit.point) == "server":
            # With each death of its server a daemon takes longer to come back.
            await self.world.service.parts["daemon"].die()
            await self.world.revive("daemon")
        return Visited(visit, deaths)

    async def _die(self, visit: Visit, plan: Plan, nth: int, rng: Random) -> int:
        mortal = plan.mortal(visit.point)
        crash = {mortal: f"{visit.where}:{nth}"}
        if plan.workload.fresh:
            await self.world.renew()
        desk = _desk(self.world, plan.workload)
        # What ends or is fresh passes the points of a start, too.
        whole = plan.workload.ends or plan.workload.fresh
        begin = self.world.restart if whole else self.world.arm
        if await begin(*plan.verbs, crash=crash):
            return 1 + await self._again(visit, plan, rng)
        deaths = 0
        async with trio.open_nursery() as nursery:
            await self._play(nursery, plan.workload, desk, rng, mortal)
            desk.hurry.set()
            if self.world.count_crash(mortal):
                deaths = 1 + await self._again(visit, plan, rng)
            else:
                await self._go_on(mortal)
        return deaths

    async def _play(
        self,
        nursery: trio.Nursery,
        workload: Workload,
        desk: Desk,
        rng: Random,
        mortal: str,
    ) -> None:
        """Let it be played until it has ended, or the service has."""
        over, played = self.world.service.parts[mortal].over, trio.Event()
        nursery.start_soon(_work, workload, desk, rng, played)
        await _first_of(over, played)
        if not over.is_set() and workload.ends:
            await self.world.service.parts[mortal].die(signal.SIGTERM)
        with trio.move_on_after(LINGER):
            await over.wait()

    async def _again(self, visit: Visit, plan: Plan, rng: Random) -> int:
        """Start it again, armed if the visit is to die twice; then start it cleanly."""
        mortal = plan.mortal(visit.point)
        if not visit.twice:
            if not self.world.service.parts[mortal].alive:
                await self.world.revive(mortal)
            return 0
        if self.world.service.parts[mortal].alive:
            await self.world.service.parts[mortal].die()
        if await self.world.revive(mortal, f"{visit.where}:{plan.nth_again}"):
            return 1
        over, rested = self.world.service.parts[mortal].over, trio.Event()
        async with trio.open_nursery() as nursery:
            rest = Rest(self.world.traffic, rng, self.world.patience)
            nursery.start_soon(_rest, rest, rested)
            await _first_of(over, rested)
            nursery.cancel_scope.cancel()
        return int(await self._go_on(mortal))

    async def _go_on(self, mortal: str) -> bool:
        """Have it serve and be armed no more; tells whether it had to be revived."""
        if await self.world.disarm(mortal):
            return False
        died = self.world.count_crash(mortal)
        await self.world.revive(mortal)
        return died


async def _work(
    workload: Workload, desk: Desk, rng: Random, played: trio.Event
) -> None:
    try:
        await workload.play(desk, rng)
    except (Hurried, GaveUp) as gone:
        desk.traffic.tell(f"{workload.name} breaks off: {gone}")
    played.set()


async def _rest(rest: Rest, rested: trio.Event) -> None:
    await rest.come()
    rested.set()


async def _first_of(*events: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        for event in events:
            nursery.start_soon(partial(_cancel_after, event, nursery.cancel_scope))


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()
