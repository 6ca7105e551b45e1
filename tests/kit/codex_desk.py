"""A real Codex on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.desk import Desk

from agentteam_runtimes.codex.driver import CodexDriver
from agentteam_supervisor.chaos.models.responses import ModelServer, open_model_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@define
class CodexDesk(Desk[CodexHome, ModelServer]):
    driver = CodexDriver


@asynccontextmanager
async def open_codex_desk(path: Path) -> AsyncIterator[CodexDesk]:
    async with open_model_server() as model:
        yield CodexDesk(model, make_codex_home(path, model.base_url))
