"""A real Claude on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tests.kit.claude_home import ClaudeHome, make_claude_home
from tests.kit.claude_model import MessagesModel, open_messages_model
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.claude.driver import ClaudeDriver
from agentteam_runtimes.driver import (
    Batch,
    InputItem,
    Options,
    Runtime,
    SessionNamed,
    SessionSpec,
    TurnEnded,
    TurnRef,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


@define
class ClaudeDesk:
    """Starts incarnations of one Claude session, one after the other."""

    model: MessagesModel
    home: ClaudeHome
    seen: SeenEvents = field(factory=SeenEvents)
    _numbers: count[int] = field(factory=lambda: count(1))

    @asynccontextmanager
    async def open(
        self, config: Mapping[str, Any] | None = None, *, resume: str | None = None
    ) -> AsyncIterator[Runtime]:
        driver = ClaudeDriver()
        async with driver.open(self.spec(config), resume, self.seen) as runtime:
            yield runtime

    def spec(self, config: Mapping[str, Any] | None = None) -> SessionSpec:
        return SessionSpec(
            agent_id=AgentId("agt_claude"),
            agent_name="claude",
            workdir=self.home.workdir,
            state_dir=self.home.path / "state",
            options=Options(**self.home.options(config)),
        )

    def item(self, text: str) -> InputItem:
        """Make an entry with a fresh key."""
        number = next(self._numbers)
        return InputItem(ItemId(f"item_{number}"), f"item_{number}.1", text)

    async def begin(self, runtime: Runtime, *items: InputItem) -> TurnRef:
        return await runtime.start_turn(Batch(items[0].key, items))

    async def ended(self, turn: TurnRef) -> TurnEnded:
        return await self.seen.first(TurnEnded, lambda e: e.turn == turn)

    @property
    def session(self) -> str:
        """The resume token that the runtime named last."""
        return self.seen.of(SessionNamed)[-1].resume


@asynccontextmanager
async def open_claude_desk(
    path: Path, part: str = "claude"
) -> AsyncIterator[ClaudeDesk]:
    async with open_messages_model() as model:
        yield ClaudeDesk(model, make_claude_home(path, model.base_url, part))
