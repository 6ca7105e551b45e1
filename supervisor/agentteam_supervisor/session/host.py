"""
The intervention surface: seven methods on a session, the same for every runtime.

The four that only tell are plain calls: when `steer` returns, its turn is open (R94).
The outside world sees `idle` or `running`, nothing else.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from agentteam_protocol.ids import ItemId, RunId, mint
from agentteam_protocol.inbox import Item, Lane, Source
from agentteam_supervisor.session.actor import AskRefused, SessionActor
from agentteam_supervisor.session.events import (
    CancelRequested,
    DisposeRequested,
    IdleAwaited,
    Loaded,
    MaintenanceRequested,
    ResumeRequested,
    Sent,
    ShutdownRequested,
    StopRequested,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from agentteam_protocol.control import ControlResult
    from agentteam_supervisor.session.deadlines import Limits
    from agentteam_supervisor.session.ports import Ports
    from agentteam_supervisor.session.state import Session

USER = Source()
PLUGIN = Source("plugin", "host")


@asynccontextmanager
async def open_session(
    session: Session, ports: Ports, limits: Limits | None = None
) -> AsyncGenerator[SessionHandle]:
    """
    Run a session; leaving shuts it down, bounded, and keeps its inbox.

    `session` is the fold of its journal, or a fresh one.
    """
    actor = SessionActor(session, ports, limits)
    handle = SessionHandle(actor, ports.tasks)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        actor.feed(Loaded())
        try:
            yield handle
        finally:
            with trio.move_on_after(actor.limits.shutdown, shield=True):
                await handle.shutdown()
            nursery.cancel_scope.cancel()


class SessionHandle:
    """What a host program holds of a session."""

    def __init__(
        self, actor: SessionActor, tasks: dict[str, Callable[[], Awaitable[Any]]]
    ) -> None:
        self.actor = actor
        self._tasks = tasks

    @property
    def status(self) -> str:
        return "running" if self.actor.session.running else "idle"

    @property
    def run_id(self) -> RunId | None:
        """The run that `stop` has to name."""
        turn = self.actor.session.ledger.turn
        return None if turn is None else turn.run_id

    # --- the seven methods ----------------------------------------------------------

    def followup(self, *messages: str, source: Source = USER) -> list[ItemId]:
        """Start a turn of its own, after those that wait."""
        return self.send(*messages, target=Lane.next_turn, source=source)

    def steer(self, *messages: str, source: Source = USER) -> list[ItemId]:
        """Join the running turn at its next step; from idle, open one now."""
        return self.send(*messages, target=Lane.next_step, source=source)

    def inject(self, *messages: str, source: Source = PLUGIN) -> list[ItemId]:
        """Add context that wakes nobody."""
        lane = Lane.next_step
        return self.send(*messages, target=lane, wakeup=False, source=source)

    def send(
        self,
        *messages: str,
        target: Lane = Lane.next_turn,
        wakeup: bool = True,
        source: Source = USER,
    ) -> list[ItemId]:
        """The one primitive under the three above (R96)."""
        if target is Lane.urgent:
            raise ValueError("only Mark urgent enters the urgent lane")
        items = tuple(_item(m, target, source, wakes=wakeup) for m in messages)
        self.actor.feed(Sent(items))
        return [item.id for item in items]

    def cancel(self, cause: str = "", *, keep_inbox: bool = False) -> None:
        """Cut the run; clear what waits, unless it shall be kept."""
        self.actor.feed(CancelRequested(cause, keep_inbox))

    @property
    def quiescent(self) -> bool:
        return self.actor.session.quiescent

    async def when_idle(self) -> None:
        """Wait until no run, no driver and no maintenance is active (R105)."""
        await self.actor.ask(IdleAwaited)

    async def run_maintenance(self, task: str | Callable[[], Awaitable[Any]]) -> Any:
        """
        Run a task while nothing else runs, and return its value.

        A name is the runtime's own task (`compact`). Raises `RuntimeError` unless the
        session is idle, else whatever the task raises; idle again in any case.
        """
        if isinstance(task, str):
            return await self._maintain(task)
        raised: list[Exception] = []
        name = mint("task")

        async def run() -> Any:
            try:
                return await task()
            except Exception as error:
                # The host's own fault goes back to the host, not into the session.
                raised.append(error)

        self._tasks[name] = run
        try:
            value = await self._maintain(name)
        finally:
            self._tasks.pop(name, None)
        if raised:
            raise raised[0]
        return value

    async def _maintain(self, name: str) -> Any:
        try:
            return await self.actor.ask(lambda ref: MaintenanceRequested(name, ref))
        except AskRefused as refused:
            raise RuntimeError(refused.error) from refused

    # --- beside them ------------------------------------------------------------------

    async def stop(self, run_id: RunId | None, who: str = "") -> ControlResult:
        """Stop that run and no other; what waits stays, parked."""
        result: ControlResult = await self.actor.ask(
            lambda ref: StopRequested(run_id, who, ref)
        )
        return result

    async def resume(self) -> ControlResult:
        """Let a parked inbox run again."""
        result: ControlResult = await self.actor.ask(ResumeRequested)
        return result

    async def shutdown(self) -> None:
        """End the session and keep its inbox for the next start."""
        await self._end(ShutdownRequested)

    async def dispose(self) -> None:
        """End the session for good; open deliveries are cancelled."""
        await self._end(DisposeRequested)

    async def _end(self, request: Callable[[int], Any]) -> None:
        if self.actor.ended:
            return
        try:
            await self.actor.ask(request)
        except AskRefused:
            if self.actor.failure is None:
                raise


def _item(body: str, lane: Lane, source: Source, *, wakes: bool) -> Item:
    return Item(ItemId(mint("itm")), body, lane, wakes=wakes, source=source)
