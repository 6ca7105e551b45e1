"""A real OpenCode on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tests.kit.chat_model import ChatModel, open_chat_model
from tests.kit.opencode_home import OpenCodeHome, make_opencode_home
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    Options,
    Runtime,
    SessionNamed,
    SessionSpec,
    TurnEnded,
    TurnRef,
    TurnStarted,
)
from agentteam_runtimes.opencode.driver import OpenCodeDriver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

WITHIN = 60.0


@define
class OpenCodeDesk:
    """Starts incarnations of one OpenCode session, one after the other."""

    model: ChatModel
    home: OpenCodeHome
    seen: SeenEvents = field(factory=SeenEvents)
    _numbers: count[int] = field(factory=lambda: count(1))

    @asynccontextmanager
    async def open(
        self, config: Mapping[str, Any] | None = None, *, resume: str | None = None
    ) -> AsyncIterator[Runtime]:
        driver = OpenCodeDriver()
        async with driver.open(self.spec(config or {}), resume, self.seen) as runtime:
            yield runtime

    def spec(self, config: Mapping[str, Any], **options: Any) -> SessionSpec:
        given = self.home.options(config) | options
        return SessionSpec(
            agent_id=AgentId("agt_opencode"),
            agent_name="opencode",
            workdir=self.home.workdir,
            state_dir=self.home.path / "state",
            options=Options(**given),
        )

    def item(self, text: str) -> InputItem:
        """Make an entry with a fresh key."""
        number = next(self._numbers)
        return InputItem(ItemId(f"item_{number}"), f"key_{number}.1", text)

    async def begin(self, runtime: Runtime, *items: InputItem) -> TurnRef:
        """Start a turn and wait until the runtime says that it started."""
        turn = await runtime.start_turn(Batch(items[0].key, items))
        await self.seen.first(TurnStarted, lambda e: e.turn == turn, WITHIN)
        return turn

    async def ended(self, turn: TurnRef) -> TurnEnded:
        return await self.seen.first(TurnEnded, lambda e: e.turn == turn, WITHIN)

    async def whole_turn(self, runtime: Runtime, text: str) -> TurnEnded:
        """Have one turn from its start to its end."""
        return await self.ended(await self.begin(runtime, self.item(text)))

    @property
    def session(self) -> str:
        """The resume token that the runtime named last."""
        return self.seen.of(SessionNamed)[-1].resume


@asynccontextmanager
async def open_opencode_desk(path: Path) -> AsyncIterator[OpenCodeDesk]:
    async with open_chat_model() as model:
        yield OpenCodeDesk(model, make_opencode_home(path, model.base_url))
