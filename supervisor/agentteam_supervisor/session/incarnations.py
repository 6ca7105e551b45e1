"""
One incarnation of a runtime as a task: its driver's context, and the calls in it.

The task opens the driver, tells the machine, waits until the incarnation is to end,
leaves the context (which ends the process tree) and says that it is gone. Calls of
the driver are tasks of the inner nursery: they end with the incarnation and by
nothing else, so a write is never cancelled half way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field

from agentteam_protocol.errors import RuntimeExited, RuntimeFailure, RuntimeRefused
from agentteam_protocol.ids import RunId
from agentteam_runtimes.driver import (
    Exited,
    ResumeRefused,
    Runtime,
    Survivor,
)
from agentteam_supervisor.session.deadlines import Limits
from agentteam_supervisor.session.effects import OpenRuntime
from agentteam_supervisor.session.events import (
    Event,
    FromRuntime,
    KillFailed,
    ProcessGone,
    RuntimeReady,
    StartFailed,
)
from agentteam_supervisor.session.faults import diagnose_start, only_failure
from agentteam_supervisor.session.ports import Ports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import (
        Containment,
        ItemOutcome,
        RuntimeEvent,
    )

Job = Callable[[Runtime], Awaitable[Any]]

_FOREVER = float("inf")


@define(eq=False)
class Incarnation:
    order: OpenRuntime
    ports: Ports
    limits: Limits
    feed: Callable[[Event], None]
    heard: Callable[[], None]
    delay: float = 0.0
    runtime: Runtime | None = None
    marks: dict[RunId, int] = field(factory=dict["RunId", int])
    exited: Exited | None = None
    over: trio.Event = field(factory=trio.Event)
    _calls: trio.Nursery | None = None
    _scope: trio.CancelScope = field(factory=trio.CancelScope)
    _leaving: trio.Event = field(factory=trio.Event)
    _due: deque[Job] = field(factory=deque[Job])
    _ordered: bool = False  # we asked for its end, so it is no failure to start
    _survivors: tuple[Survivor, ...] = ()
    _detail: str = ""

    @property
    def inc(self) -> int:
        return self.order.inc

    @property
    def live(self) -> bool:
        """Calls may be made."""
        return self._calls is not None and not self._leaving.is_set()

    @property
    def containment(self) -> Containment | None:
        return None if self.runtime is None else self.runtime.containment

    def mark(self, run_id: RunId) -> None:
        """Remember when the run was first submitted: what is younger is its work."""
        if self.containment is not None and run_id not in self.marks:
            self.marks[run_id] = self.containment.mark()

    # --- its life -------------------------------------------------------------

    async def run(self) -> None:
        failure: RuntimeFailure | None = None
        try:
            with self._scope:
                await self._live()
        except RuntimeFailure as error:
            failure = error
        except BaseExceptionGroup as group:
            failure = only_failure(group)
        except Exception as error:
            # A driver is somebody's code: its fault is told, and ends no session.
            failure = RuntimeRefused(f"a fault of its driver: {error!r}")
        self.over.set()
        self._report_end(failure)

    async def _live(self) -> None:
        await trio.sleep(self.delay)
        # The deadline stands on the scope around the whole context: a scope of its
        # own around `open` would have to end before the driver's nursery does.
        self._scope.deadline = trio.current_time() + _seconds(self.limits.start)
        capabilities = await self.ports.probe()
        async with AsyncExitStack() as stack:
            runtime, history_lost = await self._enter(stack)
            containment = runtime.containment
            settled = await self._look_up(runtime, history_lost)
            if self.exited is not None:
                raise RuntimeExited(self.exited.returncode, self.exited.stderr_tail)
            async with trio.open_nursery() as calls:
                self._scope.deadline = _FOREVER
                self.runtime, self._calls = runtime, calls
                self.feed(
                    RuntimeReady(
                        self.inc,
                        capabilities,
                        settled,
                        in_process=containment is None,
                        identity="" if containment is None else containment.identity,
                        history_lost=history_lost,
                    )
                )
                try:
                    await self._leaving.wait()
                finally:
                    self._leaving.set()  # also when cancelled: no call begins now
                self._scope.deadline = trio.current_time() + self.limits.close
                calls.cancel_scope.cancel()
            if containment is not None and self.exited is not None:
                self._survivors = tuple(await containment.kill())

    async def _enter(self, stack: AsyncExitStack) -> tuple[Runtime, bool]:
        """Open the driver; a session that it does not know is lost, once (R67)."""
        open_driver = partial(self.ports.driver.open, self.ports.spec)
        try:
            opening = open_driver(self.order.resume, self._emit)
            return await stack.enter_async_context(opening), False
        except ResumeRefused:
            # The end of the process that was asked in vain is not this one's.
            self.exited, self._leaving = None, trio.Event()
            opening = open_driver(None, self._emit)
            return await stack.enter_async_context(opening), True

    async def _look_up(
        self, runtime: Runtime, history_lost: bool
    ) -> Mapping[ItemId, ItemOutcome]:
        """Ask its history about what an earlier incarnation left open; bounded."""
        keys = {item.key: item.id for item in self.order.unsettled}
        if history_lost or not keys:
            return {}
        try:
            with trio.move_on_after(_seconds(self.limits.settle)):
                return await runtime.history(keys)
        except RuntimeFailure:
            pass  # undecided is an answer, too: the entries stay unknown
        return {}

    def _emit(self, events: Sequence[RuntimeEvent]) -> None:
        self.heard()
        if self.exited is not None:
            return
        end = next((n for n, e in enumerate(events) if isinstance(e, Exited)), None)
        if heard := tuple(events[:end]):
            self.feed(FromRuntime(self.inc, heard))
        if end is not None and isinstance(exited := events[end], Exited):
            self.exited = exited
            self._leaving.set()

    def _report_end(self, failure: RuntimeFailure | None) -> None:
        if self._calls is None and not self._ordered:
            self.feed(StartFailed(self.inc, diagnose_start(failure, self.limits.start)))
            return
        exited = self.exited or Exited(None)
        detail = exited.stderr_tail or (str(failure) if failure else "")
        self.feed(
            ProcessGone(
                self.inc,
                exited.returncode,
                detail,
                exited.fault,
                self._survivors,
            )
        )

    # --- what the machine wants done with it ------------------------------------

    def call(self, job: Job) -> bool:
        """
        Run a call of the driver in a task of its own; False: there is no runtime.

        Calls begin in the order they were made, and a driver writes before it first
        waits: what is told to the runtime keeps its order.
        """
        if not self.live or self._calls is None or self.runtime is None:
            return False
        self._due.append(job)
        self._calls.start_soon(self._begin_next, self.runtime)
        return True

    async def _begin_next(self, runtime: Runtime) -> None:
        # Tasks that are started together run in any order: each takes the next job.
        await self._due.popleft()(runtime)

    def leave(self) -> None:
        """End it the clean way: the driver's own, bounded."""
        self._ordered = True
        self._leaving.set()
        if self._calls is None:
            self._scope.cancel()

    async def terminate(self) -> None:
        self._ordered = True
        if self.containment is None:
            # An unfinished handshake, or a loop inside our own process.
            self._scope.cancel()
        else:
            await self.containment.terminate()

    async def kill(self) -> None:
        """End it now, or say that it could not be ended in time."""
        self._ordered = True
        survivors: tuple[Survivor, ...] = ()
        with trio.move_on_after(_seconds(self.limits.kill)):
            survivors = await self._end_tree()
            if not survivors:
                await self.over.wait()
        if not self.over.is_set():
            self.feed(KillFailed(self.inc, survivors))

    async def _end_tree(self) -> tuple[Survivor, ...]:
        survivors: tuple[Survivor, ...] = ()
        if self.containment is None:
            self._scope.cancel()
        else:
            survivors = tuple(await self.containment.kill())
        if not survivors:
            self._leaving.set()
        return survivors


def _seconds(limit: float | None) -> float:
    return _FOREVER if limit is None else limit
