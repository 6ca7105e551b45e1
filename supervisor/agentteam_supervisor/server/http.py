"""
Hypercorn's HTTP, with our own hands on the sockets.

Its worker owns the connections and shields every send, so a client that does not
read could hold a shutdown up for ever. Here the streams are known by their client's
address and can be broken.
"""

from __future__ import annotations

import errno
import functools
import logging
import socket
from typing import TYPE_CHECKING, Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from agentteam_protocol.errors import AgentTeamError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

LOG = logging.getLogger(__name__)
BACKLOG = 128


class PortInUse(AgentTeamError):
    """The address cannot be listened on; says what to do."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.problem = f"cannot listen on {host}:{port}: {reason}"
        self.what_to_do = (
            "stop what uses the port, or choose another one with --port (0: any)"
        )
        super().__init__(f"{self.problem}; {self.what_to_do}")


def bind(host: str, port: int) -> socket.socket:
    """Take the address without listening yet; raises `PortInUse`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        reason = "it is in use" if exc.errno == errno.EADDRINUSE else str(exc)
        raise PortInUse(host, port, reason) from exc
    return sock


class Connections:
    """The open connections, by the address of their client."""

    def __init__(self) -> None:
        self._streams: dict[Any, trio.SocketStream] = {}
        self._empty = trio.Event()

    def add(self, client: Any, stream: trio.SocketStream) -> None:
        self._streams[client] = stream

    def remove(self, client: Any) -> None:
        self._streams.pop(client, None)
        if not self._streams:
            self._empty.set()
            self._empty = trio.Event()

    def cut(self, client: Any) -> None:
        """Break a connection at once; whatever is being sent on it fails."""
        stream = self._streams.get(None if client is None else tuple(client))
        if stream is not None:
            stream.socket.close()

    def cut_all(self) -> None:
        for stream in list(self._streams.values()):
            stream.socket.close()

    async def wait_empty(self) -> None:
        while self._streams:
            await self._empty.wait()


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    connections: Connections,
    stop: trio.Event,
    goodbye: Callable[[], None],
    grace: float,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """
    Serve until told to stop, then let what is under way end within the grace.

    `goodbye` is called when no new connection can come any more: it ends what would
    never end by itself.
    """
    context = WorkerContext(None)
    handler = functools.partial(_handle, app, _config(), context, connections)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    async with trio.open_nursery() as handlers:
        async with trio.open_nursery() as accepting:
            await accepting.start(
                functools.partial(
                    trio.serve_listeners, handler, [listener], handler_nursery=handlers
                )
            )
            task_status.started()
            await stop.wait()
            accepting.cancel_scope.cancel()
        goodbye()
        await context.terminated.set()
        with trio.move_on_after(grace):
            await connections.wait_empty()
        connections.cut_all()
        handlers.cancel_scope.cancel()


def _config() -> Config:
    config = Config()
    # A connection is dropped in the middle of a stream of requests by default.
    config.keep_alive_max_requests = 2**31
    config.keep_alive_timeout = 75
    config.errorlog = LOG
    config.include_server_header = False
    return config


async def _handle(
    app: ASGIApp,
    config: Config,
    context: WorkerContext,
    connections: Connections,
    stream: trio.SocketStream,
) -> None:
    try:
        client = tuple(stream.socket.getpeername()[:2])
    except OSError:
        await stream.aclose()  # it left before we looked
        return
    wrapped = ASGIWrapper(cast("Any", app))
    connections.add(client, stream)
    try:
        await TCPServer(
            wrapped, config, context, ConnectionState({}), cast("Any", stream)
        )
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client went, or we cut it
    except* Exception:
        # The boundary of a connection: one that fails must not end the others.
        LOG.exception("a connection failed")
    finally:
        connections.remove(client)
