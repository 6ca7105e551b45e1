"""Lets everything come to rest, then looks at it from outside."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any

import trio

from agentteam_supervisor.chaos.checker import OPEN
from agentteam_supervisor.chaos.observations import Observations, Sighting, Stop
from agentteam_supervisor.chaos.records import read_records

if TYPE_CHECKING:
    from agentteam_supervisor.chaos.service import Service
    from agentteam_supervisor.chaos.traffic import Traffic

REST_WITHIN = 150.0
# A run of this age plays a script that never ends: a person stops it.
PATIENCE = 6.0
TRACE = re.compile(r"Traceback \(most recent call last\):(?:\n.*){0,60}")


async def come_to_rest(traffic: Traffic) -> bool:
    """Decide, resume and stop until nothing is open; False: it never came to that."""
    rng = random.Random(0)
    since: dict[str, float] = {}
    with trio.move_on_after(REST_WITHIN):
        while True:
            await traffic.decide_all(rng)
            busy = await _nudge(traffic, since)
            if not busy and not await _open(traffic):
                return True
            await trio.sleep(0.1)
    return False


async def _nudge(traffic: Traffic, since: dict[str, float]) -> bool:
    """Give every agent what it waits for; tells whether one is at work."""
    busy = False
    for agent in traffic.agents:
        view = await traffic.person.get(f"/api/agents/{agent}")
        run = view["currentRun"]
        if view["problem"] or (view["parked"] and run is None):
            await traffic.resume(agent)
        if run is not None:
            began = since.setdefault(run["id"], trio.current_time())
            if trio.current_time() - began > PATIENCE:
                since[run["id"]] = float("inf")
                await traffic.stop(agent)
        busy = busy or view["status"] != "idle" or run is not None
    return busy


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
    await trio.sleep(0.3)  # the event stream has its own way to us
    agents: dict[str, Any] = {}
    activity: list[Any] = []
    messages: list[Any] = []
    for n, agent in enumerate(traffic.agents):
        agents[agent] = await person.get(f"/api/agents/{agent}")
        seen = traffic.activity_seen.get(agent, 0)
        lines = await person.pages(f"/api/agents/{agent}/activity", "items", seen)
        if lines:
            traffic.activity_seen[agent] = lines[-1]["seq"]
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
        shown=tuple(shown),
        stops=tuple([await _stop(traffic, each) for each in traffic.stops]),
        outlived=tuple(outlived),
        traces=_traces(service),
        blind=frozenset(traffic.blind),
    )


async def _messages(traffic: Traffic, target: str) -> list[dict[str, Any]]:
    after = traffic.message_seen.get(target, 0)
    found: list[dict[str, Any]] = []
    while True:
        path = f"/api/targets/{target}/messages"
        answer = await traffic.person.get(path, after=after, limit=1000)
        found += answer["messages"]
        if not answer["messages"]:
            traffic.message_seen[target] = after
            return found
        after = answer["messages"][-1]["targetSeq"]


async def _stop(traffic: Traffic, stopped: Any) -> Stop:
    """Tell how long a Stop took, as far as somebody watched its end."""
    runs = await traffic.person.pages(f"/api/agents/{stopped.agent}/runs", "runs", 0)
    mine = [run for run in runs if run["id"] == stopped.run]
    ended = bool(mine) and all(run["outcome"] is not None for run in mine)
    at = traffic.live.ended.get(stopped.run)
    seconds = None
    if at is not None:
        lost = traffic.faults.lost_time - stopped.lost
        seconds = max(0.0, at - stopped.at - lost)
    return Stop(stopped.agent, stopped.run, ended, seconds)


def _traces(service: Service) -> tuple[str, ...]:
    if not service.log.exists():
        return ()
    text = service.log.read_text(errors="replace")
    service.log.write_text("")
    return tuple(TRACE.findall(text)[:3])
