"""Lets everything come to rest, then looks at it from outside."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from agentteam_supervisor.chaos.checker import OPEN
from agentteam_supervisor.chaos.observations import Observations, Sighting, Stop
from agentteam_supervisor.chaos.plan import Fault
from agentteam_supervisor.chaos.records import read_records, read_tools
from agentteam_supervisor.chaos.traffic import Traffic

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.service import Service

REST_WITHIN = 150.0
PAGE = 1000
LOOK_EVERY = 0.25
# A run of such an age may play a script that never ends: a person stops it.
PATIENCE = (0.5, 1.5, 5.0)
IMPATIENCE = (0.1, 0.1, 0.5)
# A real runtime takes seconds to start, on a busy machine many.
REAL_PATIENCE = (15.0, 30.0)
# The event stream has its own way to us; on a busy machine a long one.
SHOWN_WITHIN = 10.0
# What a run may take after its Stop before somebody in a hurry kills a runtime.
HURRY = 1.0
TRACE = re.compile(r"Traceback \(most recent call last\):(?:\n.*){0,60}")


@define(eq=False)
class Rest:
    """
    Lets everything come to rest, with patience or in a hurry, as `rng` draws it.

    What is so many times `slower` has more time, and is never hurried.
    """

    traffic: Traffic
    rng: random.Random
    among: Sequence[float] = PATIENCE
    slower: float = 1.0
    patience: float = field(init=False)
    hurry: bool = field(init=False)
    _due: dict[str, float] = field(factory=dict[str, float])
    _stopped: set[str] = field(factory=set[str])

    def __attrs_post_init__(self) -> None:
        self.patience = self.rng.choice(self.among)
        self.hurry = self.slower == 1.0 and self.rng.random() < 0.6

    async def come(self) -> bool:
        """Decide, resume and stop until nothing is open; False: it never is."""
        with trio.move_on_after(REST_WITHIN * self.slower):
            while True:
                news = self.traffic.live.news
                await self.traffic.decide_all(self.rng)
                busy = await self._nudge()
                if not busy and not await _open(self.traffic):
                    return True
                await self.traffic.live.after(news, min(self.patience, LOOK_EVERY))
        return False

    async def _nudge(self) -> bool:
        """Give every agent what it waits for; tells whether one is at work."""
        busy = False
        answer = await self.traffic.person.get("/api/agents")
        for view in answer["agents"]:
            agent, run = view["id"], view["currentRun"]
            if agent not in self.traffic.agents:
                continue
            if view["problem"] or (view["parked"] and run is None):
                await self.traffic.resume(agent)
            if run is not None:
                await self._end(agent, run["id"])
            busy = busy or view["status"] != "idle" or run is not None
        return busy

    async def _end(self, agent: str, run: str) -> None:
        now = trio.current_time()
        due = self._due.setdefault(run, now + self.patience)
        if now < due:
            return
        self._due[run] = now + HURRY
        if run not in self._stopped:
            self._stopped.add(run)
            await self.traffic.stop(agent)
        elif self.hurry:
            await self.traffic.faults.inject(
                Fault(0.0, "runtime killed", self.rng.randrange(1000), 0.0)
            )


async def _open(traffic: Traffic) -> bool:
    for each in traffic.accepted:
        view = await traffic.person.get(f"/api/deliveries/{each.delivery}")
        if view is not None and view["state"] in OPEN:
            return True
    return False


async def look_around(
    traffic: Traffic, service: Service, outlived: list[Sighting]
) -> Observations:
    """Collect what the API, the records and the event stream have of this round."""
    person = traffic.person
    agents: dict[str, Any] = {}
    activity: list[Any] = []
    messages: list[Any] = []
    for n, agent in enumerate(traffic.agents):
        agents[agent] = await person.get(f"/api/agents/{agent}")
        seen = traffic.activity_seen.get(agent, 0)
        lines = await person.pages(f"/api/agents/{agent}/activity", "items", seen)
        if lines:
            traffic.activity_seen[agent] = lines[-1]["seq"]
            with trio.move_on_after(SHOWN_WITHIN):
                await traffic.live.has(agent, lines[-1]["seq"])
        activity += lines
        messages += await _messages(traffic, f"@a{n}")
    deliveries: dict[str, Any] = {}
    for each in traffic.accepted:
        view = await person.get(f"/api/deliveries/{each.delivery}")
        if view is not None:
            deliveries[each.delivery] = view
    shown = traffic.live.shown[:]
    return Observations(
        accepted=tuple(traffic.accepted),
        deliveries=deliveries,
        agents=agents,
        messages=tuple(messages),
        activity=tuple(activity),
        reads=tuple(read_records(service.state)),
        by_tools=tuple(read_tools(service.state)),
        shown=tuple(shown),
        stops=tuple([await _stop(traffic, each) for each in traffic.stops]),
        outlived=tuple(outlived),
        traces=_traces(service),
        blind=frozenset(traffic.blind),
        told=traffic.told(),
    )


async def _messages(traffic: Traffic, target: str) -> list[dict[str, Any]]:
    after = traffic.message_seen.get(target, 0)
    found: list[dict[str, Any]] = []
    while True:
        path = f"/api/targets/{target}/messages"
        answer = await traffic.person.get(path, after=after, limit=PAGE)
        page = answer["messages"]
        found += [{**each, "targetName": target} for each in page]
        if page:
            after = traffic.message_seen[target] = page[-1]["targetSeq"]
        if len(page) < PAGE:
            return found


async def _stop(traffic: Traffic, stopped: Any) -> Stop:
    """Tell how long a Stop took, as far as somebody watched its end."""
    runs = await traffic.person.pages(f"/api/agents/{stopped.agent}/runs", "runs", 0)
    mine = [run for run in runs if run["id"] == stopped.run]
    ended = bool(mine) and all(run["outcome"] is not None for run in mine)
    at = traffic.live.ended.get(stopped.run)
    seconds = None if at is None else max(0.0, at - stopped.at)
    return Stop(stopped.agent, stopped.run, ended, seconds)


def _traces(service: Service) -> tuple[str, ...]:
    if not service.log.exists():
        return ()
    text = service.log.read_text(errors="replace")
    service.log.write_text("")
    return tuple(TRACE.findall(text)[:3])
