"""
What people and agents do around a crash point: between them they pass every point.

Each is played at an agent that is idle and not parked; `rng` draws how it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from attrs import frozen

from agentteam_supervisor.chaos.desk import Desk

SHELL: dict[str, Any] = {"run": "sleep 600"}
TALK: dict[str, Any] = {"say": "word by word it goes on and on " * 20, "ms": 20}
QUICK: dict[str, Any] = {"say": "quick", "ms": 0}
BUSY = (SHELL, TALK, {"wait": 60_000})
DEAF: dict[str, Any] = {"deaf": ["interrupt", "TERM", "stdin"]}


async def urgent(desk: Desk, rng: Random) -> None:
    """One message of several is marked urgent while a run is at work."""
    await desk.told(rng.choice(BUSY))
    for _ in range(rng.choice([0, 0, 1, 2])):
        await desk.send()
    message = await desk.send()
    for _ in range(rng.choice([0, 0, 1])):
        await desk.send(QUICK)
    await desk.urge(message)
    await desk.idle()


async def two_urgents(desk: Desk, rng: Random) -> None:
    await desk.told(rng.choice(BUSY))
    first, second = await desk.send(), await desk.send()
    await desk.traffic.mark(desk.agent, first)
    await desk.urge(second)
    await desk.idle()


async def plain(desk: Desk, _: Random) -> None:
    """Messages that nobody marks: each run comes to its own end."""
    await desk.told(QUICK)
    await desk.told({"run": "true"}, QUICK)
    await desk.idle()


async def approvals(desk: Desk, rng: Random) -> None:
    await desk.told({"ask": "shell"}, {"run": "true"}, QUICK)
    await desk.decide(rng.choice(["allowed-once", "allowed-once", "rejected"]))
    await desk.idle()


async def cut_approval(desk: Desk, rng: Random) -> None:
    """A question is open when its run is cut, another comes after the cut."""
    await desk.told({"ask": "shell"})
    await desk.asked()
    if rng.random() < 0.5:
        await desk.urge(await desk.send())
    else:
        await desk.stop()
        await desk.resume()
    await desk.idle()
    late = {"late": {"ms": 0, "step": {"ask": "late"}}}
    await desk.told(late, rng.choice(BUSY))
    await desk.urge(await desk.send())
    await desk.idle()


async def agent_tools(desk: Desk, _: Random) -> None:
    await desk.told({"send": "an answer"}, {"read": f"@{desk.name}", "after": 0})
    await desk.idle()


async def steers(desk: Desk, rng: Random) -> None:
    """Messages reach a run that goes on; some are lost there, or refused."""
    habit = rng.choice([{"lose": "steer"}, {"refuse": "steer"}, QUICK])
    await desk.told({"raw": "no JSON\n"}, habit, {"wait": 500})
    await desk.send()
    await desk.send()
    await desk.idle()


async def lost_steer(desk: Desk, _: Random) -> None:
    await desk.told({"lose": "steer"}, {"wait": 500})
    await desk.send()
    await desk.idle()


async def refused_steer(desk: Desk, _: Random) -> None:
    await desk.told({"refuse": "steer"}, {"wait": 500})
    await desk.send()
    await desk.idle()


async def stop(desk: Desk, rng: Random) -> None:
    await desk.told(rng.choice(BUSY))
    for _ in range(rng.choice([0, 1, 2])):
        await desk.send()
    await desk.stop()
    await desk.resume()
    await desk.idle()


async def deaf(desk: Desk, rng: Random) -> None:
    """The run is cut by the end of its process."""
    await desk.told(DEAF, SHELL)
    if rng.random() < 0.7:
        await desk.urge(await desk.send())
    else:
        await desk.stop()
        await desk.resume()
    await desk.idle()


async def refused_interrupt(desk: Desk, _: Random) -> None:
    await desk.told({"refuse": "interrupt"}, SHELL)
    await desk.urge(await desk.send())
    await desk.idle()


async def refused_turn(desk: Desk, _: Random) -> None:
    await desk.told({"refuse": "turn"})
    await desk.idle()
    await desk.told(QUICK)
    await desk.idle()


async def sudden_death(desk: Desk, rng: Random) -> None:
    await desk.told({"die": rng.choice(["KILL", "SEGV"])})
    await desk.idle()
    await desk.told()
    await desk.idle()


async def host(desk: Desk, _: Random) -> None:
    """What a program does that hosts an agent."""
    await desk.intervene("followup", messages=["from the host"])
    await desk.idle()
    await desk.told(SHELL)
    await desk.intervene("cancel", cause="enough")
    await desk.idle()
    await desk.traffic.person.get(f"{desk.path}/journal")


async def maintenance(desk: Desk, rng: Random) -> None:
    """It comes to its end, or an urgent message ends it."""
    message = await desk.told()
    await desk.idle()
    await desk.intervene("run_maintenance", task="compact")
    if rng.random() < 0.3:
        await desk.pause(0.3)
        await desk.idle()
        await desk.intervene("run_maintenance", task="compact")
    await desk.urge(message)
    await desk.idle()
    await desk.intervene("run_maintenance", task="compact")
    await desk.pause(0.1)
    await desk.idle()


async def another_model(desk: Desk, rng: Random) -> None:
    await desk.told()
    await desk.idle()
    await desk.change(model=f"model-{rng.randrange(10**6)}")
    await desk.told()
    await desk.idle()


async def dismiss(desk: Desk, _: Random) -> None:
    """A message that waits behind a run is taken back."""
    await desk.told(SHELL)
    waiting = desk.delivery_of(await desk.send())
    await desk.pause(0.2)
    await desk.stop()
    await desk.dismiss(waiting)
    await desk.ended(waiting)
    await desk.resume()


async def removed(desk: Desk, rng: Random) -> None:
    """An agent is made, put to work, and removed."""
    traffic = desk.traffic
    name = f"fleeting{rng.randrange(10**9)}"
    fleeting = await traffic.make_agent(name, {})
    other = Desk(traffic, fleeting, desk.hurry)
    try:
        await other.told(rng.choice(BUSY))
        await other.send()
    finally:
        await other.remove()
    await desk.told()
    await desk.idle()


async def broken(desk: Desk, rng: Random) -> None:
    """An agent whose program does not exist."""
    traffic = desk.traffic
    name = f"broken{rng.randrange(10**9)}"
    agent = await traffic.make_agent(name, {"bin": "/nowhere"})
    other = Desk(traffic, agent, desk.hurry)
    try:
        await other.send()
        await other.sees(lambda view: view["problem"])
    finally:
        await other.remove()
    await desk.idle()


async def ended(desk: Desk, rng: Random) -> None:
    """The service is ended while an agent is at work."""
    await desk.told(rng.choice(BUSY))
    await desk.send()


async def first(desk: Desk, rng: Random) -> None:
    """The first agents of a state directory are made."""
    await desk.traffic.make_agents()
    desk.agent = desk.traffic.agents[0]
    await plain(desk, rng)


@frozen
class Workload:
    """
    `ends`: the service is ended after it; `config` is that of its agent.

    `fresh`: the service has never run in its state directory before.
    """

    play: Callable[[Desk, Random], Awaitable[None]]
    config: tuple[tuple[str, Any], ...] = ()
    ends: bool = False
    fresh: bool = False

    @property
    def name(self) -> str:
        return self.play.__name__


WORKLOADS = (
    Workload(urgent),
    Workload(two_urgents),
    Workload(plain),
    Workload(approvals),
    Workload(cut_approval),
    Workload(agent_tools),
    Workload(steers),
    Workload(lost_steer),
    Workload(refused_steer),
    Workload(stop),
    Workload(deaf),
    Workload(refused_interrupt),
    Workload(refused_turn),
    Workload(sudden_death),
    Workload(host),
    Workload(maintenance, (("maintainMs", 200),)),
    Workload(another_model),
    Workload(dismiss, (("steer", "none"),)),
    Workload(removed),
    Workload(broken),
    Workload(ended, ends=True),
    Workload(first, fresh=True),
)
CONFIGS = tuple(dict(c) for c in dict.fromkeys(w.config for w in WORKLOADS))
