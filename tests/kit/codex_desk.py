"""A real Codex on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from attrs import define, field
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.model_server import ModelServer, open_model_server
from tests.kit.seen_events import SeenEvents

from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.codex.driver import CodexDriver
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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


@define
class CodexDesk:
    """Starts incarnations of one Codex session, one after the other."""

    model: ModelServer
    home: CodexHome
    seen: SeenEvents = field(factory=SeenEvents)
    _numbers: count[int] = field(factory=lambda: count(1))

    @asynccontextmanager
    async def open(
        self, config: Mapping[str, Any] | None = None, *, resume: str | None = None
    ) -> AsyncIterator[Runtime]:
        driver = CodexDriver()
        async with driver.open(self.spec(config or {}), resume, self.seen) as runtime:
            yield runtime

    def spec(self, config: Mapping[str, Any]) -> SessionSpec:
        options = self.home.options(config)
        return SessionSpec(
            agent_id=AgentId("agt_codex"),
            agent_name="codex",
            workdir=self.home.workdir,
            state_dir=self.home.path,
            options=Options(**options),
        )

    def item(self, text: str) -> InputItem:
        """Make an entry with a fresh key."""
        number = next(self._numbers)
        return InputItem(ItemId(f"item_{number}"), f"key_{number}", text)

    async def begin(self, runtime: Runtime, *items: InputItem) -> TurnRef:
        """Start a turn and wait until the runtime says that it started."""
        turn = await runtime.start_turn(Batch(items[0].key, items))
        await self.seen.first(TurnStarted, lambda e: e.turn == turn)
        return turn

    async def ended(self, turn: TurnRef) -> TurnEnded:
        return await self.seen.first(TurnEnded, lambda e: e.turn == turn)

    @property
    def session(self) -> str:
        """The resume token that the runtime named last."""
        return self.seen.of(SessionNamed)[-1].resume


@asynccontextmanager
async def open_codex_desk(path: Path) -> AsyncIterator[CodexDesk]:
    async with open_model_server() as model:
        yield CodexDesk(model, make_codex_home(path, model.base_url))
