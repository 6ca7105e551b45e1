"""Every crash point that is listed is passed by some life of the product."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import define
from tests.kit.crashing import Crashing, count_points, open_crashing
from tests.kit.product_agent import TERMINAL, until

from agentteam_supervisor.chaos.registry import NO_POINTS, POINTS

if TYPE_CHECKING:
    from pathlib import Path


BUSY = {"run": "sleep 600"}
DEAF = {"deaf": ["interrupt", "TERM", "stdin"]}


@define(eq=False)
class Desk:
    """A person at one agent, who goes on when the agent is where it should be."""

    world: Crashing
    name: str
    id: str = ""

    @property
    def path(self) -> str:
        return f"/api/agents/{self.name}"

    async def get(self, path: str, **query: Any) -> Any:
        return await self.world.traffic.person.get(path, **query)

    async def post(self, path: str, body: Any) -> Any:
        status, answer = await self.world.traffic.person.post(path, body)
        assert status < 300, (path, status, answer)
        return answer

    async def made(self, **options: Any) -> Desk:
        body = {"name": self.name, "runtime": "rehearsal", "options": options}
        self.id = (await self.post("/api/agents", body))["id"]
        return self

    async def send(self, *steps: dict[str, Any]) -> Any:
        body = f"#do {json.dumps(steps)}" if steps else "plain words"
        return await self.post(f"/api/targets/@{self.name}/messages", {"body": body})

    async def urge(self, message: Any) -> None:
        path = f"/api/messages/{message['id']}/agent-delivery"
        body = {"interruptPolicy": "interrupt_current_run", "agentId": self.id}
        await self.ended((await self.post(path, body))["id"])

    async def ended(self, delivery: str) -> None:
        async def look() -> Any:
            return await self.get(f"/api/deliveries/{delivery}")

        await until(look, lambda view: view["state"] in TERMINAL)

    async def told(self, *steps: dict[str, Any]) -> Any:
        """Send, and wait until it has come to an end."""
        message = await self.send(*steps)
        await self.ended(message["deliveries"][0]["id"])
        return message

    async def view(self) -> Any:
        return await self.get(self.path)

    async def until(self, holds: Any) -> Any:
        return await until(self.view, holds)

    async def idle(self) -> None:
        await self.until(lambda v: v["status"] == "idle" and not v["currentRun"])

    async def asked(self) -> str:
        view = await self.until(lambda v: v["pendingApprovals"])
        return str(view["pendingApprovals"][0]["id"])

    async def control(self, action: str, run: str | None = None) -> None:
        await self.post(f"{self.path}/control", {"action": action, "runId": run})

    async def stop(self) -> None:
        run = (await self.until(lambda v: v["currentRun"]))["currentRun"]["id"]
        await self.control("interrupt_current_run", run)
        await self.idle()

    async def intervene(self, method: str, **more: Any) -> None:
        await self.post(f"{self.path}/interventions", {"method": method, **more})


async def answer_and_cut(desk: Desk) -> None:
    """Approvals of every kind, agent tools, and urgent messages."""
    await desk.told({"ask": "shell"}, {"run": "true"}, {"say": "done", "ms": 0})
    decision = f"/api/approvals/{await desk.asked()}/decision"
    await desk.post(decision, {"outcome": "allowed-once"})
    await desk.idle()
    await desk.told({"ask": "shell"})
    await desk.asked()
    await desk.urge(await desk.send())
    await desk.idle()
    await desk.told({"send": "an answer"}, {"read": f"@{desk.name}", "after": 0})
    await desk.idle()
    await desk.told({"raw": "no JSON\n"}, {"lose": "steer"}, {"wait": 1500})
    await desk.send()  # taken, and lost
    await desk.idle()
    await desk.told({"refuse": "steer"}, {"wait": 1500})
    await desk.told()
    await desk.idle()
    await desk.told({"refuse": "interrupt"}, {"late": {"ms": 0, "step": {"ask": "x"}}})
    await desk.idle()
    await desk.told(BUSY)
    await desk.urge(await desk.send())
    await desk.idle()


async def stop_and_host(desk: Desk) -> None:
    """Stop, resume, dismiss, and the methods of a host."""
    await desk.told(BUSY)
    await desk.stop()
    await desk.control("resume")
    await desk.told({"refuse": "turn"})
    await desk.idle()
    await desk.told({"say": "refused once", "ms": 0})
    await desk.intervene("followup", messages=["from the host"])
    await desk.idle()
    await desk.told(BUSY)
    await desk.intervene("cancel", cause="enough")
    await desk.idle()
    await desk.intervene("run_maintenance", task="compact")
    await trio.sleep(0.5)
    await desk.idle()
    message = await desk.told()
    await desk.idle()
    await desk.intervene("run_maintenance", task="compact")
    await desk.urge(message)
    await desk.idle()
    await desk.get(f"{desk.path}/journal")
    status, _ = (
        200,
        await desk.world.traffic.person._ask(
            "PATCH", desk.path, json={"model": "another"}
        ),
    )
    assert status == 200
    await desk.told()
    await desk.idle()


async def dismiss(desk: Desk) -> None:
    await desk.told(BUSY)
    waiting = (await desk.send())["deliveries"][0]["id"]
    await desk.until(lambda v: v["currentRun"])
    await trio.sleep(0.3)
    await desk.stop()
    await desk.post(f"/api/deliveries/{waiting}/resolve", {"as": "dismiss"})
    await desk.ended(waiting)


async def die_and_be_deaf(desk: Desk) -> None:
    await desk.told({"die": "KILL"})
    await desk.idle()
    await desk.told(DEAF, BUSY)
    await desk.urge(await desk.send())
    await desk.idle()


@pytest.mark.slow
async def test_every_listed_point_is_reached_and_no_other(tmp_path: Path) -> None:
    log = tmp_path / "points"
    with trio.fail_after(240):
        async with open_crashing(tmp_path) as world:
            await world.service.start("up", log=log)
            one = await Desk(world, "one").made()
            two = await Desk(world, "two").made(config={"maintainMs": 1500})
            three = await Desk(world, "three").made(config={"steer": "none"})
            four = await Desk(world, "four").made()
            broken = await Desk(world, "broken").made(bin="/nowhere")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer_and_cut, one)
                nursery.start_soon(stop_and_host, two)
                nursery.start_soon(dismiss, three)
                nursery.start_soon(die_and_be_deaf, four)
                nursery.start_soon(broken.send)
            await world.traffic.person._ask("DELETE", three.path)
            await one.told(BUSY)
            await world.service.parts["up"].die(signal.SIGTERM)
            await world.service.start("up", log=log)
            await one.told()
            await world.service.parts["up"].die(signal.SIGTERM)
    reached = {line.rpartition(":")[0] for line in count_points(log)}
    assert set(POINTS) - reached == set()
    assert reached - {*POINTS, *NO_POINTS} == set()
