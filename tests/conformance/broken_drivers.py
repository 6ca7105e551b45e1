"""
Deliberately broken drivers: rehearsal's, each with one fault that a driver can have.

Each wraps the honest driver, or gives it a habit that nothing declares.
"""

from __future__ import annotations

import os
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, evolve, field

from agentteam_protocol.delivery import Evidence
from agentteam_protocol.errors import RuntimeFailure
from agentteam_runtimes.driver import (
    AskClosed,
    Asked,
    Batch,
    Capabilities,
    Containment,
    Emit,
    InputItem,
    Options,
    Runtime,
    RuntimeEvent,
    SessionSpec,
    SubmitRefused,
    Surfaced,
    Survivor,
    ToolEnded,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)
from agentteam_runtimes.rehearsal.driver import RehearsalDriver

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_runtimes.driver import AskRef


@define(eq=False)
class Wrapped:
    """A runtime that passes everything on; the faults override."""

    inner: Runtime
    emit: Emit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@define(eq=False)
class Broken:
    """A driver whose runtimes and events go through a fault."""

    name: str = "rehearsal"
    contract: int = 1
    inner: RehearsalDriver = field(factory=RehearsalDriver)

    def probe(self, options: Options) -> Capabilities:
        return self.inner.probe(options)

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime]:
        through = self.filter(emit)
        async with self.inner.open(spec, resume, through) as runtime:
            yield await self.wrap(runtime, through, spec, resume)

    def filter(self, emit: Emit) -> Emit:
        return emit

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return runtime


class _Hasty(Wrapped):
    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        await self.inner.steer(turn, item)
        self.emit([Surfaced(turn, item.id, item.key, Evidence("accepted"))])


@define(eq=False)
class SurfacedAtAccept(Broken):
    """Takes the runtime's "yes, I took it" for evidence that the model has it."""

    _claimed: set[str] = field(factory=set[str])

    def filter(self, emit: Emit) -> Emit:
        def through(events: Sequence[RuntimeEvent]) -> None:
            emit([event for event in events if self._is_first(event)])

        return through

    def _is_first(self, event: RuntimeEvent) -> bool:
        if not isinstance(event, Surfaced):
            return True
        first = event.key not in self._claimed
        self._claimed.add(event.key)
        return first

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Hasty(runtime, emit)


class _Insistent(Wrapped):
    async def interrupt(self, turn: TurnRef | None) -> None:
        await self.inner.interrupt(turn)
        # To be sure. It names no turn, and hits whichever runs by then.
        trio.lowlevel.spawn_system_task(self._again)

    async def _again(self) -> None:
        await trio.sleep(0.2)
        try:
            with trio.move_on_after(1):
                await self.inner.interrupt(None)
        except RuntimeFailure:
            return


class SecondInterrupt(Broken):
    """Sends the interrupt a second time."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Insistent(runtime, emit)


class _Forgetful(Wrapped):
    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        return


class DropsSteers(Broken):
    """Takes a steer and does nothing with it."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Forgetful(runtime, emit)


@define(eq=False)
class _Blind:
    """A containment that says that all is well."""

    inner: Containment

    @property
    def identity(self) -> str:
        return self.inner.identity

    def mark(self) -> int:
        return self.inner.mark()

    def alone(self) -> bool:
        return True

    async def sweep(self, born_after: int) -> Sequence[Survivor]:
        return []

    async def terminate(self) -> None:
        await self.inner.terminate()

    async def kill(self) -> Sequence[Survivor]:
        return await self.inner.kill()


class _Careless(Wrapped):
    @property
    def containment(self) -> Containment | None:
        inner = self.inner.containment
        return _Blind(inner) if inner is not None else None


class LeaksChildren(Broken):
    """Says that the sweep left nothing, and has not looked."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Careless(runtime, emit)


class LeaksHelper(Broken):
    """Starts a helper of its own beside the incarnation, and forgets it."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        _start_helper({**os.environ, **spec.options.env})
        return runtime


def _start_helper(environment: dict[str, str]) -> None:
    pid = os.posix_spawnp("sleep", ["sleep", "300"], environment, setsid=True)
    threading.Thread(target=os.waitpid, args=(pid, 0), daemon=True).start()


@define(eq=False)
class _Blocked(Wrapped):
    open_asks: set[str]
    kept: list[RuntimeEvent]

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        self.open_asks.discard(ask.id)
        if not self.open_asks:
            kept, self.kept[:] = list(self.kept), []
            self.emit(kept)
        await self.inner.answer(ask, outcome)


