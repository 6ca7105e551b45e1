"""A real OpenCode on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define
from tests.kit.desk import Desk
from tests.kit.opencode_home import OpenCodeHome, make_opencode_home

from agentteam_runtimes.opencode.driver import OpenCodeDriver
from agentteam_supervisor.chaos.models.chat import ChatModel, open_chat_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentteam_runtimes.driver import Runtime, TurnEnded


@define
class OpenCodeDesk(Desk[OpenCodeHome, ChatModel]):
    driver = OpenCodeDriver
    patience = 60.0

    async def whole_turn(self, runtime: Runtime, text: str) -> TurnEnded:
        """Have one turn from its start to its end."""
        return await self.ended(await self.begin(runtime, self.item(text)))


@asynccontextmanager
async def open_opencode_desk(path: Path) -> AsyncIterator[OpenCodeDesk]:
    async with open_chat_model() as model:
        yield OpenCodeDesk(model, make_opencode_home(path, model.base_url))
