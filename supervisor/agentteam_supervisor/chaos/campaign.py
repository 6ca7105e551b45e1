"""
A campaign: worlds in which faults are injected, side by side, and their sum.

The seed and the number of a life say what is done in it. A world has lives of its own
by their numbers, so that a campaign is the same however many worlds go on at once.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_supervisor.chaos.births import ForkServer, open_fork_server
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.world import LIVES_OF_A_WORLD, World

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
    proof: Proof = field(init=False)
    _began: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.proof = Proof(self.seed)

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
        place = Path(tempfile.mkdtemp(prefix="agentteam-chaos-"))
        story = Story(self._began)
        try:
            async with trio.open_nursery() as nursery:
                world = World(self, place, story, nursery, births)
                try:
                    await world.run(number)
                finally:
                    with trio.CancelScope(shield=True):
                        await world.close()
                nursery.cancel_scope.cancel()
        finally:
            if not self.keep:
                shutil.rmtree(place, ignore_errors=True)

    def found(self, findings: list[Finding], story: Story) -> None:
        """Tell what is wrong, with what was done before it."""
        if not findings:
            return
        self.proof.findings += findings
        for line in story.lines:
            self.say(line)
        for finding in findings:
            self.say(f"{finding.kind.upper()} {finding.about}: {finding.seen}")
