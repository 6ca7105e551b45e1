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
from agentteam_supervisor.chaos.person import GaveUp
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.rows import Row
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.visits import (
    Passes,
    Visit,
    Visited,
    Visitor,
    measure,
    plan_visit,
)
from agentteam_supervisor.chaos.workloads import CONFIGS, WORKLOADS, Workload
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
            self.passes = await self.measure(births)
            shares = self.shares()
            async with trio.open_nursery() as nursery:
                for _ in range(self.jobs):
                    nursery.start_soon(self._worlds, shares, births)
        self.proof.seconds = trio.current_time() - self._began
        return self.proof

    def rows(self) -> list[Row]:
        """Tell what became of the visits to each point, as far as they were made."""
        rows = [Row.of(point, self.made) for point in self.points]
        return [row for row in rows if row.visits]

    def _visits(self) -> Iterator[Visit]:
        """List all first visits before any second one; half of each point's die twice."""
        for number in range(self.visits):
            for place, point in enumerate(self.points):
                for side in self._sides(place + number):
                    twice = bool((place // 2 + number + self.seed) % 2)
                    yield Visit(point, side, number, twice)

    def _sides(self, turn: int) -> tuple[str, ...]:
        return (SIDES[(turn + self.seed) % 2],) if self.one_side else SIDES

    def shares(self) -> Iterator[list[Visit]]:
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

    async def measure(self, births: ForkServer) -> Passes:
        """See what each workload passes, in worlds side by side."""
        passes: dict[str, Counter[str]] = {}

        async def some(share: Sequence[Workload]) -> None:
            with tempfile.TemporaryDirectory(prefix="agentteam-chaos-") as place:
                async with self._open(births) as world:
                    passes.update(await measure(world, Path(place) / "points", share))

        async with trio.open_nursery() as nursery:
            for job in range(self.jobs):
                nursery.start_soon(some, WORKLOADS[job :: self.jobs])
        return passes

    async def _worlds(self, shares: Iterator[list[Visit]], births: ForkServer) -> None:
        for share in shares:
            if self._enough():
                break
            async with self._open(births) as world:
                visitor = Visitor(world, self.passes)
                for visit in share:
                    if self._enough():
                        continue
                    try:
                        self.made.append(await visitor.make(visit))
                    except GaveUp as gone:
                        world.give_up(gone)
                        break
                    self._say_progress()
                else:
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
