"""A loopback proxy between daemon and server, whose connections can be cut."""

from __future__ import annotations

from contextlib import suppress

import trio
from attrs import define, field


@define(eq=False)
class Proxy:
    """Listens on `port`; passes on to `upstream`, while there is one."""

    upstream: int | None = None
    port: int = 0
    _open: set[trio.CancelScope] = field(factory=set[trio.CancelScope])

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pass_on, listeners)

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
                    try:
                        await self._both_ways(near, far, scope)
                    finally:
                        self._open.discard(scope)

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
