"""
A driver in memory: every answer can be held, every event is the test's to emit.

The clock need not move: a call that is held waits at its gate until `let`.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from agentteam_protocol.delivery import Evidence
from agentteam_runtimes.driver import (
    Capabilities,
    EvidenceLevel,
    Exited,
    Interrupt,
    ItemOutcome,
    Steer,
    Surfaced,
    Survivor,
    TurnEnded,
    TurnRef,
    TurnStarted,
    TurnStatus,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import (
        AskRef,
        Batch,
        CallRef,
        Emit,
        InputItem,
        Options,
        RuntimeEvent,
        SessionSpec,
    )

CAPABILITIES = Capabilities(
    version="1",
    steer=Steer.ack,
    interrupt=Interrupt.turn,
    evidence=EvidenceLevel.recorded,
    approval_cancel=True,
    resume=True,
    batch_input=True,
    tools=True,
    maintenance=True,
)


class Gates:
    """Held calls wait; `failing` ones raise. `calls` is what came in, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: dict[str, list[Exception]] = defaultdict(list)
        self._held: dict[str, trio.Event] = {}

    def hold(self, name: str) -> None:
        self._held[name] = trio.Event()

    def let(self, name: str) -> None:
        self._held.pop(name).set()

    def fail(self, name: str, error: Exception) -> None:
        """The next call of this name raises."""
        self.failing[name].append(error)

    async def enter(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, *arguments))
        if (held := self._held.get(name)) is not None:
            await held.wait()
        if self.failing[name]:
            raise self.failing[name].pop(0)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == name]


class FakeContainment:
    """
    A process without a process.

    `deaf` to TERM, `immortal` even to KILL; what `sweep` leaves is in `leftovers`.
    """

    def __init__(self, runtime: FakeRuntime, pid: int) -> None:
        self.deaf = False
        self.immortal = False
        self.leftovers: tuple[Survivor, ...] = ()
        self.identity = f'{{"pid": {pid}}}'
        self._runtime = runtime
        self._pid = pid
        self._marks = 0

    def mark(self) -> int:
        self._marks += 1
        return self._marks

    def alone(self) -> bool:
        return False

    async def sweep(self, born_after: int) -> Sequence[Survivor]:
        await self._runtime.gates.enter("sweep", born_after)
        return self.leftovers

    async def terminate(self) -> None:
        await self._runtime.gates.enter("terminate")
        if not self.deaf:
            self._runtime.exit(-15)

    async def kill(self) -> Sequence[Survivor]:
        await self._runtime.gates.enter("kill")
        if self.immortal:
            return (Survivor(self._pid, 1, "unkillable"),)
        self._runtime.exit(-9)
        return ()


class FakeRuntime:
    def __init__(self, gates: Gates, emit: Emit, inc: int, *, process: bool) -> None:
        self.gates = gates
        self.inc = inc
        self.contained = FakeContainment(self, 1000 + inc) if process else None
        self.batches: list[Batch] = []
        self.steered: list[InputItem] = []
        self.answers: list[tuple[AskRef, ApprovalOutcome]] = []
        self.replies: list[tuple[CallRef, str, bool]] = []
        self.outcomes: Mapping[ItemId, ItemOutcome] = {}
        self.alive = True
        self._emit = emit

    @property
    def containment(self) -> FakeContainment | None:
        return self.contained

    # --- what the test does with it ---------------------------------------------

    @property
    def turn(self) -> TurnRef:
        return TurnRef(f"turn-{self.inc}-{len(self.batches)}")

    def emit(self, *events: RuntimeEvent) -> None:
        self._emit(events)

    def surface(self, *items: InputItem) -> None:
        """Show evidence for these entries, or for the whole last batch."""
        evidence = Evidence("fake")
        for item in items or self.batches[-1].items:
            self.emit(Surfaced(self.turn, item.id, item.key, evidence))

    def finish(self, status: TurnStatus = TurnStatus.completed, **more: Any) -> None:
        self.emit(TurnEnded(self.turn, status, **more))

    def exit(self, returncode: int | None = 0, **more: Any) -> None:
        if self.alive:
            self.alive = False
            self.emit(Exited(returncode, **more))

    # --- the driver contract ------------------------------------------------------

    async def start_turn(self, batch: Batch) -> TurnRef:
        await self.gates.enter("start_turn", batch)
        self.batches.append(batch)
        self.emit(TurnStarted(self.turn, batch.id))
        return self.turn

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        await self.gates.enter("steer", turn, item)
        self.steered.append(item)

    async def next_step(self, turn: TurnRef, items: Sequence[InputItem]) -> None:
        await self.gates.enter("next_step", turn, tuple(items))

    async def interrupt(self, turn: TurnRef | None) -> None:
        await self.gates.enter("interrupt", turn)

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        await self.gates.enter("answer", ask, outcome)
        self.answers.append((ask, outcome))

    async def tool_result(self, call: CallRef, text: str, *, error: bool) -> None:
        await self.gates.enter("tool_result", call)
        self.replies.append((call, text, error))

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        await self.gates.enter("history", dict(keys))
        return {
            item: self.outcomes[item] for item in keys.values() if item in self.outcomes
        }

    async def maintain(self, task: str) -> str:
        await self.gates.enter("maintain", task)
        return f"{task} done"


class FakeDriver:
    """`runtimes` are the incarnations so far; `gates` hold and fail their calls."""

    name = "fake"
    contract = 1

    def __init__(
        self, capabilities: Capabilities = CAPABILITIES, *, process: bool = True
    ) -> None:
        self.capabilities = capabilities
        self.gates = Gates()
        self.runtimes: list[FakeRuntime] = []
        self.resumed: list[str | None] = []
        self.closed = 0
        self._process = process

    def probe(self, options: Options) -> Capabilities:
        return self.capabilities

    @property
    def runtime(self) -> FakeRuntime:
        return self.runtimes[-1]

    @asynccontextmanager
    async def open(
        self, spec: SessionSpec, resume: str | None, emit: Emit
    ) -> AsyncIterator[FakeRuntime]:
        self.resumed.append(resume)
        runtime = FakeRuntime(
            self.gates, emit, len(self.runtimes) + 1, process=self._process
        )
        try:
            await self.gates.enter("open", resume)
            self.runtimes.append(runtime)
            yield runtime
        finally:
            with trio.CancelScope(shield=True):
                await self.gates.enter("close", runtime.inc)
            runtime.exit(0)
            self.closed += 1