@define(eq=False)
class BlocksItsReader(Broken):
    """Waits inside its reader for the answer to an ask."""

    _asks: set[str] = field(factory=set[str])
    _kept: list[RuntimeEvent] = field(factory=list[RuntimeEvent])

    def filter(self, emit: Emit) -> Emit:
        def through(events: Sequence[RuntimeEvent]) -> None:
            for event in events:
                if self._asks:
                    self._kept.append(event)
                    continue
                emit([event])
                if isinstance(event, Asked):
                    self._asks.add(event.ask.id)

        return through

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Blocked(runtime, emit, self._asks, self._kept)


class _Deaf(Wrapped):
    async def interrupt(self, turn: TurnRef | None) -> None:
        return


class ClaimsGraceful(Broken):
    """Declares an interrupt that the runtime does not have."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Deaf(runtime, emit)


class _Deadly(Wrapped):
    async def interrupt(self, turn: TurnRef | None) -> None:
        contained = self.inner.containment
        assert contained is not None
        if turn is not None:
            self.emit([TurnEnded(turn, TurnStatus.interrupted)])
        await contained.kill()


class ClaimsGracefulAndKills(Broken):
    """Declares a graceful interrupt, and ends the process."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Deadly(runtime, emit)


class _Noting(Wrapped):
    async def start_turn(self, batch: Batch) -> TurnRef:
        DoublesOnResume.last = batch
        return await self.inner.start_turn(batch)


class DoublesOnResume(Broken):
    """Submits the last batch once more when it resumes a session."""

    last: Batch | None = None

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        if resume is not None and self.last is not None:
            again = [evolve(item, key=f"{item.key}+") for item in self.last.items]
            await runtime.start_turn(Batch(f"{self.last.id}+", tuple(again)))
        return _Noting(runtime, emit)


class KeepsApprovalOpen(Broken):
    """Never says that the cut has closed the ask."""

    def filter(self, emit: Emit) -> Emit:
        def through(events: Sequence[RuntimeEvent]) -> None:
            emit([e for e in events if not isinstance(e, AskClosed)])

        return through


class GuessesTheTurn(Broken):
    """Ties every event to the turn that runs when its line is read."""

    def filter(self, emit: Emit) -> Emit:
        running: list[TurnRef] = []

        def through(events: Sequence[RuntimeEvent]) -> None:
            for event in events:
                if isinstance(event, TurnStarted):
                    running.append(event.turn)
                if isinstance(event, ToolEnded):
                    emit([evolve(event, turn=running[-1])])
                else:
                    emit([event])

        return through


class EndsTwice(Broken):
    """Tells the end of a turn for each sign of it."""

    def filter(self, emit: Emit) -> Emit:
        def through(events: Sequence[RuntimeEvent]) -> None:
            emit([*events, *(e for e in events if isinstance(e, TurnEnded))])

        return through


class _Pushing(Wrapped):
    turn: TurnRef

    async def start_turn(self, batch: Batch) -> TurnRef:
        try:
            self.turn = await self.inner.start_turn(batch)
        except SubmitRefused:
            await self.inner.steer(self.turn, batch.items[0])
        return self.turn


class MakesSteersOfStarts(Broken):
    """Hands a batch to whatever runs when it is busy."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Pushing(runtime, emit)


class ReplacesLostSessions(Broken):
    """Opens a fresh session where the old one is gone, and says nothing."""

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncGenerator[Runtime]:
        known = resume is not None and (spec.state_dir / f"{resume}.jsonl").exists()
        async with self.inner.open(spec, resume if known else None, emit) as runtime:
            yield runtime


class NeverReady(Broken):
    """Waits for a handshake without a limit."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        await trio.sleep_forever()
        raise AssertionError("for ever ended")


class _Ghost(Wrapped):
    async def start_turn(self, batch: Batch) -> TurnRef:
        try:
            return await self.inner.start_turn(batch)
        except RuntimeFailure:
            await trio.sleep_forever()
            raise


class HangsAfterDeath(Broken):
    """Waits for the answer of a process that is gone."""

    async def wrap(
        self, runtime: Runtime, emit: Emit, spec: SessionSpec, resume: str | None
    ) -> Runtime:
        return _Ghost(runtime, emit)
