"""
A world: a state directory, and all that is done to the product in it.

A life does what its plan says, and ends by a crash point, a signal or the plan's end.
Before the next one starts nothing of the product may be alive. After a few lives
everything is let come to rest, and the checker judges what was seen from outside.
"""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING, Any

import trio

from agentteam_supervisor.chaos import checker
from agentteam_supervisor.chaos.faults import Faults
from agentteam_supervisor.chaos.live import Live
from agentteam_supervisor.chaos.observations import Sighting
from agentteam_supervisor.chaos.person import Person
from agentteam_supervisor.chaos.plan import Life, plan_life
from agentteam_supervisor.chaos.proxy import Proxy
from agentteam_supervisor.chaos.rest import Rest, look_around
from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Sightings
from agentteam_supervisor.chaos.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentteam_supervisor.chaos.births import Births
    from agentteam_supervisor.chaos.campaign import Campaign
    from agentteam_supervisor.chaos.story import Story

# A round is judged as a whole.
LIVES_OF_A_ROUND = 5
ROUNDS_OF_A_WORLD = 6
LIVES_OF_A_WORLD = LIVES_OF_A_ROUND * ROUNDS_OF_A_WORLD
# The warden's own time to end its tree, on a machine that is busy.
GONE_WITHIN = 5.0

IMPATIENT = """\
[limits]
interrupt = 1.0
terminate = 0.5
"""


class World:
    """The product in one state directory, with the people at it."""

    def __init__(
        self,
        campaign: Campaign,
        place: Path,
        story: Story,
        nursery: trio.Nursery,
        births: Births,
    ) -> None:
        self.campaign = campaign
        self.proof = campaign.proof
        self.story = story
        self.nursery = nursery
        self.births = births
        self.sightings = Sightings(place)
        # The first start is as a user's; the lives after it are forked.
        self.service = Service(place, nursery, Proxy())
        person = Person(lambda: self.service.url, f"chaos-{campaign.seed}")
        self.live = Live(lambda: self.service.url)
        self.faults = Faults(
            self.service, self.sightings, self.proof.faults, story.tell
        )
        self.traffic = Traffic(person, self.live, self.faults, story.tell)
        self.outlived: list[Sighting] = []

    async def run(self, number: int) -> None:
        """Live the lives from this number on."""
        await self.nursery.start(self.service.proxy.run)
        self.nursery.start_soon(self.live.run)
        if number // LIVES_OF_A_WORLD % 2:
            self._shorten_deadlines()
        await self.service.start("up")
        self.service.births = self.births
        await self.traffic.make_agents()
        for _ in range(ROUNDS_OF_A_WORLD):
            if self.campaign.enough():
                break
            number = await self._round(number)
        await self._end()

    def _shorten_deadlines(self) -> None:
        """Have its sessions come to the end of their ladders sooner."""
        self.service.state.mkdir(0o700)
        (self.service.state / "agentteam.toml").write_text(IMPATIENT)

    async def _round(self, number: int) -> int:
        async with trio.open_nursery() as acts:
            for _ in range(LIVES_OF_A_ROUND):
                await self._live(plan_life(self.campaign.seed, number), acts)
                number += 1
                if self.campaign.enough():
                    break
            self.story.tell("rest")
            await self._restart("up")
        await self._judge(number)
        return number

    # --- one life ---------------------------------------------------------------------

    async def _live(self, life: Life, acts: trio.Nursery) -> None:
        self.story.tell(str(life))
        self.proof.lives += 1
        verbs = ("server", "daemon") if life.apart else ("up",)
        crash = {life.crash_of if life.apart else "up": life.crash}
        await self._restart(*verbs, crash=crash)
        async with trio.open_nursery() as nursery:
            for fault in life.faults:
                nursery.start_soon(
                    self._later, fault.at, self.faults.inject_soon, fault
                )
            for act in life.acts:
                acts.start_soon(self._later, act.at, self.traffic.act, act)
            with trio.move_on_after(life.seconds):
                for verb in verbs:
                    await self.service.parts[verb].over.wait()
            nursery.cancel_scope.cancel()
        await self._die(life)

    async def _later(
        self, seconds: float, do: Callable[[Any], Any], what: object
    ) -> None:
        await trio.sleep(seconds)
        await do(what)

    async def _die(self, life: Life) -> None:
        for verb, part in tuple(self.service.parts.items()):
            if part.alive:
                by = signal.SIGTERM if life.end == "ended" else signal.SIGKILL
                if by == signal.SIGKILL:
                    self.proof.faults["service killed"] += 1
                self.story.tell(f"{verb} {life.end}")
                await part.die(by)
            else:
                self._count_crash(verb)

    async def _restart(self, *verbs: str, crash: dict[str, str] | None = None) -> None:
        """Bring it up in this form; nothing of it may be alive before."""
        began = trio.current_time()
        for part in self.service.parts.values():
            if part.alive:
                await part.die()
        await self._nothing_lives()
        self.service.parts.clear()
        for verb in verbs:
            point = (crash or {}).get(verb, "")
            if not await self.service.start(verb, point):
                await self._after_death_at_start(verb)
        self.faults.lost_time += trio.current_time() - began

    async def _after_death_at_start(self, verb: str) -> None:
        """It was killed while it started: once more, without a fault."""
        self._count_crash(verb)
        await self._nothing_lives_unless_apart(verb)
        if not await self.service.start(verb):
            raise RuntimeError(f"`agentteam {verb}` does not start; see its log")

    async def _nothing_lives_unless_apart(self, verb: str) -> None:
        if not self.service.alive:
            await self._nothing_lives()

    def _count_crash(self, verb: str) -> None:
        part = self.service.parts.get(verb)
        if part is not None and part.crashed:
            self.proof.faults["crash point"] += 1
            self.story.tell(f"{verb} crashed")

    async def _nothing_lives(self) -> None:
        for found in await self.sightings.wait_gone(GONE_WITHIN):
            sighting = Sighting(self.story.last, found.pid, found.command)
            self.outlived.append(sighting)
            found.send(signal.SIGKILL)

    # --- judgement --------------------------------------------------------------------

    async def _judge(self, number: int) -> None:
        rng = random.Random(f"{self.campaign.seed}/rest/{number}")
        rested = await Rest(self.traffic, rng).come()
        seen = await look_around(self.traffic, self.service, self.outlived)
        self.outlived = []
        findings = checker.judge(seen)
        if not rested and not findings:
            findings = [checker.Finding("lost", "the round", "it never came to rest")]
        self.proof.states.update(view["state"] for view in seen.deliveries.values())
        self.proof.stops += len(seen.stops)
        settled = [s.seconds for s in seen.stops if s.seconds is not None]
        self.proof.worst_settle = max([self.proof.worst_settle, *settled])
        self._found(*findings)
        self.traffic.forget_round()

    async def _end(self) -> None:
        """End it cleanly: nothing may be left."""
        for part in self.service.parts.values():
            code = await part.die(signal.SIGTERM)
            if code != 0:
                about = f"exit code {code} at the end"
                self._found(checker.Finding("fault", part.verb, about))
        await self._nothing_lives()
        for s in self.outlived:
            self._found(checker.Finding("orphan", f"pid {s.pid}", s.command))

    def _found(self, *findings: checker.Finding) -> None:
        self.campaign.found(list(findings), self.story)

    async def close(self) -> None:
        for part in self.service.parts.values():
            if part.alive:
                await part.die()
        for found in self.sightings.look():
            found.send(signal.SIGKILL)
        await self.traffic.person.client.aclose()
