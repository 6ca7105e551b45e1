"""A real server on loopback, and a client that speaks its HTTP."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import httpx
import orjson
import trio
from attrs import define, field, frozen

from agentteam_supervisor.page.routes import page_routes
from agentteam_supervisor.server.app import run_server
from agentteam_supervisor.server.config import ServerConfig

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@frozen
class RunningServer:
    """A server that listens, and a client for it."""

    port: int
    client: httpx.AsyncClient
    state_dir: Path
    stop: Callable[[], None]
    stopped: trio.Event

    async def get(self, path: str, **options: Any) -> Any:
        """GET, insist on success, and give the JSON."""
        return _body(await self.client.get(path, **options), 200)

    async def post(
        self, path: str, body: Any, status: int = 201, **headers: str
    ) -> Any:
        """POST, insist on this status, and give the JSON."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return _body(await self.client.post(path, json=body, headers=named), status)

    async def agent(self, name: str = "ada", **settings: Any) -> Any:
        body = {"name": name, "runtime": "rehearsal", **settings}
        return await self.post("/api/agents", body)

    async def say(self, target: str, body: str, **more: Any) -> Any:
        return await self.post(
            f"/api/targets/{target}/messages", {"body": body, **more}
        )

    async def urgent(self, message: str, status: int = 202, **more: Any) -> Any:
        body = {"interruptPolicy": "interrupt_current_run", **more}
        path = f"/api/messages/{message}/agent-delivery"
        return await self.post(path, body, status)

    async def delivery(self, delivery: str) -> Any:
        return await self.get(f"/api/deliveries/{delivery}")

    async def until(self, path: str, wanted: Any) -> Any:
        """Poll until `wanted(json)` is true, and give that JSON."""
        with trio.fail_after(5):
            while not wanted(found := await self.get(path)):  # noqa: ASYNC110 - seen from outside, there is no event
                await trio.sleep(0.005)
        return found


@asynccontextmanager
async def open_server(
    state_dir: Path, **settings: Any
) -> AsyncGenerator[RunningServer]:
    """Run a server until the block ends, then take it down the ordinary way."""
    config = ServerConfig(state_dir, **{"port": 0, **settings})
    stopped = trio.Event()
    scope = trio.CancelScope()

    async def run(task_status: trio.TaskStatus[int]) -> None:
        with scope:
            routes = page_routes()
            await run_server(config, extra_routes=routes, task_status=task_status)
        stopped.set()

    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(run)
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            yield RunningServer(port, client, state_dir, scope.cancel, stopped)
        scope.cancel()


@define
class Event:
    id: str = ""
    kind: str = ""
    data: Any = None


@define(eq=False)
class EventReader:
    """
    Reads server-sent events over a socket of its own.

    `position` is what a browser would resume from.
    """

    stream: trio.SocketStream
    http: h11.Connection
    position: str = ""
    _blocks: list[str] = field(factory=list[str])
    _rest: str = ""

    async def next(self) -> Event:
        """Give the next event that has data."""
        while True:
            event = await self._event()
            if event.kind:
                return event

    async def next_position(self) -> str:
        """Read one block and give the position after it."""
        await self._event()
        return self.position

    async def _event(self) -> Event:
        while not self._blocks:
            self._rest += await self.chunk()
            *self._blocks, self._rest = self._rest.split("\n\n")
        event = _parse(self._blocks.pop(0))
        self.position = event.id or self.position
        return event

    async def chunk(self) -> str:
        while True:
            received = self.http.next_event()
            if received is h11.NEED_DATA:
                self.http.receive_data(await self.stream.receive_some())
            elif isinstance(received, h11.Data):
                return bytes(received.data).decode()
            elif isinstance(received, h11.Response):
                assert received.status_code == 200
            else:
                raise EOFError("the server ended the stream")


@asynccontextmanager
async def watch(
    server: RunningServer, last: str | None = None, **headers: str
) -> AsyncGenerator[EventReader]:
    """Follow the server's events, from a position if one is given."""
    named = [("Host", f"127.0.0.1:{server.port}")]
    named += [(name.replace("_", "-"), value) for name, value in headers.items()]
    if last is not None:
        named.append(("Last-Event-ID", last))
    http = h11.Connection(h11.CLIENT)
    request = h11.Request(method="GET", target="/api/events", headers=named)
    stream = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with stream:
        await stream.send_all(http.send(request) or b"")
        await stream.send_all(http.send(h11.EndOfMessage()) or b"")
        yield EventReader(stream, http)


def _parse(block: str) -> Event:
    event = Event()
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        match name:
            case "id":
                event.id = value
            case "event":
                event.kind = value
            case "data":
                event.data = orjson.loads(value)
            case _:
                pass
    return event


def _body(response: httpx.Response, status: int) -> Any:
    assert response.status_code == status, response.text
    return response.json() if response.content else None
