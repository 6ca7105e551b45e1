"""A network between daemon and server that can fall silent without breaking."""

from __future__ import annotations

from contextlib import suppress

import trio
from attrs import define


@define(eq=False)
class DeafProxy:
    """Passes on to `upstream`; while `deaf`, it swallows all, ends included."""

    upstream: int
    port: int = 0
    deaf: bool = False

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started()
        await trio.serve_listeners(self._pass_on, listeners)

    async def _pass_on(self, near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", self.upstream)
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, near, far)
            nursery.start_soon(self._copy, far, near)

    async def _copy(self, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if not self.deaf:
                    await sink.send_all(data)
        if not self.deaf:
            await sink.aclose()
