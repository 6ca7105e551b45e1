"""A scripted runtime on its own, without a session: plays steps, keeps the events."""

from __future__ import annotations

import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import define, field

from agentteam_protocol.ids import AgentId, ItemId
from agentteam_runtimes.driver import (
    Batch,
    Exited,
    InputItem,
    Options,
    Runtime,
    RuntimeEvent,
    Said,
    SessionNamed,
    SessionSpec,
    TurnEnded,
    TurnRef,
    TurnStarted,
)
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from pathlib import Path

E = TypeVar("E", bound=RuntimeEvent)

HERE = "(here)"

_numbers = itertools.count(1)


@define(eq=False)
class Stage:
    """One live incarnation and everything it has told."""

    spec: SessionSpec
    events: list[RuntimeEvent] = field(factory=list[RuntimeEvent])
    runtime: Runtime = field(init=False)
    _told: trio.Event = field(factory=trio.Event)

    def emit(self, events: Sequence[RuntimeEvent]) -> None:
        self.events += events
        self._told.set()
        self._told = trio.Event()

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def session(self) -> str:
        return self.all(SessionNamed)[0].resume

    async def until(
        self, kind: type[E], holds: Callable[[E], bool] = lambda _: True
    ) -> E:
        """Wait for the first event of this kind, told already or not."""
        while True:
            for event in self.all(kind):
                if holds(event):
                    return event
            await self._told.wait()

    async def submit(self, *bodies: str) -> TurnRef:
        """Start a turn; entry N of the test has the id `item-N` and the key `key-N`."""
        batch = Batch(f"batch-{next(_numbers)}", tuple(map(entry, bodies)))
        return await self.runtime.start_turn(batch)

    async def begin(self, *steps: dict[str, Any]) -> TurnRef:
        """Start a turn that plays these steps, and wait until it has begun."""
        turn = await self.submit(do(*steps))
        await self.until(TurnStarted, lambda event: event.turn == turn)
        return turn

    async def arrive(self, *steps: dict[str, Any]) -> TurnRef:
        """Start a turn, and wait until it has reached the last of these steps."""
        turn = await self.begin(*steps[:-1], {"say": HERE, "ms": 0}, steps[-1])
        await self.until(Said, lambda said: (said.turn, said.text) == (turn, HERE))
        return turn

    async def end_of(self, turn: TurnRef) -> TurnEnded:
        return await self.until(TurnEnded, lambda event: event.turn == turn)

    async def play(self, *steps: dict[str, Any]) -> TurnEnded:
        """Play these steps to the turn's end."""
        return await self.end_of(await self.begin(*steps))

    async def exit(self) -> Exited:
        return await self.until(Exited)


def do(*steps: dict[str, Any]) -> str:
    """Write the body that plays these steps."""
    return f"#do {json.dumps(steps)}\n(what stands below is not read)"


def entry(body: str) -> InputItem:
    number = next(_numbers)
    return InputItem(ItemId(f"item-{number}"), f"key-{number}", body)


@asynccontextmanager
async def open_stage(
    directory: Path,
    *,
    resume: str | None = None,
    driver: RehearsalDriver | None = None,
    **config: Any,
) -> AsyncGenerator[Stage]:
    """Open the scripted runtime with this `options.config`."""
    options = Options(config=config)
    spec = SessionSpec(AgentId("agt_1"), "demo", directory, directory, options=options)
    stage = Stage(spec)
    driver = driver or RehearsalDriver()
    async with driver.open(spec, resume, stage.emit) as runtime:
        stage.runtime = runtime
        yield stage
