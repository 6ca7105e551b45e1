"""One agent on a real runtime, inside the whole product, with its model at hand."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

import psutil
from attrs import define
from tests.kit.model_server import ModelServer, do
from tests.kit.product import Product
from tests.kit.product_agent import WITHIN, Agent, until


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

    product: Product
    model: M
    home: H
    agent: Agent

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

    async def all_gone(self, within: float = 10.0) -> None:
        """Wait until nothing of it lives."""

        async def look() -> list[str]:
            return [_line(p) for p in self.processes()]

        await until(look, lambda left: not left, within)


def _line(process: psutil.Process) -> str:
    return " ".join(process.cmdline())
