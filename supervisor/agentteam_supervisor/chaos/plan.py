"""
What a campaign does, drawn from its seed and nothing else. Pure.

Each life of the service has its own random numbers, so `--seed` and the number of a
life say what was done in it, whatever time did to the rest.
"""

from __future__ import annotations

import random

from attrs import frozen

from agentteam_supervisor.chaos.registry import PATH, POINTS
from agentteam_supervisor.chaos.scripts import REHEARSED, Pace

ACTS = (("send", 10), ("urgent", 7), ("again", 3), ("stop", 4), ("resume", 4))
FAULTS = (
    ("runtime killed", 10),
    ("runtime stopped", 9),
    ("warden killed", 4),
    ("warden stopped", 4),
    ("tool killed", 3),
    ("service stopped", 4),
    ("disk full", 4),
)
LINK_FAULTS = (("link cut", 16), ("server killed", 3), ("daemon killed", 3))
# So many faults a second; a life is dense with them, or has hardly any.
DENSITIES = (1.0, 5.0, 10.0, 20.0)
# What a service passes while it starts: the second crash in a row is there.
AT_START = (
    "store/hello",
    "commit/append",
    "commit/reset-inbound",
    "daemon-receives/agent-granted",
    "event/loaded",
    "effect/open-runtime",
    "event/runtime-ready",
    "store/status-reported",
)


@frozen
class Act:
    """Something a person does, so many seconds into the life."""

    at: float
    what: str
    agent: int
    body: str


@frozen
class Fault:
    """
    Something that happens to a process, so many seconds into the life.

    `which` chooses among the processes that are there; `seconds` is how long it lasts.
    """

    at: float
    what: str
    which: int
    seconds: float


@frozen
class Life:
    """One life of the service, from its start to its end."""

    number: int
    apart: bool
    crash: str
    crash_of: str  # server or daemon, if they run apart
    seconds: float
    end: str  # killed or ended, if no crash came first
    acts: tuple[Act, ...]
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        where = f", crash at {self.crash}" if self.crash else ""
        return f"life {self.number}{' apart' if self.apart else ''}{where}"


def plan_life(seed: int, number: int, pace: Pace = REHEARSED) -> Life:
    """Draw one life."""
    rng = random.Random(f"{seed}/{number}")
    apart = rng.random() < 0.4
    seconds = round(rng.choice([rng.uniform(0.3, 1.5), rng.uniform(1.0, 4.0)]), 2)
    faults = (*FAULTS, *LINK_FAULTS) if apart else FAULTS
    count = round(rng.choice(DENSITIES) * seconds)
    seconds = round(seconds * pace.slower, 2)
    return Life(
        number=number,
        apart=apart,
        crash=_crash(rng),
        crash_of=rng.choice(["server", "daemon"]),
        seconds=seconds,
        end="ended" if rng.random() < 0.1 else "killed",
        acts=tuple(_act(rng, seconds, pace) for _ in range(rng.randint(2, 12))),
        faults=tuple(_fault(rng, seconds, faults) for _ in range(count)),
    )


def _crash(rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.25:
        return ""
    points = AT_START if chance < 0.4 else PATH if chance < 0.8 else tuple(POINTS)
    nth = rng.choice([1, 1, 1, 2, 2, 3, 4, 6, 9])
    return f"{rng.choice(points)}:{rng.choice(['before', 'after'])}:{nth}"


def _act(rng: random.Random, seconds: float, pace: Pace) -> Act:
    return Act(
        at=round(rng.uniform(0, seconds), 2),
        what=_choose(rng, ACTS),
        agent=rng.randrange(pace.agents),
        body=pace.write(rng),
    )


def _fault(
    rng: random.Random, seconds: float, faults: tuple[tuple[str, int], ...]
) -> Fault:
    return Fault(
        at=round(rng.uniform(0.0, seconds), 2),
        what=_choose(rng, faults),
        which=rng.randrange(1000),
        seconds=round(rng.choice([0.02, 0.05, 0.1, rng.uniform(0.1, 0.6)]), 2),
    )


def _choose(rng: random.Random, among: tuple[tuple[str, int], ...]) -> str:
    names = [name for name, _ in among]
    return rng.choices(names, [weight for _, weight in among])[0]
