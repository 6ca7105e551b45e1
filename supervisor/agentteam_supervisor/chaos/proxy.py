"""A loopback proxy between daemon and server, whose connections can be cut."""

from __future__ import annotations

from contextlib import suppress

import trio
from attrs import define, field

from agentteam_supervisor.chaos.uptime import Uptime


@define(eq=False)
class Proxy:
    """
    Listens on `port`; passes on to `upstream`, while there is one.

    A daemon takes its time to come back: while it is wanted and not connected, `uptime`
    stands still.
    """

    upstream: int | None = None
    port: int = 0
    uptime: Uptime = field(factory=Uptime)
    _wanted: bool = False
    _away: bool = False
    _open: set[trio.CancelScope] = field(factory=set[trio.CancelScope])

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pass_on, listeners)

    def is_wanted(self, wanted: bool) -> None:
        """Say whether a daemon should be connected from now on."""
        self._wanted = wanted
        self._count()

    def _count(self) -> None:
        away = self._wanted and not self._open
        if away and not self._away:
            self.uptime.stop()
        elif self._away and not away:
            self.uptime.go_on()
        self._away = away

    def cut(self) -> int:
        """Cut every connection, in the middle of whatever it carries."""
        cut = len(self._open)
        for scope in tuple(self._open):
            scope.cancel()
        return cut

    async def _pass_on(self, near: trio.SocketStream) -> None:
        if self.upstream is None:
            return
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            far = await trio.open_tcp_stream("127.0.0.1", self.upstream)
            async with near, far:
                with trio.CancelScope() as scope:
                    self._open.add(scope)
                    self._count()
                    try:
                        await self._both_ways(near, far, scope)
                    finally:
                        self._open.discard(scope)
                        self._count()

    async def _both_ways(
        self, near: trio.SocketStream, far: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_copy, near, far, scope)
            nursery.start_soon(_copy, far, near, scope)


async def _copy(
    source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()
