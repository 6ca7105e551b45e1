"""A real Claude on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define
from tests.kit.claude_home import ClaudeHome, make_claude_home
from tests.kit.desk import Desk

from agentteam_runtimes.claude.driver import ClaudeDriver
from agentteam_runtimes.driver import Batch, InputItem, Runtime, TurnRef
from agentteam_supervisor.chaos.models.messages import (
    MessagesModel,
    open_messages_model,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@define
class ClaudeDesk(Desk[ClaudeHome, MessagesModel]):
    driver = ClaudeDriver

    async def begin(self, runtime: Runtime, *items: InputItem) -> TurnRef:
        """Start a turn; Claude says that it did only when it begins to answer."""
        return await runtime.start_turn(Batch(items[0].key, items))


@asynccontextmanager
async def open_claude_desk(
    path: Path, part: str = "claude"
) -> AsyncIterator[ClaudeDesk]:
    async with open_messages_model() as model:
        yield ClaudeDesk(model, make_claude_home(path, model.base_url, part))
