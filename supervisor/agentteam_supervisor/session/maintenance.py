"""A maintenance task: the runtime's own by its name, or a host's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from agentteam_protocol.errors import RuntimeFailure
from agentteam_supervisor.session.events import Event, MaintenanceEnded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_runtimes.driver import Runtime

ABORTED = "aborted"


class Maintenance:
    def __init__(
        self,
        tasks: dict[str, Callable[[], Awaitable[Any]]],
        feed: Callable[[Event], None],
    ) -> None:
        self._tasks = tasks
        self._feed = feed
        self._scope: trio.CancelScope | None = None
        self._aborted = False

    def is_host_task(self, task: str) -> bool:
        return task in self._tasks

    def refuse(self, problem: str) -> None:
        self._feed(MaintenanceEnded(problem=problem))

    def abort(self) -> None:
        self._aborted = True
        if self._scope is not None:
            self._scope.cancel()

    async def run(self, task: str, runtime: Runtime) -> None:
        await self._run(lambda: runtime.maintain(task))

    async def run_host_task(self, task: str) -> None:
        await self._run(self._tasks[task])

    async def _run(self, job: Callable[[], Awaitable[Any]]) -> None:
        ended = MaintenanceEnded(problem=ABORTED)
        with trio.CancelScope() as scope:
            self._scope = scope
            if self._aborted:
                scope.cancel()
            try:
                ended = MaintenanceEnded(value=await job())
            except RuntimeFailure as error:
                ended = MaintenanceEnded(problem=str(error))
        self._scope, self._aborted = None, False
        self._feed(ended)
