"""The stage of the real Claude Code: its model is a server of ours on loopback."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tests.kit.claude_home import ClaudeHome, make_claude_home

from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.driver import Options
from agentteam_supervisor.chaos.models.messages import (
    MessagesModel,
    open_messages_model,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from agentteam_runtimes.driver import InputItem


@define(eq=False)
class ClaudeStage(Stage):
    model: MessagesModel
    home: ClaudeHome
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def options(self) -> Options:
        return Options(**self.home.options())

    def asking(self) -> Options:
        return Options(**self.home.options({}))

    def say(self, text: str) -> str:
        return self._do({"say": text})

    def stream(self, seconds: float) -> str:
        return self._do({"stream": int(seconds * 20), "ms": 50})

    def run(self, shell: str) -> str:
        return self._do({"run": shell}, {"say": "done"})

    def call(self, text: str) -> str:
        given = {"target": "@user", "text": text}
        name = "mcp__agentteam__send_message"
        return self._do({"call": name, "with": given}, {"say": "sent"})

    def fail(self) -> str:
        return self._do({"http": 401})

    def seen(self, entry: InputItem) -> int:
        if not self.model.requests:
            return 0
        told = self.model.requests[-1].user_texts
        return sum(text.count(entry.text) for text in told)

    def interrupts(self) -> int:
        return self.home.told.count("interrupt")

    def _do(self, *steps: dict[str, Any]) -> str:
        return f"{do(*steps)}\n(entry {next(self._numbers)})"


@asynccontextmanager
async def open_stage(
    directory: Path, part: str = "claude"
) -> AsyncGenerator[ClaudeStage]:
    async with open_messages_model() as model:
        yield ClaudeStage(model, make_claude_home(directory, model.base_url, part))


@asynccontextmanager
async def open_old_stage(directory: Path) -> AsyncGenerator[ClaudeStage]:
    async with open_stage(directory, "claude-2.1.197") as stage:
        yield stage
