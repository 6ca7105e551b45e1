"""
Lives of the product, one after the other, in rounds that are judged as a whole.

A life does what its plan says, and ends by a crash point, a signal or the plan's end.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Any

import trio
from attrs import frozen

from agentteam_supervisor.chaos.plan import Life, plan_life
from agentteam_supervisor.chaos.world import World

LIVES_OF_A_ROUND = 5
ROUNDS_OF_A_WORLD = 6
LIVES_OF_A_WORLD = LIVES_OF_A_ROUND * ROUNDS_OF_A_WORLD


@frozen
class Lives:
    """Plays what the plan says in one world, until that is `enough`."""

    world: World
    enough: Callable[[], bool]

    async def run(self, number: int) -> None:
        """Live the lives from this number on."""
        for _ in range(ROUNDS_OF_A_WORLD):
            if self.enough():
                break
            number = await self._round(number)
        await self.world.end()

    async def _round(self, number: int) -> int:
        async with trio.open_nursery() as acts:
            for _ in range(LIVES_OF_A_ROUND):
                life = plan_life(self.world.proof.seed, number, self.world.pace)
                await self._live(life, acts)
                number += 1
                if self.enough():
                    break
            self.world.story.tell("rest")
            await self.world.restart("up")
        rng = random.Random(f"{self.world.proof.seed}/rest/{number}")
        await self.world.judge(rng)
        return number

    # --- one life ---------------------------------------------------------------------

    async def _live(self, life: Life, acts: trio.Nursery) -> None:
        self.world.story.tell(str(life))
        self.world.proof.lives += 1
        verbs = ("server", "daemon") if life.apart else ("up",)
        crash = {life.crash_of if life.apart else "up": life.crash}
        await self.world.restart(*verbs, crash=crash)
        async with trio.open_nursery() as nursery:
            for fault in life.faults:
                nursery.start_soon(
                    self._later, fault.at, self.world.faults.inject_soon, fault
                )
            for act in life.acts:
                acts.start_soon(self._later, act.at, self.world.traffic.act, act)
            with trio.move_on_after(life.seconds):
                for verb in verbs:
                    await self.world.service.parts[verb].over.wait()
            nursery.cancel_scope.cancel()
        await self._die(life)

    async def _later(
        self, seconds: float, do: Callable[[Any], Any], what: object
    ) -> None:
        await trio.sleep(seconds)
        await do(what)

    async def _die(self, life: Life) -> None:
        for verb, part in tuple(self.world.service.parts.items()):
            if part.alive:
                by = signal.SIGTERM if life.end == "ended" else signal.SIGKILL
                if by == signal.SIGKILL:
                    self.world.proof.faults["service killed"] += 1
                self.world.story.tell(f"{verb} {life.end}")
                await part.die(by)
            self.world.count_crash(verb)
