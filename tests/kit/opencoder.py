"""One agent on the real OpenCode, inside the whole product, with its model at hand."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define
from tests.kit.opencode_home import OpenCodeHome, make_opencode_home
from tests.kit.real_agent import STREAM, RealAgent

from agentteam_supervisor.chaos.models.chat import ChatModel, open_chat_model

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.kit.product import Product

_numbers = itertools.count(1)

FIRST = "hello. "
# It takes 5 s of one core to its first word, and a machine may be busy.
PATIENCE = 120.0


@define(eq=False)
class OpenCoder(RealAgent[OpenCodeHome, ChatModel]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    patience = PATIENCE
    command = "opencode serve"

    @property
    def read(self) -> str:
        """All that the model has been told by people, in order, as it stands now."""
        if not self.model.requests:
            return ""
        return "\n".join(self.model.requests[-1].user_texts)

    async def says(self, body: str = STREAM) -> str:
        """Give it work and wait until its words stream; gives the delivery."""
        delivery = await self.agent.deliver(body)
        await self.surfaced(delivery)
        return delivery


@asynccontextmanager
async def open_opencoder(
    product: Product,
    config: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[OpenCoder]:
    """
    Make an agent on the real OpenCode that has had its first turn.

    Its home is below the product's place.
    """
    async with open_chat_model() as model:
        place = product.up.place / f"opencode-{next(_numbers)}"
        home = make_opencode_home(place, model.base_url)
        settings = {"runtime": "opencode", **settings}
        wanted = {**home.options(config), **(options or {})}
        if settings["runtime"] == "builtin":
            del wanted["bin"]  # it brings its program
        agent = await product.agent(
            workdir=str(home.workdir), options=wanted, **settings
        )
        coder = OpenCoder(product, model, home, agent)
        try:
            await coder.says(FIRST)
            await coder.idle()
            yield coder
        finally:
            if product.up.alive():
                await product.client.delete(agent.path)
