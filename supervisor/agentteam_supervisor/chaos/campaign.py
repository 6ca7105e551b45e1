"""
A campaign: worlds in which faults are injected, side by side, and their sum.

The seed and the number of a life say what is done in it. A world has lives of its own
by their numbers, so that a campaign is the same however many worlds go on at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_supervisor.chaos.births import ForkServer, open_fork_server
from agentteam_supervisor.chaos.lives import LIVES_OF_A_WORLD, Lives
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.world import open_world

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.checker import Finding

MAX_FINDINGS = 20


@define(eq=False)
class Campaign:
    """`say` gets the story of what is found; `proof` has the totals at the end."""

    seed: int
    say: Callable[[str], None]
    minutes: float
    max_faults: int | None = None
    first_life: int = 0
    keep: bool = False
    jobs: int = 1
    real: tuple[str, str] | None = None  # a runtime, and its program
    proof: Proof = field(init=False)
    _began: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.proof = Proof(self.seed, runtime=self.real[0] if self.real else "")

    async def run(self) -> Proof:
        """Run until the time is up, enough was done, or too much was found."""
        self._began = trio.current_time()
        numbers = itertools.count(self.first_life, LIVES_OF_A_WORLD)
        async with open_fork_server() as births, trio.open_nursery() as nursery:
            for _ in range(self.jobs):
                nursery.start_soon(self._worlds, numbers, births)
        self.proof.seconds = trio.current_time() - self._began
        return self.proof

    def enough(self) -> bool:
        minutes = (trio.current_time() - self._began) / 60
        faults = self.proof.faults.total()
        return (
            minutes >= self.minutes
            or (self.max_faults is not None and faults >= self.max_faults)
            or len(self.proof.findings) >= MAX_FINDINGS
        )

    async def _worlds(self, numbers: itertools.count[int], births: ForkServer) -> None:
        while not self.enough():
            await self._world(next(numbers), births)

    async def _world(self, number: int, births: ForkServer) -> None:
        story = Story(self._began)
        # Every other world has short deadlines: more of its ladders come to an end.
        impatient = bool(number // LIVES_OF_A_WORLD % 2)
        async with open_world(
            births,
            self.proof,
            story,
            self._found,
            real=self.real,
            impatient=impatient,
            keep=self.keep,
        ) as world:
            await Lives(world, self.enough).run(number)

    def _found(self, findings: list[Finding], story: Story) -> None:
        story.report(findings, self.say)
        self.proof.findings += findings
