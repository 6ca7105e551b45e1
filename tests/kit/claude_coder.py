"""One agent on the real Claude Code, inside the whole product, with its model at hand."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define
from tests.kit.claude_home import ALL, ClaudeHome, make_claude_home
from tests.kit.real_agent import RealAgent

from agentteam_supervisor.chaos.models.messages import (
    MessagesModel,
    open_messages_model,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.kit.product import Product

_numbers = itertools.count(1)


@define(eq=False)
class ClaudeCoder(RealAgent[ClaudeHome, MessagesModel]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    command = "claude --print"

    @property
    def read(self) -> list[str]:
        """All that the model has been told by people, in order, as it stands now."""
        return self.model.requests[-1].user_texts if self.model.requests else []

    def trace(self) -> str:
        rows = [
            row for path in self.home.records for row in path.read_text().split("\n")
        ]
        return "\n".join(row[:600] for row in rows[-30:])


@asynccontextmanager
async def open_claude_coder(
    product: Product,
    part: str = "claude",
    config: dict[str, Any] | None = None,
    hears: str = ALL,
    **settings: Any,
) -> AsyncGenerator[ClaudeCoder]:
    """Make an agent on the real Claude; its home is below the product's place."""
    async with open_messages_model() as model:
        place = product.up.place / f"claude-{next(_numbers)}"
        home = make_claude_home(place, model.base_url, part, hears)
        agent = await product.agent(
            runtime="claude",
            workdir=str(home.workdir),
            options=home.options(config),
            **settings,
        )
        coder = ClaudeCoder(product, model, home, agent)
        try:
            yield coder
        finally:
            if product.up.alive():
                await product.client.delete(agent.path)
