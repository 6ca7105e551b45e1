"""
A tour of all crash points: so many visits to both sides of each of them.

A tour of one seed can be made in parts of other seeds: what they print is added up by
`agentteam chaos sum`.
"""

from __future__ import annotations

import itertools
import math
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
    plan_visit,
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
PROGRESS_EVERY = 10.0


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
    one_side: bool = False
    proof: Proof = field(init=False)
    made: list[Visited] = field(factory=list[Visited])
    passes: Passes = field(factory=dict[str, Counter[str]])
    _began: float = 0.0
    _next_word: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.proof = Proof(self.seed)

    @property
    def planned(self) -> int:
        return len(self.points) * self.visits * len(self._sides(0))

    async def run(self) -> Proof:
        """Make every visit, unless the time is up or too much was found before."""
        self._began = trio.current_time()
        async with open_fork_server() as births:
            self.passes = await self._measure(births)
            shares = self._shares()
            async with trio.open_nursery() as nursery:
                for _ in range(self.jobs):
                    nursery.start_soon(self._worlds, shares, births)
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
        """List all first visits before any second one; half of each point's die twice."""
        for number in range(self.visits):
            for place, point in enumerate(self.points):
                for side in self._sides(place + number):
                    twice = bool((place // 2 + number + self.seed) % 2)
                    yield Visit(point, side, number, twice)

    def _sides(self, turn: int) -> tuple[str, ...]:
        return (SIDES[(turn + self.seed) % 2],) if self.one_side else SIDES

    def _shares(self) -> Iterator[list[Visit]]:
        """Give each world its visits; one form of the service comes after the other."""
        visits = self._visits()
        most = min(VISITS_OF_A_WORLD, math.ceil(self.planned / self.jobs))
        while share := list(itertools.islice(visits, most)):
            yield sorted(share, key=self._is_apart)

    def _is_apart(self, visit: Visit) -> bool:
        plan = plan_visit(self.seed, visit, self.passes)
        return plan is not None and plan.apart

    def _enough(self) -> bool:
        minutes = (trio.current_time() - self._began) / 60
        late = self.minutes is not None and minutes >= self.minutes
        return late or len(self.proof.findings) >= MAX_FINDINGS

    async def _measure(self, births: ForkServer) -> Passes:
        with tempfile.TemporaryDirectory(prefix="agentteam-chaos-") as place:
            async with self._open(births) as world:
                return await measure(world, Path(place) / "points")

    async def _worlds(self, shares: Iterator[list[Visit]], births: ForkServer) -> None:
        for share in shares:
            if self._enough():
                break
            async with self._open(births) as world:
                visitor = Visitor(world, self.passes)
                for visit in share:
                    if self._enough():
                        break
                    self.made.append(await visitor.make(visit))
                    self._say_progress()
                await world.end()

    def _say_progress(self) -> None:
        now = trio.current_time()
        if now >= self._next_word:
            self._next_word = now + PROGRESS_EVERY
            self.say(
                f"{len(self.made)} of {self.planned} visits,"
                f" {len(self.proof.findings)} findings, {now - self._began:.0f} s"
            )

    def _open(self, births: ForkServer) -> AbstractAsyncContextManager[World]:
        story = Story(self._began)
        return open_world(
            births,
            self.proof,
            story,
            self._found,
            CONFIGS,
            impatient=True,
            hasty=True,
            keep=self.keep,
        )

    def _found(self, findings: list[Finding], story: Story) -> None:
        story.report(findings, self.say)
        self.proof.findings += findings
