"""A real agent of the Agent Client Protocol, OpenCode, opened through its driver."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define
from tests.kit.acp_home import AcpHome, make_acp_home
from tests.kit.desk import Desk

from agentteam_runtimes.acp.driver import AcpDriver
from agentteam_supervisor.chaos.models.chat import ChatModel, open_chat_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@define
class AcpDesk(Desk[AcpHome, ChatModel]):
    driver = AcpDriver
    patience = 60.0


@asynccontextmanager
async def open_acp_desk(path: Path) -> AsyncIterator[AcpDesk]:
    async with open_chat_model() as model:
        yield AcpDesk(model, make_acp_home(path, model.base_url))
