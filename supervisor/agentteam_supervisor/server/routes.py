"""Every path of the server, and how failures are put in words."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from agentteam_protocol.errors import QueueFull
from agentteam_supervisor.server import (
    api_agents,
    api_approvals,
    api_messages,
    api_service,
)
from agentteam_supervisor.server.commands import unwritable
from agentteam_supervisor.server.guard import Guard
from agentteam_supervisor.server.problems import Problem
from agentteam_supervisor.server.writer import StoreUnwritable, words_of
from agentteam_supervisor.session.faults import first_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.websockets import WebSocket

    from agentteam_supervisor.server.commands import Services

LOG = logging.getLogger(__name__)

_AGENT = "/api/agents/{agent}"
_TARGET = "/api/targets/{target}"
_MESSAGE = "/api/messages/{message}"

HTTP: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
    ("GET", "/api/agents", api_agents.list_agents),
    ("POST", "/api/agents", api_agents.create_agent),
    ("GET", _AGENT, api_agents.get_agent),
    ("PATCH", _AGENT, api_agents.change_agent),
    ("DELETE", _AGENT, api_agents.delete_agent),
    ("POST", f"{_AGENT}/control", api_agents.control_agent),
    ("POST", f"{_AGENT}/interventions", api_agents.intervene),
    ("GET", f"{_AGENT}/activity", api_agents.list_activity),
    ("GET", f"{_AGENT}/runs", api_agents.list_runs),
    ("GET", f"{_AGENT}/journal", api_agents.read_journal),
    ("GET", "/api/targets", api_messages.list_targets),
    ("POST", "/api/targets", api_messages.create_target),
    ("GET", f"{_TARGET}/messages", api_messages.list_messages),
    ("POST", f"{_TARGET}/messages", api_messages.post_message),
    ("GET", _MESSAGE, api_messages.get_message),
    ("POST", f"{_MESSAGE}/agent-delivery", api_messages.mark_urgent),
    ("GET", "/api/deliveries/{delivery}", api_messages.get_delivery),
    ("POST", "/api/deliveries/{delivery}/resolve", api_messages.resolve_delivery),
    ("GET", "/api/approvals", api_approvals.list_approvals),
    ("POST", "/api/approvals/{approval}/decision", api_approvals.decide_approval),
    ("GET", "/api/events", api_service.stream_events),
    ("GET", "/healthz", api_service.healthz),
    ("GET", "/readyz", api_service.readyz),
    ("GET", "/metrics", api_service.metrics),
    ("GET", "/openapi.json", api_service.openapi),
)


def build_app(services: Services, extra: Sequence[BaseRoute] = ()) -> Starlette:
    """Put the routes behind the guard; `extra` are the page's, if there is one."""

    async def link(websocket: WebSocket) -> None:
        # Not left to the handlers below: their answers are HTTP, and this is not.
        try:
            await services.link.serve(websocket)
        except* (Problem, QueueFull, StoreUnwritable, SQLAlchemyError) as group:
            LOG.error("a daemon's link ended: %s", words_of(first_of(group)))
            with suppress(WebSocketDisconnect, RuntimeError):
                await websocket.close(1011, "the server cannot serve now; come back")

    app = Starlette(
        routes=[*http_routes(), WebSocketRoute("/link", link), *extra],
        middleware=[Middleware(Guard, max_body=services.config.max_body)],
        exception_handlers={
            Problem: _problem,
            HTTPException: _http_error,
            QueueFull: _overloaded,
            StoreUnwritable: _unwritable,
            Exception: _crash,
        },
    )
    app.router.redirect_slashes = False
    app.state.services = services
    return app


def http_routes() -> list[Route]:
    """Make one route per path, so that a wrong method is told the right ones."""
    paths: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for method, path, handler in HTTP:
        paths.setdefault(path, {})[method] = handler
    return [
        Route(path, _by_method(handlers), methods=list(handlers))
        for path, handlers in paths.items()
    ]


def _by_method(
    handlers: dict[str, Callable[[Request], Awaitable[Response]]],
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await handlers[method](request)

    return endpoint


async def _problem(_: Request, exc: Exception) -> Response:
    return cast("Problem", exc).response()


async def _http_error(request: Request, exc: Exception) -> Response:
    error = cast("HTTPException", exc)
    path = request.url.path
    match error.status_code:
        case 404:
            detail = f"there is nothing at {path}; /openapi.json lists what there is"
            problem = Problem(404, "not_found", detail)
        case 405:
            allowed = (error.headers or {}).get("Allow", "")
            detail = f"{request.method} is not possible here; use {allowed}"
            problem = Problem(405, "method_not_allowed", detail)
        case status:
            problem = Problem(status, "refused", error.detail)
    return problem.response(error.headers)


async def _overloaded(_: Request, exc: Exception) -> Response:
    return Problem(503, "overloaded", f"{exc}; try again in a moment").response()


async def _unwritable(request: Request, exc: Exception) -> Response:
    return unwritable(request, exc, "nothing was stored").response()


async def _crash(_: Request, exc: Exception) -> Response:
    detail = f"the server failed ({type(exc).__name__}); its log says more"
    return Problem(500, "internal_error", detail).response()
