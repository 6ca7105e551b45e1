"""What a person does over HTTP, and what an agent of theirs shows them."""

from __future__ import annotations

import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import trio
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


WITHIN = 30.0
TERMINAL = {"surfaced", "failed", "blocked", "cancelled", "superseded", "unknown"}
_numbers = itertools.count(1)


async def until(
    look: Callable[[], Awaitable[Any]],
    holds: Callable[[Any], object],
    within: float = WITHIN,
) -> Any:
    """Look until it holds; what was seen last stands in the failure."""
    seen: Any = None
    with trio.move_on_after(within):
        while not holds(seen := await look()):  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.02)
        return seen
    raise AssertionError(f"not within {within} s; last seen: {json.dumps(seen)}")


@define(eq=False)
class Person:
    """Somebody with a client."""

    client: httpx.AsyncClient

    async def get(self, path: str, status: int = 200, **options: Any) -> Any:
        answer = await self.client.get(path, **options)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def post(
        self, path: str, body: Any, status: int = 201, key: str | None = None
    ) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await self.client.post(path, json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def agent(
        self,
        *script: list[dict[str, Any]],
        config: dict[str, Any] | None = None,
        status: int = 201,
        options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> Agent:
        """
        Create an agent of the scripted runtime with a name of its own.

        With turns given, each turn plays the next of them and no body is ever read.
        """
        name = settings.pop("name", f"a{next(_numbers)}")
        settings = {"runtime": "rehearsal", **settings}
        wanted = {**(config or {}), **({"script": list(script)} if script else {})}
        body = {
            "name": name,
            "options": {"config": wanted, **(options or {})},
            **settings,
        }
        made = await self.post("/api/agents", body, status)
        return Agent(self, name, made["id"])

    async def delivery(self, delivery: str, wait: int = 0) -> Any:
        """Look at a delivery; with `wait`, once it has come to an end."""
        return await self.get(f"/api/deliveries/{delivery}", params={"wait": wait})

    async def ended(self, delivery: str) -> Any:
        """Wait until a delivery has come to an end."""
        found = await self.delivery(delivery, wait=int(WITHIN))
        assert found["state"] in TERMINAL, found
        return found

    async def surfaced(self, delivery: str) -> Any:
        found = await self.ended(delivery)
        assert found["state"] == "surfaced", found
        assert found["evidence"], found
        return found

    async def resolve(self, delivery: str, how: str, status: int = 200) -> Any:
        return await self.post(
            f"/api/deliveries/{delivery}/resolve", {"as": how}, status
        )

    async def decide(self, approval: str, outcome: str, status: int = 200) -> Any:
        path = f"/api/approvals/{approval}/decision"
        return await self.post(path, {"outcome": outcome}, status)

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[Live]:
        """Watch the event stream as a page does."""
        heard = Live()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._listen, heard)
            yield heard
            nursery.cancel_scope.cancel()

    async def _listen(
        self, heard: Live, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        kind = ""
        async with self.client.stream("GET", "/api/events", timeout=None) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                task_status.started() if not heard.open else None
                heard.open = True
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    heard.events.append((kind, json.loads(line[6:])))


@define(eq=False)
class Live:
    """What the event stream told, in order."""

    events: list[tuple[str, Any]] = field(factory=list[tuple[str, Any]])
    open: bool = False

    def progress(self, agent: Agent, run: str | None = None) -> str:
        """Join the text of an agent that was shown as live, of one run or of all."""
        return "".join(
            e["text"]
            for e in self.of(agent)
            if e["kind"] == "progress" and run in (None, e["runId"])
        )

    def of(self, agent: Agent) -> list[Any]:
        return [e for k, e in self.events if k == "activity" and agent.id in e.values()]


@define(eq=False)
class Agent:
    """One agent as a person sees it."""

    person: Person
    name: str
    id: str

    @property
    def path(self) -> str:
        return f"/api/agents/{self.name}"

    async def view(self) -> Any:
        return await self.person.get(self.path)

    async def send(self, body: str, key: str | None = None, to: str = "") -> Any:
        """Send an ordinary message; gives the message."""
        path = f"/api/targets/{to or '@' + self.name}/messages"
        return await self.person.post(path, {"body": body}, key=key)

    async def deliver(self, body: str) -> str:
        """Send an ordinary message; gives its delivery."""
        return str((await self.send(body))["deliveries"][0]["id"])

    async def mark(
        self, message: Any, key: str | None = None, status: int = 202
    ) -> Any:
        """Mark a message urgent for this agent; gives the delivery."""
        path = f"/api/messages/{message['id']}/agent-delivery"
        body = {"interruptPolicy": "interrupt_current_run", "agentId": self.id}
        return await self.person.post(path, body, status, key)

    async def urge(self, body: str) -> str:
        """Send a message and mark it urgent; gives the urgent delivery."""
        return str((await self.mark(await self.send(body)))["id"])

    async def control(self, run: str | None, status: int = 202) -> Any:
        body = {"action": "interrupt_current_run", "runId": run, "who": "user"}
        return await self.person.post(f"{self.path}/control", body, status)

    async def stop(self) -> str:
        """Stop the current run; gives its id."""
        run = (await self.running())["currentRun"]["id"]
        await self.control(run)
        return str(run)

    async def resume(self) -> None:
        await self.person.post(f"{self.path}/control", {"action": "resume"}, 202)

    async def intervene(self, method: str, status: int = 202, **more: Any) -> Any:
        body = {"method": method, **more}
        return await self.person.post(f"{self.path}/interventions", body, status)

    async def until(
        self, holds: Callable[[Any], object], part: str = "", within: float = WITHIN
    ) -> Any:
        """Wait until the agent (or its `activity`, `runs`, `journal`) looks like it."""
        look = self.view if not part else getattr(self, part)
        return await until(look, holds, within)

    async def running(self) -> Any:
        return await self.until(lambda view: view["currentRun"] is not None)

    async def idle(self, within: float = WITHIN) -> Any:
        return await self.until(
            lambda view: view["status"] == "idle" and view["currentRun"] is None,
            within=within,
        )

    async def activity(self) -> list[Any]:
        found = await self.person.get(f"{self.path}/activity", params={"limit": 1000})
        return list(found["items"])

    async def lines(self, delivery: str) -> list[str]:
        """List the kinds of the activity of one urgent delivery, in order."""
        return [i["kind"] for i in await self.activity() if i["deliveryId"] == delivery]

    async def runs(self) -> list[Any]:
        return list((await self.person.get(f"{self.path}/runs"))["runs"])

    async def outcomes(self) -> list[str]:
        return [run["outcome"] for run in await self.runs()]

    async def journal(self, *kinds: str) -> list[Any]:
        """Read the events of the journal, all or those of some kinds."""
        found = await self.person.get(f"{self.path}/journal", params={"limit": 1000})
        events = [entry["event"] for entry in found["events"]]
        return [e for e in events if not kinds or e["kind"] in kinds]

    async def recorded(self, kind: str, within: float = WITHIN, **fields: Any) -> Any:
        """Wait for an event of the journal with these fields; gives the first."""

        async def look() -> list[Any]:
            events = await self.journal(kind)
            return [e for e in events if fields.items() <= e.items()]

        return (await until(look, bool, within))[0]

    async def received(self, delivery: str) -> None:
        """Wait until the session has a delivery in its inbox."""

        def there(events: list[Any]) -> bool:
            return any(i["id"] == delivery for e in events for i in e["added"])

        await until(lambda: self.journal("inbox/spliced"), there)

    async def answered(self, times: int) -> None:
        """Wait until what became of that many answers is recorded."""
        await until(
            lambda: self.journal("send/decided"), lambda sends: len(sends) >= times
        )

    async def heard(self) -> list[str]:
        """List what the model was given, in order."""
        return [e["body"] for e in await self.journal("user/message")]

    async def seen(self) -> list[int]:
        """List the sequences of targets that the agent has seen, as they came."""
        moves = await self.journal("delivery/frontier")
        return [seq for move in moves for seq in move["seqs"]]

    async def said(self) -> list[str]:
        """List what the agent published where it was asked."""
        found = await self.person.get(f"/api/targets/@{self.name}/messages")
        return [m["body"] for m in found["messages"] if m["author"]["kind"] == "agent"]

    async def approval(self) -> Any:
        """Wait until the agent asks a person."""
        view = await self.until(lambda view: view["pendingApprovals"])
        return view["pendingApprovals"][0]
