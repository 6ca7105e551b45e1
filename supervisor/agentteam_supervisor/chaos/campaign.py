"""
A campaign: lives of the service one after the other, and a judgement now and then.

A life does what its plan says, and ends by a crash point, a signal or the plan's end.
Before the next one starts nothing of the product may be alive. After a few lives
everything is let come to rest, and the checker judges what was seen from outside.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from agentteam_supervisor.chaos import checker
from agentteam_supervisor.chaos.faults import Faults
from agentteam_supervisor.chaos.live import Live
from agentteam_supervisor.chaos.observations import Sighting
from agentteam_supervisor.chaos.person import Person
from agentteam_supervisor.chaos.plan import Life, plan_life
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.proxy import Proxy
from agentteam_supervisor.chaos.rest import come_to_rest, look_around
from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Sightings
from agentteam_supervisor.chaos.traffic import Traffic

# A world is a state directory; a round is judged as a whole.
LIVES_OF_A_ROUND = 5
ROUNDS_OF_A_WORLD = 6
# The warden's own time to end its tree, on a machine that is busy.
GONE_WITHIN = 5.0
STORY = 60
MAX_FINDINGS = 20


@define(eq=False)
class Campaign:
    """`say` gets the story as it goes; `proof` has the totals at the end."""

    seed: int
    say: Callable[[str], None]
    minutes: float
    max_faults: int | None = None
    first_life: int = 0
    keep: bool = False
    proof: Proof = field(init=False)
    story: deque[str] = field(factory=lambda: deque(maxlen=STORY))
    _began: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.proof = Proof(self.seed)

    async def run(self) -> Proof:
        """Run until the time is up, enough was done, or too much was found."""
        self._began = trio.current_time()
        number = self.first_life
        while not self.enough():
            number = await self._world(number)
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

    async def _world(self, number: int) -> int:
        place = Path(tempfile.mkdtemp(prefix="agentteam-chaos-"))
        try:
            async with trio.open_nursery() as nursery:
                world = _World(self, place, nursery)
                try:
                    number = await world.run(number)
                finally:
                    with trio.CancelScope(shield=True):
                        await world.close()
                nursery.cancel_scope.cancel()
        finally:
            if not self.keep:
                shutil.rmtree(place, ignore_errors=True)
        return number

    def tell(self, line: str) -> None:
        at = trio.current_time() - self._began
        self.story.append(f"{at:7.2f} {line}")

    def found(self, findings: list[checker.Finding]) -> None:
        """Tell what is wrong, with what was done before it."""
        if not findings:
            return
        self.proof.findings += findings
        for line in self.story:
            self.say(line)
        for finding in findings:
            self.say(f"{finding.kind.upper()} {finding.about}: {finding.seen}")


class _World:
    """One state directory, and all that is done to the product in it."""

    def __init__(self, campaign: Campaign, place: Path, nursery: trio.Nursery) -> None:
        self.campaign = campaign
        self.proof = campaign.proof
        self.nursery = nursery
        self.sightings = Sightings(place)
        self.service = Service(place, nursery, Proxy())
        person = Person(lambda: self.service.url, f"chaos-{campaign.seed}")
        self.live = Live(lambda: self.service.url)
        self.faults = Faults(
            self.service, self.sightings, self.proof.faults, campaign.tell
        )
        self.traffic = Traffic(person, self.live, self.faults, campaign.tell)
        self.outlived: list[Sighting] = []

    async def run(self, number: int) -> int:
        await self.nursery.start(self.service.proxy.run)
        self.nursery.start_soon(self.live.run)
        await self.service.start("up")
        await self.traffic.make_agents()
        for _ in range(ROUNDS_OF_A_WORLD):
            if self.campaign.enough():
                break
            number = await self._round(number)
        await self._end()
        return number

    async def _round(self, number: int) -> int:
        async with trio.open_nursery() as acts:
            for _ in range(LIVES_OF_A_ROUND):
                await self._live(plan_life(self.campaign.seed, number), acts)
                number += 1
                if self.campaign.enough():
                    break
            self.campaign.tell("rest")
            await self._restart("up")
        await self._judge()
        return number

    # --- one life ---------------------------------------------------------------------

    async def _live(self, life: Life, acts: trio.Nursery) -> None:
        self.campaign.tell(str(life))
        self.proof.lives += 1
        verbs = ("server", "daemon") if life.apart else ("up",)
        crash = {life.crash_of if life.apart else "up": life.crash}
        await self._restart(*verbs, crash=crash)
        async with trio.open_nursery() as nursery:
            for fault in life.faults:
                nursery.start_soon(self._later, fault.at, self.faults.inject, fault)
            for act in life.acts:
                acts.start_soon(self._later, act.at, self.traffic.act, act)
            with trio.move_on_after(life.seconds):
                for verb in verbs:
                    await self.service.parts[verb].over.wait()
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
                self.campaign.tell(f"{verb} {life.end}")
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
            self.campaign.tell(f"{verb} crashed")

    async def _nothing_lives(self) -> None:
        for found in await self.sightings.wait_gone(GONE_WITHIN):
            when = self.campaign.story[-1] if self.campaign.story else ""
            self.outlived.append(Sighting(when, found.pid, found.command))
            found.send(signal.SIGKILL)

    # --- judgement --------------------------------------------------------------------

    async def _judge(self) -> None:
        rested = await come_to_rest(self.traffic)
        seen = await look_around(self.traffic, self.service, self.outlived)
        self.outlived = []
        findings = checker.judge(seen)
        if not rested and not findings:
            findings = [checker.Finding("lost", "the round", "it never came to rest")]
        self.proof.states.update(view["state"] for view in seen.deliveries.values())
        self.proof.stops += len(seen.stops)
        settled = [s.seconds for s in seen.stops if s.seconds is not None]
        self.proof.worst_settle = max([self.proof.worst_settle, *settled])
        self.campaign.found(findings)
        self.traffic.forget_round()

    async def _end(self) -> None:
        """End it cleanly: nothing may be left."""
        for part in self.service.parts.values():
            code = await part.die(signal.SIGTERM)
            if code != 0:
                about = f"exit code {code} at the end"
                self.campaign.found([checker.Finding("fault", part.verb, about)])
        await self._nothing_lives()
        orphans = [
            checker.Finding("orphan", f"pid {s.pid}", s.command) for s in self.outlived
        ]
        self.campaign.found(orphans)

    async def close(self) -> None:
        for part in self.service.parts.values():
            if part.alive:
                await part.die()
        for found in self.sightings.look():
            found.send(signal.SIGKILL)
        await self.traffic.person.client.aclose()
