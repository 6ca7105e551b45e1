"""A maintenance task: the runtime's own by its name, or a host's function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from agentteam_protocol.errors import RuntimeFailure
from agentteam_supervisor.session.events import Event, MaintenanceEnded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_runtimes.driver import Runtime
    from agentteam_supervisor.session.effects import Maintain

ABORTED = "aborted"


class Maintenance:
    def __init__(
        self,
        tasks: dict[str, Callable[[], Awaitable[Any]]],
        feed: Callable[[Event], None],
    ) -> None:
        self._tasks = tasks
        self._feed = feed
        # By the task's id; one that is aborted before its first step finds it here.
        self._scopes: dict[str, trio.CancelScope] = {}

    def is_host_task(self, order: Maintain) -> bool:
        return order.task in self._tasks

    def refuse(self, order: Maintain, problem: str) -> None:
        self._feed(MaintenanceEnded(problem=problem, id=order.id))

    def abort(self, id: str) -> None:
        self._scope(id).cancel()

    async def run(self, order: Maintain, runtime: Runtime) -> None:
        await self._run(order.id, lambda: runtime.maintain(order.task))

    async def run_host_task(self, order: Maintain) -> None:
        await self._run(order.id, self._tasks[order.task])

    async def _run(self, id: str, job: Callable[[], Awaitable[Any]]) -> None:
        ended = MaintenanceEnded(problem=ABORTED, id=id)
        try:
            with self._scope(id):
                try:
                    ended = MaintenanceEnded(value=await job(), id=id)
                except RuntimeFailure as error:
                    ended = MaintenanceEnded(problem=str(error), id=id)
        finally:
            del self._scopes[id]
        self._feed(ended)

    def _scope(self, id: str) -> trio.CancelScope:
        return self._scopes.setdefault(id, trio.CancelScope())
