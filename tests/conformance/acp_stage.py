"""The stage of an agent that speaks ACP, OpenCode; its model is a server of ours."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define
from tests.conformance.opencode_stage import OpenCodeStage
from tests.kit.acp_home import AcpHome
from tests.kit.opencode_home import make_opencode_home

from agentteam_runtimes.driver import Options
from agentteam_supervisor.chaos.models.chat import open_chat_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@define(eq=False)
class AcpStage(OpenCodeStage):
    """The same program and model, told of as an agent of the protocol."""

    def options(self) -> Options:
        return Options(**AcpHome(self.home).options())

    def asking(self) -> Options:
        ask = {"permission": {"bash": "ask"}}
        return Options(**AcpHome(self.home).options(ask))


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncGenerator[AcpStage]:
    async with open_chat_model() as model:
        yield AcpStage(model, make_opencode_home(directory, model.base_url))
