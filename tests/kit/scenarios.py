"""
What is recorded of every runtime, and played to its driver again: short, and fixed.

A scenario acts only when the wire is silent. So what we send has one place between the
lines of the runtime, and a second recording has it there, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import trio
from attrs import define, field
from tests.kit.desk import Desk

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes.driver import (
    Asked,
    Output,
    Runtime,
    RuntimeEvent,
    ToolStarted,
    TurnRef,
)
from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONG_MS = 600_000
GATE = "until [ -e go ]; do sleep 0.02; done"


class Wire(Protocol):
    """What is between the driver and the runtime: a real one, or what is replayed."""

    def on(self) -> None:
        """Begin to record, or to play, an incarnation."""
        ...

    def off(self) -> None:
        """Leave the rest of the incarnation out: its last lines race its exit."""
        ...

    async def quiet(self) -> None:
        """Wait until neither side says anything."""
        ...


@define(eq=False)
class Stage:
    """One scenario on its way."""

    desk: Desk[Any, Any]
    wire: Wire
    asking: Mapping[str, Any]  # the `config` with which its commands are asked for
    refused: int  # the HTTP status of a model's error that it does not retry
    events: list[RuntimeEvent] = field(factory=list[RuntimeEvent])

    @asynccontextmanager
    async def open(
        self, *, asks: bool = False, resume: str | None = None
    ) -> AsyncIterator[Runtime]:
        config = self.asking if asks else None
        since = len(self.desk.seen.all)
        self.wire.on()
        async with self.desk.open(config, resume=resume) as runtime:
            await self.wire.quiet()
            yield runtime
            await self.wire.quiet()
            self.wire.off()
            self.events += self.desk.seen.all[since:]

    async def begin(self, runtime: Runtime, *steps: dict[str, Any]) -> TurnRef:
        turn = await self.desk.begin(runtime, self.desk.item(do(*steps)))
        await self.wire.quiet()
        return turn

    async def play(self, runtime: Runtime, *steps: dict[str, Any]) -> None:
        """Have a whole turn."""
        await self.ended(await self.begin(runtime, *steps))

    async def ended(self, turn: TurnRef) -> None:
        await self.desk.ended(turn)
        await self.wire.quiet()

    async def first(self, kind: type[RuntimeEvent]) -> Any:
        """Wait for an event and the silence after it."""
        found = await self.desk.seen.first(kind, within=self.desk.patience)
        await self.wire.quiet()
        return found


async def answer(stage: Stage) -> None:
    async with stage.open() as runtime:
        await stage.play(runtime, {"say": "All is well."})


async def two_turns(stage: Stage) -> None:
    async with stage.open() as runtime:
        await stage.play(runtime, {"say": "The first."})
        await stage.play(runtime, {"say": "The second."})


async def tool(stage: Stage) -> None:
    async with stage.open() as runtime:
        await stage.play(runtime, {"run": "echo made"}, {"say": "Done."})


async def allowed(stage: Stage) -> None:
    await _decided(stage, ApprovalOutcome.allowed_once)


async def rejected(stage: Stage) -> None:
    await _decided(stage, ApprovalOutcome.rejected)


async def _decided(stage: Stage, outcome: ApprovalOutcome) -> None:
    async with stage.open(asks=True) as runtime:
        turn = await stage.begin(runtime, {"run": "touch made"}, {"say": "Done."})
        asked = await stage.first(Asked)
        await runtime.answer(asked.ask, outcome)
        await stage.ended(turn)


async def cut_while_asking(stage: Stage) -> None:
    async with stage.open(asks=True) as runtime:
        turn = await stage.begin(runtime, {"run": "touch made"}, {"say": "Done."})
        await stage.first(Asked)
        await _cut(stage, runtime, turn)


async def cut_while_streaming(stage: Stage) -> None:
    async with stage.open() as runtime:
        turn = await stage.begin(runtime, {"say": "One two.", "ms": LONG_MS})
        await stage.first(Output)
        await _cut(stage, runtime, turn)


async def cut_in_a_tool(stage: Stage) -> None:
    async with stage.open() as runtime:
        turn = await stage.begin(runtime, {"run": "exec sleep 600"}, {"say": "Done."})
        await stage.first(ToolStarted)
        await _cut(stage, runtime, turn)


async def _cut(stage: Stage, runtime: Runtime, turn: TurnRef) -> None:
    await runtime.interrupt(turn)
    await stage.ended(turn)
    await stage.play(runtime, {"say": "The next."})


async def steer(stage: Stage) -> None:
    async with stage.open() as runtime:
        turn = await stage.begin(runtime, {"run": GATE}, {"say": "Done."})
        await stage.first(ToolStarted)
        await runtime.steer(turn, stage.desk.item("And this."))
        await stage.wire.quiet()
        await trio.Path(stage.desk.home.workdir / "go").touch()
        await stage.ended(turn)


async def model_error(stage: Stage) -> None:
    async with stage.open() as runtime:
        await stage.play(runtime, {"http": stage.refused})


async def resume(stage: Stage) -> None:
    async with stage.open() as runtime:
        await stage.play(runtime, {"say": "Before."})
    async with stage.open(resume=stage.desk.session) as runtime:
        await stage.play(runtime, {"say": "After."})


Scenario = Callable[[Stage], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    played.__name__.replace("_", "-"): played
    for played in (
        answer,
        two_turns,
        tool,
        allowed,
        rejected,
        cut_while_asking,
        cut_while_streaming,
        cut_in_a_tool,
        steer,
        model_error,
        resume,
    )
}
