"""The turn scope: one task per run, cancelled as a whole when the run is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_protocol.ids import RunId

Job = tuple["Callable[..., Awaitable[Any]]", tuple[Any, ...]]


class Run:
    """
    Holds the listeners and the answerers of one run, never a call of the runtime.

    A job may be given before the task has begun; after the cut it is not started.
    """

    def __init__(self, run_id: RunId) -> None:
        self.id = run_id
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._early: list[Job] = []
        self._over = trio.Event()

    async def run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                for job, arguments in self._early:
                    nursery.start_soon(job, *arguments)
                try:
                    await self._over.wait()
                finally:
                    self._scope.cancel()  # also when its session is: no job begins now

    def spawn(self, job: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
        if self._nursery is None:
            self._early.append((job, arguments))
        elif not self._scope.cancel_called:
            self._nursery.start_soon(job, *arguments)

    def cut(self) -> None:
        """Cancel the turn scope; also its end, when nothing of it is wanted."""
        self._over.set()
        self._scope.cancel()
