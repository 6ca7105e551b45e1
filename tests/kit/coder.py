"""One agent on the real Codex, inside the whole product, with its model at hand."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.real_agent import STREAM, RealAgent

from agentteam_supervisor.chaos.models.responses import ModelServer, open_model_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.kit.product import Product

_numbers = itertools.count(1)

ASKS = {"approval_policy": "untrusted"}


@define(eq=False)
class Coder(RealAgent[CodexHome, ModelServer]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    command = "codex app-server"

    @property
    def turn_calls(self) -> list[str]:
        """What it was told about turns: `start`, `steer`, `interrupt`, in order."""
        calls = [c for c in self.home.calls if c.startswith("turn/")]
        return [c.removeprefix("turn/") for c in calls]

    @property
    def read(self) -> list[str]:
        """All that the model has been told by people, in order, as it stands now."""
        return self.model.requests[-1].user_texts if self.model.requests else []

    async def says(self, body: str = STREAM) -> str:
        """Give it work and wait until its words stream; gives the delivery."""
        delivery = await self.agent.deliver(body)
        await self.model.wait_until_told(body)
        await self.product.surfaced(delivery)
        return delivery


@asynccontextmanager
async def open_coder(
    product: Product,
    config: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[Coder]:
    """Make an agent on the real Codex; its home is below the product's place."""
    async with open_model_server() as model:
        place = product.up.place / f"codex-{next(_numbers)}"
        home = make_codex_home(place, model.base_url)
        agent = await product.agent(
            runtime="codex",
            workdir=str(home.workdir),
            options={**home.options(config), **(options or {})},
            **settings,
        )
        coder = Coder(product, model, home, agent)
        try:
            yield coder
        finally:
            if product.up.alive():
                await product.client.delete(agent.path)
