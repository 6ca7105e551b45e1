"""One agent on the real Claude Code, inside the whole product, with its model at hand."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define
from tests.kit.claude_home import ClaudeHome, make_claude_home
from tests.kit.claude_model import MessagesModel, open_messages_model
from tests.kit.real_agent import STREAM, RealAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.kit.product import Product

_numbers = itertools.count(1)

# Nothing is allowed beforehand: a command that writes needs an approval.
ASKS: dict[str, Any] = {}


@define(eq=False)
class ClaudeCoder(RealAgent[ClaudeHome, MessagesModel]):
    """What a test sees of it: the person's side, the model's side, the processes."""

    command = "claude --print"

    @property
    def read(self) -> list[str]:
        """All that the model has been told by people, in order, as it stands now."""
        return self.model.requests[-1].user_texts if self.model.requests else []

    @property
    def cuts(self) -> int:
        """How many interrupts it was sent."""
        return self.home.told.count("interrupt")

    async def starts(self, body: str = STREAM) -> str:
        """Give it work and wait until its words stream; gives the delivery."""
        delivery = await self.agent.deliver(body)
        await self.model.wait_until_told(body)
        return delivery

    def scratch(self) -> list[Path]:
        """Find the sockets that its processes left behind."""
        return [p for p in self.product.up.place.rglob("*") if p.is_socket()]


async def as_often_as_told(coder: ClaudeCoder, messages: list[Any]) -> None:
    """
    Insist that the model was told each message as often as its deliveries say.

    A copy that Claude had begun with when its urgent copy came is in its record for
    good: only then it may be told twice, and the delivery says so.
    """
    for message in messages:
        path = f"/api/messages/{message['id']}"
        for delivery in (await coder.product.get(path))["deliveries"]:
            await coder.product.ended(delivery["id"])
    await coder.agent.idle()
    told = "\n".join(coder.read)
    for message in messages:
        found = (await coder.product.get(f"/api/messages/{message['id']}"))[
            "deliveries"
        ]
        states = [delivery["state"] for delivery in found]
        surfaced = states.count("surfaced")
        twice = str([d["history"] for d in found]).count("seen twice")
        assert surfaced >= 1, (message, states)
        assert not set(states) - {"surfaced", "superseded"}, (message, states)
        assert surfaced <= told.count(message["body"]) <= surfaced + twice, found


@asynccontextmanager
async def open_claude_coder(
    product: Product,
    part: str = "claude",
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[ClaudeCoder]:
    """Make an agent on the real Claude; its home is below the product's place."""
    async with open_messages_model() as model:
        place = product.up.place / f"claude-{next(_numbers)}"
        home = make_claude_home(place, model.base_url, part)
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
