"""Routes of the service itself: events, health, numbers, description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select, update
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import JSONResponse, PlainTextResponse

from agentteam_supervisor.server import agents, events, outbox
from agentteam_supervisor.server.commands import language, look, services
from agentteam_supervisor.server.disk import what_is_wrong
from agentteam_supervisor.server.openapi import DESCRIPTION
from agentteam_supervisor.server.problems import Problem
from agentteam_supervisor.server.schema import deliveries, meta
from agentteam_supervisor.server.sse import EventStream
from agentteam_supervisor.server.writer import StoreUnwritable, words_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agentteam_supervisor.server.transaction import Tx


async def stream_events(request: Request) -> Response:
    """Follow everything as it changes."""
    served = services(request)
    cursor = request.headers.get("last-event-id")
    client = request.scope["client"]
    return EventStream(
        served.feed,
        served.store.id,
        request.query_params.get("lastEventId") if cursor is None else cursor,
        language(request),
        lambda: served.sockets.cut(client),
        served.config.stall,
        served.config.keepalive,
    )


async def healthz(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """Ready means that the store can be written and the server is not going down."""
    if services(request).feed.closing:
        raise Problem(503, "going_down", "the server is going down; try again later")
    try:
        await services(request).store.write(_touch)
        return await look(request, _readiness)
    except StoreUnwritable as exc:
        problem, todo = what_is_wrong(services(request).config.state_dir, str(exc))
        raise Problem(503, "store_unwritable", f"{problem}: {todo}") from exc
    except SQLAlchemyError as exc:
        detail = f"the store does not answer: {words_of(exc)}; look at the disk"
        raise Problem(503, "store_unavailable", detail) from exc


async def metrics(request: Request) -> Response:
    text = await services(request).store.read(_numbers)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def openapi(_: Request) -> Response:
    return JSONResponse(DESCRIPTION)


def _touch(tx: Tx) -> None:
    """Write what is there already: only a write tells that one is possible."""
    tx.run(update(meta).where(meta.c.key == "store_id").values(key="store_id"))


def _readiness(tx: Tx) -> dict[str, Any]:
    connected = outbox.holder_connected(tx)
    return {"status": "ready", "daemon": {"connected": connected}}


def _numbers(tx: Tx) -> str:
    by_state = select(deliveries.c.state, func.count().label("n"))
    lines = ["# TYPE agentteam_deliveries gauge"]
    for row in tx.all(by_state.group_by(deliveries.c.state)):
        lines.append(f'agentteam_deliveries{{state="{row["state"]}"}} {row["n"]}')
    gauges = {
        "agents": len(agents.living(tx)),
        "daemon_connected": int(outbox.holder_connected(tx)),
        "last_event": events.bounds(tx)[1],
    }
    for name, value in gauges.items():
        lines += [f"# TYPE agentteam_{name} gauge", f"agentteam_{name} {value}"]
    return "\n".join(lines) + "\n"
