"""
A world: the product in one state directory, and the people at it.

Before a life of the product starts nothing of the one before may be alive. There is one
exception: who kills a warden and then its supervisor leaves nobody to end their tree;
what is left then must be gone when the next life serves. When enough was done
everything is let come to rest, and the checker judges what was seen.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from agentteam_supervisor.chaos.checker import Finding, judge
from agentteam_supervisor.chaos.company import Company, open_company
from agentteam_supervisor.chaos.faults import Faults
from agentteam_supervisor.chaos.live import Live
from agentteam_supervisor.chaos.observations import Sighting
from agentteam_supervisor.chaos.person import GaveUp, Person
from agentteam_supervisor.chaos.proxy import Proxy
from agentteam_supervisor.chaos.rest import (
    IMPATIENCE,
    PATIENCE,
    REAL_PATIENCE,
    Rest,
    look_around,
)
from agentteam_supervisor.chaos.scripts import AGENTS, REAL, REHEARSED
from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.sightings import Found, Sightings
from agentteam_supervisor.chaos.traffic import Traffic

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Sequence

    from agentteam_supervisor.chaos.births import Births
    from agentteam_supervisor.chaos.proof import Proof
    from agentteam_supervisor.chaos.story import Story

# The warden's own time to end its tree, on a machine that is busy.
GONE_WITHIN = 5.0

IMPATIENT = """\
[limits]
interrupt = 1.0
terminate = 0.5
"""


class World:
    """Ends up in `proof`; what is wrong goes to `found`, with the story of it."""

    def __init__(
        self,
        place: Path,
        nursery: trio.Nursery,
        births: Births,
        proof: Proof,
        story: Story,
        found: Callable[[list[Finding], Story], None],
        configs: Sequence[dict[str, Any]] = AGENTS,
        company: Company | None = None,
    ) -> None:
        self.pace = REHEARSED if company is None else REAL
        self.nursery = nursery
        self.births = births
        self.proof = proof
        self.story = story
        self.found = found
        self.sightings = Sightings(place)
        # The first start is as a user's, unless hasty; the lives after it are forked.
        self.service = Service(place, nursery, Proxy())
        person = Person(lambda: self.service.url, f"chaos-{proof.seed}")
        self.faults = Faults(self.service, self.sightings, proof.faults, story.tell)
        self.service.proxy.uptime = self.faults.uptime
        self.live = Live(lambda: self.service.url, clock=self.faults.uptime.now)
        self.traffic = Traffic(
            person, self.live, self.faults, story.tell, configs, company
        )
        self.outlived: list[Sighting] = []
        self.left: list[Found] = []
        self.keep = False
        self.patience = PATIENCE if company is None else REAL_PATIENCE

    async def open(self, impatient: bool = False, hasty: bool = False) -> None:
        """
        Start for the first time, and make the agents.

        If hasty, also the first start is forked, and whatever never ends is stopped soon.
        """
        await self.nursery.start(self.service.proxy.run)
        self.nursery.start_soon(self.live.run)
        if impatient:
            self._shorten_deadlines()
        if hasty:
            self.patience = IMPATIENCE
            self.service.births = self.births
        await self.service.start("up")
        self.service.births = self.births
        await self.traffic.make_agents()

    def _shorten_deadlines(self) -> None:
        """Have its sessions come to the end of their ladders sooner."""
        self.service.state.mkdir(0o700)
        (self.service.state / "agentteam.toml").write_text(IMPATIENT)

    async def restart(self, *verbs: str, crash: dict[str, str] | None = None) -> bool:
        """
        Bring it up in this form; nothing of it may be alive before.

        Tells whether a part was killed at its point while it started; it serves then.
        """
        with self.faults.uptime.kept():
            await self._down()
            crashes = [
                await self.revive(verb, (crash or {}).get(verb, "")) for verb in verbs
            ]
            self.service.proxy.is_wanted(len(verbs) > 1)
        return any(crashes)

    async def arm(self, *verbs: str, crash: dict[str, str]) -> bool:
        """
        Have a part die at its point: the one that serves, if it is in this form.

        Else as `restart`, which tells whether it died while it started.
        """
        ((mortal, where),) = crash.items()
        parts = self.service.parts
        whole = set(parts) == set(verbs) and all(p.alive for p in parts.values())
        if whole and await self.service.arm(mortal, where):
            return False
        return await self.restart(*verbs, crash=crash)

    async def disarm(self, verb: str) -> bool:
        """Have a part pass its points again; False: it has ended, or cannot be told."""
        if await self.service.arm(verb, ""):
            return True
        await self.service.parts[verb].die()
        return False

    async def _down(self) -> None:
        for part in self.service.parts.values():
            if part.alive:
                await part.die()
        self.service.proxy.is_wanted(False)
        await self._nothing_lives()
        self.service.parts.clear()

    async def renew(self) -> None:
        """Go on in a state directory where nothing has been; it is down afterwards."""
        await self._down()
        shutil.rmtree(self.service.state)
        self.traffic.forget_all()

    async def revive(self, verb: str, crash: str = "") -> bool:
        """Start one part; tells whether it was killed at its point before it served."""
        with self.faults.uptime.kept():
            return await self._revive(verb, crash)

    async def _revive(self, verb: str, crash: str) -> bool:
        if verb != "server" or not self.service.alive:
            await self._nothing_lives()
        if await self._start(verb, crash):
            return False
        self.count_crash(verb)
        if verb != "server" or not self.service.alive:
            await self._nothing_lives()
        if not await self._start(verb):
            raise RuntimeError(f"`agentteam {verb}` does not start; see its log")
        return True

    def count_crash(self, verb: str) -> bool:
        """Tell whether this part came to its crash point, and count it."""
        part = self.service.parts.get(verb)
        if part is None or not part.crashed:
            return False
        self.proof.faults["crash point"] += 1
        self.story.tell(f"{verb} crashed")
        return True

    async def _start(self, verb: str, crash: str = "") -> bool:
        """Start a part; when the sessions' serves, it has ended what was left."""
        if not await self.service.start(verb, crash):
            return False
        if verb != "server":
            self._outlive(*(found for found in self.left if found.is_alive()))
            self.left = []
            self.faults.unguarded = False
        return True

    async def _nothing_lives(self) -> None:
        """See that no process is left but the parts that serve."""
        there = self.service.pids
        alive = await self.sightings.wait_gone(GONE_WITHIN, *there)
        if self.faults.unguarded:
            self.left = alive
        else:
            self._outlive(*alive)

    def _outlive(self, *processes: Found) -> None:
        for found in processes:
            sighting = Sighting(self.story.last, found.pid, found.command)
            self.outlived.append(sighting)
            found.send(signal.SIGKILL)

    # --- judgement --------------------------------------------------------------------

    async def judge(self, rng: random.Random) -> None:
        """Let everything come to rest, then hold it against what was promised."""
        rested = await Rest(self.traffic, rng, self.patience, self.pace.slower).come()
        seen = await look_around(self.traffic, self.service, self.outlived)
        self.outlived = []
        findings = judge(seen)
        if not rested and not findings:
            findings = [Finding("lost", "the round", "it never came to rest")]
        self.proof.states.update(view["state"] for view in seen.deliveries.values())
        self.proof.stops += len(seen.stops)
        settled = [s.seconds for s in seen.stops if s.seconds is not None]
        self.proof.worst_settle = max([self.proof.worst_settle, *settled])
        self._found(*findings)
        self.traffic.forget_round()

    async def end(self) -> None:
        """End it cleanly: nothing may be left."""
        for part in self.service.parts.values():
            code = await part.die(signal.SIGTERM)
            if code != 0:
                about = f"exit code {code} at the end"
                self._found(Finding("fault", part.verb, about))
        await self._nothing_lives()
        for s in self.outlived:
            self._found(Finding("orphan", f"pid {s.pid}", s.command))

    def give_up(self, gone: GaveUp) -> None:
        """Find that nobody answers though something should serve."""
        parts = self.service.parts.items()
        codes = {verb: part.process.returncode for verb, part in parts}
        self._found(Finding("fault", f"the service, {codes}", str(gone)))

    def _found(self, *findings: Finding) -> None:
        self.keep |= bool(findings)
        if findings:
            self.story.tell(f"its directory {self.service.place} is kept")
        self.found(list(findings), self.story)

    async def close(self) -> None:
        for part in self.service.parts.values():
            if part.alive:
                await part.die()
        for found in self.sightings.look():
            found.send(signal.SIGKILL)
        await self.traffic.person.client.aclose()


@asynccontextmanager
async def open_world(
    births: Births,
    proof: Proof,
    story: Story,
    found: Callable[[list[Finding], Story], None],
    configs: Sequence[dict[str, Any]] = AGENTS,
    *,
    real: tuple[str, str] | None = None,
    impatient: bool = False,
    hasty: bool = False,
    keep: bool = False,
) -> AsyncGenerator[World]:
    """
    Run a world in a directory of its own; ends it by force if it is left early.

    `real` names a runtime and its program; else the agents are scripted ones.
    """
    place = Path(tempfile.mkdtemp(prefix="agentteam-chaos-"))
    keeping = keep
    try:
        async with AsyncExitStack() as stack:
            company = None
            if real is not None:
                opened = open_company(*real, place)
                company = await stack.enter_async_context(opened)
            nursery = await stack.enter_async_context(trio.open_nursery())
            world = World(place, nursery, births, proof, story, found, configs, company)
            try:
                await world.open(impatient, hasty)
                yield world
            finally:
                keeping |= world.keep
                with trio.CancelScope(shield=True):
                    await world.close()
            nursery.cancel_scope.cancel()
    finally:
        if not keeping:
            shutil.rmtree(place, ignore_errors=True)
