"""One agent on a real runtime, inside the whole product, with its model at hand."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import psutil
from attrs import define
from tests.kit.product import Product
from tests.kit.product_agent import TERMINAL, WITHIN, Agent, until

from agentteam_supervisor.chaos.models.responses import ModelServer, do

NO_RUNTIME = re.compile(r"$|/bin/sh |\S*python")


class Home(Protocol):
    """Where a runtime lives; its processes are known by it."""

    @property
    def path(self) -> Path: ...

    @property
    def workdir(self) -> Path: ...


H = TypeVar("H", bound=Home)
M = TypeVar("M", bound=ModelServer)

STREAM = do({"stream": 3000, "ms": 20})


@define(eq=False)
class RealAgent(Generic[H, M]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    patience: ClassVar[float] = WITHIN
    command: ClassVar[str]  # a part of the command line of the runtime's own process

    product: Product
    model: M
    home: H
    agent: Agent

    @property
    def told(self) -> str:
        """All that people said, as the last request of the model has it."""
        requests = self.model.requests
        return "\n".join(requests[-1].user_texts) if requests else ""

    def trace(self) -> str:
        """Show what the runtime itself has recorded, for somebody who looks at a failure."""
        return ""

    def runtime(self) -> psutil.Process:
        """Find the runtime's own process, whatever stands before it."""
        return self.runtimes()[-1]

    def runtimes(self) -> list[psutil.Process]:
        """Find what runs of it, without its warden, or a shell that is to become it."""
        lines = [(p, _line(p)) for p in self.processes(self.command)]
        return [p for p, line in lines if not NO_RUNTIME.match(line)]

    def file(self, name: str) -> Path:
        return self.home.workdir / name

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

    async def runs(self, command: str, file: str) -> str:
        """Give it a command and wait for the file that shows it runs; the delivery."""
        delivery = await self.agent.deliver(do({"run": command}))
        await self.appears(file)
        return delivery

    async def appears(self, file: str) -> None:
        async def look() -> bool:
            return self.file(file).exists()

        await until(look, bool, self.patience)

    async def ended(self, delivery: str) -> Any:
        """Wait until a delivery has come to an end, through a start that is slow."""

        async def look() -> Any:
            view = await self.agent.view()
            if view["problem"] and "not ready within" in view["problem"]["problem"]:
                await self.agent.resume()
            return await self.product.delivery(delivery, wait=10)

        return await until(look, lambda d: d["state"] in TERMINAL, self.patience)

    async def surfaced(self, delivery: str) -> Any:
        found = await self.ended(delivery)
        assert found["state"] == "surfaced", found
        assert found["evidence"], found
        return found

    async def idle(self) -> Any:
        return await self.agent.idle(self.patience)

    async def all_gone(self, within: float = 10.0) -> None:
        """Wait until nothing of it lives."""

        async def look() -> list[str]:
            return [_line(p) for p in self.processes()]

        await until(look, lambda left: not left, within)


def _line(process: psutil.Process) -> str:
    """Show the command line, which one that ends meanwhile no longer has."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
