"""An agent on a real runtime that tests have one after the other, and its model."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import trio
from attrs import define, field
from tests.kit.lineup import Entrant
from tests.kit.product import Product, Up
from tests.kit.product_agent import Agent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.kit.real_agent import RealAgent

FIRST = "hello"
_LOOPBACK = ("127.0.0.1", 0)


@define(eq=False)
class Seat:
    """
    Keeps an agent and the state of its model between tests.

    Each test has a loop of its own, so the model is served anew on the same socket.
    A test that does not come to its end leaves the seat to another agent.
    """

    entrant: Entrant
    up: Up
    numbers: Iterator[int]
    socket: socket.socket = field(factory=lambda: socket.create_server(_LOOPBACK))
    model: Any = None
    home: Any = None
    agent: Agent | None = None
    kinds: Counter[str] = field(factory=Counter[str])  # of its processes, idle
    deaths: int = 0  # of its process; the pause before the next start grows with them

    @asynccontextmanager
    async def taken(self, product: Product) -> AsyncGenerator[RealAgent[Any, Any]]:
        """Take the seat; the agent is idle and has a history."""
        async with trio.open_nursery() as nursery:
            if self.agent is None:
                self._furnish()
            listener = trio.SocketListener(
                trio.socket.from_stdlib_socket(self.socket.dup())
            )
            serve = partial(self.entrant.serve, self.model)
            nursery.start_soon(partial(trio.serve_listeners, serve, [listener]))
            yield await self._seated(product)
            nursery.cancel_scope.cancel()

    async def leave(self, it: RealAgent[Any, Any]) -> None:
        """End the agent, and see that nothing of it is left; the next test has another."""
        self.agent, self.deaths = None, 0
        if self.up.alive():
            await it.product.client.delete(it.agent.path)
            await it.all_gone(it.patience)

    def _furnish(self) -> None:
        self.model = self.entrant.model(self.socket.getsockname()[1])
        place = self.up.place / f"{self.entrant.name}-{next(self.numbers)}"
        self.home = self.entrant.home(place, self.model.base_url)

    async def _seated(self, product: Product) -> RealAgent[Any, Any]:
        if self.agent is not None:
            self.agent.person = product
            return self._on(product, self.agent)
        agent = await product.agent(
            runtime=self.entrant.runtime,
            workdir=str(self.home.workdir),
            options=self.entrant.options(self.home),
            approvalPolicy="ask",
        )
        it = self._on(product, agent)
        await it.surfaced(await agent.deliver(FIRST))
        await it.idle()
        self.kinds = kinds(it.processes())
        self.agent = agent
        return it

    def _on(self, product: Product, agent: Agent) -> RealAgent[Any, Any]:
        found: RealAgent[Any, Any] = self.entrant.agent(
            product, self.model, self.home, agent
        )
        return found

    def left(self) -> list[str]:
        """Name what is left of it: sockets, and what stands in scratch directories."""
        found = [p for p in self.up.place.rglob("*") if p.is_socket()]
        scratch = [*self.up.state.rglob("tmp"), *self.up.state.rglob("opencode-tmp")]
        return [str(path) for path in [*found, *scratch, *self.up.temporary.iterdir()]]


def kinds(processes: list[psutil.Process]) -> Counter[str]:
    """Count processes by the names of their programs."""
    found: Counter[str] = Counter()
    for process in processes:
        with suppress(psutil.Error):
            found[Path(process.cmdline()[0]).name] += 1
    return found
