"""The stage of the real OpenCode: its model is a server of ours on loopback."""

from __future__ import annotations

import itertools
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field
from tests.kit.opencode_home import OpenCodeHome, make_opencode_home

from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.driver import Options
from agentteam_runtimes.opencode import managed
from agentteam_supervisor.chaos.models.chat import ChatModel, open_chat_model
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from agentteam_runtimes.driver import InputItem


@define(eq=False)
class OpenCodeStage(Stage):
    model: ChatModel
    home: OpenCodeHome
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def options(self) -> Options:
        return Options(**self.home.options())

    def asking(self) -> Options:
        return Options(**self.home.options({"permission": {"bash": "ask"}}))

    def say(self, text: str) -> str:
        return self._do({"say": text})

    def stream(self, seconds: float) -> str:
        return self._do({"stream": int(seconds * 20), "ms": 50})

    def run(self, shell: str) -> str:
        return self._do({"run": shell}, {"say": "done"})

    def fail(self) -> str:
        return self._do({"http": 400})

    def seen(self, entry: InputItem) -> int:
        if not self.model.requests:
            return 0
        told = self.model.requests[-1].user_texts
        return sum(text.count(entry.text) for text in told)

    def _do(self, *steps: dict[str, Any]) -> str:
        return f"{do(*steps)}\n(entry {next(self._numbers)})"


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncGenerator[OpenCodeStage]:
    async with open_chat_model() as model:
        yield OpenCodeStage(model, make_opencode_home(directory, model.base_url))


@define(eq=False)
class BuiltinStage(OpenCodeStage):
    """The same program, where the managed one is looked for."""

    def options(self) -> Options:
        return evolve(super().options(), bin=None)

    def asking(self) -> Options:
        return evolve(super().asking(), bin=None)


@asynccontextmanager
async def open_builtin_stage(directory: Path) -> AsyncGenerator[BuiltinStage]:
    # The runtime asks its environment where the state directory is.
    os.environ[managed.STATE_DIR] = str(directory / "managed")
    async with open_chat_model() as model:
        home = make_opencode_home(directory, model.base_url)
        program = managed.program(directory / "managed")
        program.parent.mkdir(parents=True)
        program.symlink_to(home.bin)
        yield BuiltinStage(model, home)
