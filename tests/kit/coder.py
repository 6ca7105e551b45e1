"""One agent on the real Codex, inside the whole product, with its model at hand."""

from __future__ import annotations

import contextlib
import itertools
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from attrs import define
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.model_server import ModelServer, do, open_model_server
from tests.kit.product import Product
from tests.kit.product_agent import Agent, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_numbers = itertools.count(1)

STREAM = do({"stream": 3000, "ms": 20})
ASKS = {"approval_policy": "untrusted"}


@define(eq=False)
class Coder:
    """What a test sees of it: the person's side, the model's side, the processes."""

    product: Product
    model: ModelServer
    home: CodexHome
    agent: Agent

    def file(self, name: str) -> Path:
        return self.home.workdir / name

    @property
    def turn_calls(self) -> list[str]:
        """What it was told about turns: `start`, `steer`, `interrupt`, in order."""
        calls = [c for c in self.home.calls if c.startswith("turn/")]
        return [c.removeprefix("turn/") for c in calls]

    @property
    def read(self) -> list[str]:
        """All that the model has been told by people, in order, as it stands now."""
        return self.model.requests[-1].user_texts if self.model.requests else []

    def processes(self, part: str = "") -> list[psutil.Process]:
        """Find all that lives of it, whoever its parent is, by its home."""
        mark = f"HOME={self.home.path}".encode()
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                given = Path(f"/proc/{process.pid}/environ").read_bytes()
                if mark in given.split(b"\0") and part in _line(process):
                    found.append(process)
        return found

    def app_server(self) -> psutil.Process:
        """Find the app-server itself, below the recorder that stands before it."""
        return self.processes(f"{self.home.bin} app-server")[-1]

    async def says(self, body: str = STREAM) -> str:
        """Give it work and wait until its words stream; gives the delivery."""
        delivery = await self.agent.deliver(body)
        await self.model.wait_until_told(body)
        await self.product.surfaced(delivery)
        return delivery

    async def runs(self, command: str, file: str) -> str:
        """Give it a command and wait for the file that shows it runs; the delivery."""
        delivery = await self.agent.deliver(do({"run": command}))
        await self.appears(file)
        return delivery

    async def all_gone(self, within: float = 10.0) -> None:
        """Wait until nothing of it lives."""

        async def look() -> list[str]:
            return [_line(p) for p in self.processes()]

        await until(look, lambda left: not left, within)

    async def appears(self, file: str) -> None:
        async def look() -> bool:
            return self.file(file).exists()

        await until(look, bool)


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


@asynccontextmanager
async def open_coder(
    product: Product,
    config: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[Coder]:
    """Make an agent on the real Codex; its home is below the product's place."""
    async with open_model_server() as model:
        place = product.up.place / f"codex-{next(_numbers)}"
        home = make_codex_home(place, model.base_url)
        agent = await product.agent(
            runtime="codex",
            workdir=str(home.workdir),
            options={**home.options(config), **(options or {})},
            **settings,
        )
        coder = Coder(product, model, home, agent)
        try:
            yield coder
        finally:
            if product.up.alive():
                await product.client.delete(agent.path)
