"""A tour of all crash points: so many visits to both sides of each of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_supervisor.chaos.births import ForkServer, open_fork_server
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.visits import (
    Passes,
    Visit,
    Visited,
    Visitor,
    measure,
)
from agentteam_supervisor.chaos.workloads import CONFIGS
from agentteam_supervisor.chaos.world import World, open_world

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agentteam_supervisor.chaos.checker import Finding

SIDES = ("before", "after")
# A world gets slower as it grows.
VISITS_OF_A_WORLD = 24
MAX_FINDINGS = 20


@define(eq=False)
class Tour:
    """Visits the `points`; `say` gets the story of what is found."""

    seed: int
    say: Callable[[str], None]
    points: Sequence[str]
    visits: int
    jobs: int = 1
    minutes: float | None = None
    keep: bool = False
    proof: Proof = field(init=False)
    made: list[Visited] = field(factory=list[Visited])
    passes: Passes = field(factory=dict[str, Counter[str]])
    _began: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.proof = Proof(self.seed)

    async def run(self) -> Proof:
        """Make every visit, unless the time is up or too much was found before."""
        self._began = trio.current_time()
        async with open_fork_server() as births:
            self.passes = await self._measure(births)
            visits = self._visits()
            async with trio.open_nursery() as nursery:
                for _ in range(self.jobs):
                    nursery.start_soon(self._worlds, visits, births)
        self.proof.seconds = trio.current_time() - self._began
        return self.proof

    def rows(self) -> Iterator[tuple[str, int, int, int, str]]:
        """Tell of each point: visits, deaths there, of these two in a row, and misses."""
        for point in self.points:
            made = [each for each in self.made if each.visit.point == point]
            if made:
                missed = Counter(v.visit.side for v in made if not v.deaths)
                twice = sum(each.deaths > 1 for each in made)
                deaths = sum(each.deaths for each in made)
                words = ", ".join(f"{side} {n}" for side, n in missed.items())
                yield point, len(made), deaths, twice, words

    def as_json(self) -> list[dict[str, object]]:
        names = ("point", "visits", "killed", "twice", "notReached")
        return [dict(zip(names, row, strict=True)) for row in self.rows()]

    def _visits(self) -> Iterator[Visit]:
        """List all first visits before any second one."""
        for number in range(self.visits):
            for point in self.points:
                for side in SIDES:
                    if self._enough():
                        return
                    yield Visit(point, side, number)

    def _enough(self) -> bool:
        minutes = (trio.current_time() - self._began) / 60
        late = self.minutes is not None and minutes >= self.minutes
        return late or len(self.proof.findings) >= MAX_FINDINGS

    async def _measure(self, births: ForkServer) -> Passes:
        with tempfile.TemporaryDirectory(prefix="agentteam-chaos-") as place:
            async with self._open(births) as world:
                return await measure(world, Path(place) / "points")

    async def _worlds(self, visits: Iterator[Visit], births: ForkServer) -> None:
        while (first := next(visits, None)) is not None:
            async with self._open(births) as world:
                await self._visit(world, first, visits)

    async def _visit(self, world: World, first: Visit, visits: Iterator[Visit]) -> None:
        visitor = Visitor(world, self.passes)
        self.made.append(await visitor.make(first))
        for _ in range(VISITS_OF_A_WORLD - 1):
            if (visit := next(visits, None)) is None:
                break
            self.made.append(await visitor.make(visit))
        await world.end()

    def _open(self, births: ForkServer) -> AbstractAsyncContextManager[World]:
        story = Story(self._began)
        return open_world(
            births,
            self.proof,
            story,
            self._found,
            CONFIGS,
            impatient=True,
            keep=self.keep,
        )

    def _found(self, findings: list[Finding], story: Story) -> None:
        story.report(findings, self.say)
        self.proof.findings += findings
