"""What people do meanwhile: send, mark urgent, stop, decide; and what they remember."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import define, field

from agentteam_supervisor.chaos.company import Company
from agentteam_supervisor.chaos.faults import Faults
from agentteam_supervisor.chaos.live import Live
from agentteam_supervisor.chaos.observations import Accepted, Told
from agentteam_supervisor.chaos.person import GaveUp, Person
from agentteam_supervisor.chaos.scripts import AGENTS, is_blind

if TYPE_CHECKING:
    import random

    from agentteam_supervisor.chaos.plan import Act

URGENT = "interrupt_current_run"


@define
class Stopped:
    """A Stop that was accepted, and when by the uptime."""

    agent: str
    run: str
    at: float


@define(eq=False)
class Traffic:
    """
    `accepted` and `stops` are of this round; the ids of agents are those of the API.

    An act that nobody answers is told and given up, and so claims nothing.
    """

    person: Person
    live: Live
    faults: Faults
    tell: Callable[[str], None]
    configs: Sequence[dict[str, Any]] = AGENTS
    company: Company | None = None
    agents: list[str] = field(factory=list[str])
    names: dict[str, str] = field(factory=dict[str, str])
    blind: set[str] = field(factory=set[str])
    accepted: list[Accepted] = field(factory=list[Accepted])
    stops: list[Stopped] = field(factory=list[Stopped])
    messages: dict[str, list[str]] = field(factory=dict[str, list[str]])
    bodies: dict[str, str] = field(factory=dict[str, str])
    activity_seen: dict[str, int] = field(factory=dict[str, int])
    message_seen: dict[str, int] = field(factory=dict[str, int])

    async def make_agents(self) -> None:
        if self.company is not None:
            for n, settings in enumerate(self.company.settings):
                self.agents.append(await self._make({"name": f"a{n}", **settings}))
            self.blind.update(self.agents)  # their records are of many kinds
            return
        for n, config in enumerate(self.configs):
            agent = await self.make_agent(f"a{n}", {"config": config})
            self.agents.append(agent)
            if is_blind(config):
                self.blind.add(agent)

    async def make_agent(self, name: str, options: dict[str, Any]) -> str:
        return await self._make(
            {"name": name, "runtime": "rehearsal", "options": options}
        )

    async def _make(self, body: dict[str, Any]) -> str:
        _, made = await self.person.post("/api/agents", body)
        self.names[made["id"]] = body["name"]
        return str(made["id"])

    def told(self) -> dict[str, Told]:
        """Tell how often the models of real agents were told each message."""
        if self.company is None:
            return {}
        return {
            message: self.company.told(self.agents.index(agent), self.bodies[message])
            for agent, sent in self.messages.items()
            for message in sent
        }

    def forget_all(self) -> None:
        """Begin in a state directory where nobody has been."""
        self.forget_round()
        self.agents.clear()
        self.blind.clear()
        self.activity_seen.clear()
        self.message_seen.clear()
        self.live.forget_all()

    def forget_round(self) -> None:
        """Begin a new round."""
        self.accepted.clear()
        self.stops.clear()
        self.messages.clear()
        self.bodies.clear()

    async def act(self, act: Act) -> None:
        agent = self.agents[act.agent]
        try:
            match act.what:
                case "send":
                    await self.send(agent, act.body)
                case "urgent":
                    message = await self.send(agent, act.body)
                    await self.mark(agent, message)
                case "again":
                    await self._mark_older(agent)
                case "stop":
                    await self.stop(agent)
                case "resume":
                    await self.resume(agent)
                case _:
                    raise ValueError(act.what)
        except GaveUp as exc:
            self.tell(f"nobody answered: {exc}")

    async def send(self, agent: str, body: str) -> str:
        """Send a message; gives its id."""
        path = f"/api/targets/@{self.names[agent]}/messages"
        status, message = await self.person.post(path, {"body": body})
        if status != 201:
            raise GaveUp(f"{status}: {message}")
        for delivery in message["deliveries"]:
            self._accept(delivery)
        self.messages.setdefault(agent, []).append(message["id"])
        self.bodies[message["id"]] = body
        self.tell(f"sent {message['deliveries'][0]['id']}: {body[:100]}")
        return str(message["id"])

    async def mark(self, agent: str, message: str) -> str:
        """Mark a message urgent; gives the id of its delivery."""
        path = f"/api/messages/{message}/agent-delivery"
        body = {"interruptPolicy": URGENT, "agentId": agent}
        status, delivery = await self.person.post(path, body)
        if status != 202:
            raise GaveUp(f"{status}: {delivery}")
        self._accept(delivery)
        self.tell(f"urgent {delivery['id']}")
        return str(delivery["id"])

    async def _mark_older(self, agent: str) -> None:
        """Mark one that was sent before, perhaps marked and read before."""
        if sent := self.messages.get(agent):
            await self.mark(agent, sent[len(sent) // 2])

    def _accept(self, delivery: dict[str, Any]) -> None:
        urgent = delivery["interruptPolicy"] is not None
        accepted = Accepted(
            delivery["id"], delivery["messageId"], delivery["agentId"], urgent
        )
        if accepted not in self.accepted:
            self.accepted.append(accepted)

    async def stop(self, agent: str) -> None:
        view = await self.person.get(f"/api/agents/{agent}")
        if (run := view["currentRun"]) is None:
            return
        body = {"action": URGENT, "runId": run["id"]}
        status, _ = await self.person.post(f"/api/agents/{agent}/control", body)
        if status == 202:
            at = self.faults.uptime.now()
            self.stops.append(Stopped(agent, run["id"], at))
            self.tell(f"stop {run['id']} of {agent}")

    async def resume(self, agent: str) -> None:
        path = f"/api/agents/{agent}/control"
        await self.person.post(path, {"action": "resume"})

    async def decide_all(self, rng: random.Random) -> None:
        """Answer whatever the agents ask."""
        answer = await self.person.get("/api/approvals", state="pending")
        for approval in answer["approvals"]:
            outcome = rng.choice(["allowed-once", "rejected"])
            path = f"/api/approvals/{approval['id']}/decision"
            await self.person.post(path, {"outcome": outcome})
