"""A real runtime on a scripted model, opened through its driver, with all it emits."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from attrs import define, field
from tests.kit.seen_events import WITHIN, SeenEvents

from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.driver import (
    Batch,
    Driver,
    InputItem,
    Options,
    Runtime,
    SessionNamed,
    SessionSpec,
    TurnEnded,
    TurnRef,
    TurnStarted,
)
from agentteam_supervisor.chaos.models.responses import ModelServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path


class Home(Protocol):
    """Where a runtime lives, and what its driver must know of it."""

    @property
    def path(self) -> Path: ...

    @property
    def workdir(self) -> Path: ...

    def options(self, config: Mapping[str, Any] | None = None) -> dict[str, Any]: ...


H = TypeVar("H", bound=Home)
M = TypeVar("M", bound=ModelServer)


@define
class Desk(Generic[H, M]):
    """Starts incarnations of one session, one after the other."""

    driver: ClassVar[type[Driver]]
    patience: ClassVar[float] = WITHIN

    model: M
    home: H
    seen: SeenEvents = field(factory=SeenEvents)
    _numbers: count[int] = field(factory=lambda: count(1))

    @asynccontextmanager
    async def open(
        self, config: Mapping[str, Any] | None = None, *, resume: str | None = None
    ) -> AsyncIterator[Runtime]:
        spec = self.spec(config)
        async with self.driver().open(spec, resume, self.seen) as runtime:
            yield runtime

    def spec(
        self, config: Mapping[str, Any] | None = None, **options: Any
    ) -> SessionSpec:
        name = self.driver.name
        return SessionSpec(
            agent_id=AgentId(f"agt_{name}"),
            agent_name=name,
            workdir=self.home.workdir,
            state_dir=self.home.path / "state",
            options=Options(**self.home.options(config) | options),
        )

    def item(self, text: str) -> InputItem:
        """Make an entry with a fresh key."""
        number = next(self._numbers)
        return InputItem(ItemId(f"item_{number}"), f"item_{number}.1", text)

    async def begin(self, runtime: Runtime, *items: InputItem) -> TurnRef:
        """Start a turn and wait until the runtime says that it started."""
        turn = await runtime.start_turn(Batch(items[0].key, items))
        await self.seen.first(TurnStarted, lambda e: e.turn == turn, self.patience)
        return turn

    async def ended(self, turn: TurnRef) -> TurnEnded:
        return await self.seen.first(TurnEnded, lambda e: e.turn == turn, self.patience)

    @property
    def session(self) -> str:
        """The resume token that the runtime named last."""
        return self.seen.of(SessionNamed)[-1].resume
