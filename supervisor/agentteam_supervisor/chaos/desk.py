"""A person at one agent, who goes on when the agent is where it should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from agentteam_supervisor.chaos.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TERMINAL = frozenset(
    {"surfaced", "failed", "blocked", "cancelled", "superseded", "unknown"}
)
# A service that was killed meanwhile may never get there.
WITHIN = 15.0
# Nearly all that is waited for is told by the event stream.
LOOK_EVERY = 0.25


class Hurried(Exception):
    """What the person waited for did not come; the service was killed meanwhile."""


@define(eq=False)
class Desk:
    """`hurry` is set when the service was killed: the person waits no longer."""

    traffic: Traffic
    agent: str
    hurry: trio.Event = field(factory=trio.Event)

    @property
    def name(self) -> str:
        return self.traffic.names[self.agent]

    @property
    def path(self) -> str:
        return f"/api/agents/{self.agent}"

    async def send(self, *steps: dict[str, Any]) -> str:
        """Send steps to play, or plain words; gives the message."""
        body = f"#do {json.dumps(steps)}" if steps else "plain words"
        return await self.traffic.send(self.agent, body)

    async def told(self, *steps: dict[str, Any]) -> str:
        """Send, and wait until it has come to an end."""
        message = await self.send(*steps)
        await self.ended(self.delivery_of(message))
        return message

    async def urge(self, message: str) -> None:
        """Mark it urgent, and wait until that has come to an end."""
        await self.ended(await self.traffic.mark(self.agent, message))

    def delivery_of(self, message: str) -> str:
        return next(a.delivery for a in self.traffic.accepted if a.message == message)

    async def ended(self, delivery: str) -> None:
        async def look() -> Any:
            return await self.traffic.person.get(f"/api/deliveries/{delivery}")

        await self.until(look, lambda view: view["state"] in TERMINAL)

    async def view(self) -> Any:
        return await self.traffic.person.get(self.path)

    async def sees(self, holds: Callable[[Any], Any]) -> Any:
        """Wait until this holds of the agent; gives what does."""
        return holds(await self.until(self.view, holds))

    async def idle(self) -> None:
        await self.sees(lambda v: v["status"] == "idle" and not v["currentRun"])

    async def stop(self) -> None:
        """Stop the run that is there by then."""
        await self.sees(lambda view: view["currentRun"])
        await self.traffic.stop(self.agent)
        await self.idle()

    async def resume(self) -> None:
        await self.traffic.resume(self.agent)

    async def decide(self, outcome: str) -> None:
        """Answer the first question of the agent."""
        asked = await self.sees(lambda view: view["pendingApprovals"])
        path = f"/api/approvals/{asked[0]['id']}/decision"
        await self.traffic.person.post(path, {"outcome": outcome})

    async def asked(self) -> None:
        await self.sees(lambda view: view["pendingApprovals"])

    async def intervene(self, method: str, **more: Any) -> None:
        body = {"method": method, **more}
        await self.traffic.person.post(f"{self.path}/interventions", body)

    async def dismiss(self, delivery: str) -> None:
        path = f"/api/deliveries/{delivery}/resolve"
        await self.traffic.person.post(path, {"as": "dismiss"})

    async def change(self, **what: Any) -> None:
        await self.traffic.person.change("PATCH", self.path, json=what)

    async def remove(self) -> None:
        await self.traffic.person.change("DELETE", self.path)

    async def until(
        self, look: Callable[[], Awaitable[Any]], holds: Callable[[Any], Any]
    ) -> Any:
        """Look until it holds; raises `Hurried`."""
        with trio.move_on_after(WITHIN):
            while not self.hurry.is_set():
                news = self.traffic.live.news
                if holds(seen := await look()):
                    return seen
                await self.traffic.live.after(news, LOOK_EVERY)
        raise Hurried

    async def pause(self, seconds: float) -> None:
        """Wait, unless there is a hurry."""
        with trio.move_on_after(seconds):
            await self.hurry.wait()
