"""The stage of an agent that speaks ACP, OpenCode; its model is a server of ours."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tests.kit.acp_home import AcpHome, make_acp_home
from tests.kit.chat_model import ChatModel, open_chat_model
from tests.kit.model_server import do

from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.driver import Options

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from agentteam_runtimes.driver import InputItem


@define(eq=False)
class AcpStage(Stage):
    model: ChatModel
    home: AcpHome
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
async def open_stage(directory: Path) -> AsyncGenerator[AcpStage]:
    async with open_chat_model() as model:
        yield AcpStage(model, make_acp_home(directory, model.base_url))
