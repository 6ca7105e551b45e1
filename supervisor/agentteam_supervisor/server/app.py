"""
The server: builds its parts, runs them, and takes them down in order.

Reading order, the way a message goes:

1. `guard`, `routes`, `bodies`: who may call, what is called, what was sent.
2. `api_messages`: a message enters; `mark_urgent` is where a policy enters.
3. `commands`, `idempotency`, `store`, `writer`: one transaction per effect.
4. `messages`, `deliveries`, `lifecycle`: identity, policy and state.
5. `outbox`, `leases`, `link`, `connection`: on its way to the daemon, and who that is.
6. `reports`, `frontiers`, `freshness`, `sends`: what the daemon says, what was seen,
   and what may be said in return.
7. `events`, `feed`, `sse`, `activity`: what people see of it.
8. `retention`: what is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from agentteam_supervisor.server import http
from agentteam_supervisor.server.commands import Services
from agentteam_supervisor.server.feed import Feed
from agentteam_supervisor.server.guard import LOOPBACK
from agentteam_supervisor.server.link import Link
from agentteam_supervisor.server.retention import run_retention
from agentteam_supervisor.server.routes import build_app
from agentteam_supervisor.server.store import StateUnusable, open_store

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from starlette.applications import Starlette
    from starlette.routing import BaseRoute

    from agentteam_supervisor.server.config import ServerConfig

# Beyond the grace of the requests: what the sockets need to end.
MARGIN = 3.0


async def run_server(
    config: ServerConfig,
    *,
    extra_routes: Sequence[BaseRoute] = (),
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """
    Serve until cancelled; reports the port once it listens.

    Raises `PortInUse` or `StateUnusable` before anything is half started.
    """
    if _bracketed(config.host) not in LOOPBACK:
        raise StateUnusable(
            f"{config.host} is not a loopback address, and there are no tokens yet",
            "use 127.0.0.1",
        )
    sock = http.bind(config.host, config.port)
    with sock:
        async with open_store(config.database, config.event_retention) as store:
            sockets = http.Connections()
            feed = Feed(store)
            link = Link(store, feed, sockets, config)
            services = Services(config, store, feed, link, sockets)
            app = build_app(services, extra_routes)
            await _serve(app, services, sock, task_status)


async def _serve(
    app: Starlette,
    services: Services,
    sock: socket.socket,
    task_status: trio.TaskStatus[int],
) -> None:
    """
    Run the parts; when cancelled, end watchers and the daemon's link first.

    The parts run shielded, because a cancelled connection cannot say goodbye.
    """
    stop = trio.Event()
    shielded = trio.CancelScope(shield=True)

    def goodbye() -> None:
        services.link.close()
        services.feed.close()

    async def parts(task_status: trio.TaskStatus[None]) -> None:
        with shielded:
            async with trio.open_nursery() as nursery:
                await nursery.start(services.feed.run)
                nursery.start_soon(run_retention, services.store)
                await http.serve(
                    app,
                    sock,
                    services.sockets,
                    stop,
                    goodbye,
                    services.config.grace,
                    task_status=task_status,
                )
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(parts)
        task_status.started(sock.getsockname()[1])
        try:
            await trio.sleep_forever()
        finally:
            stop.set()
            shielded.deadline = trio.current_time() + services.config.grace + MARGIN


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
