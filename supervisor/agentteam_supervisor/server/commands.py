"""From a request to a transaction and back: what every route shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson
import trio
from attrs import frozen
from starlette.responses import Response

from agentteam_supervisor.server.activity import language_of, localise
from agentteam_supervisor.server.config import ServerConfig
from agentteam_supervisor.server.disk import what_is_wrong
from agentteam_supervisor.server.feed import Feed
from agentteam_supervisor.server.http import Connections
from agentteam_supervisor.server.idempotency import Reply, make_key, once
from agentteam_supervisor.server.link import Link
from agentteam_supervisor.server.problems import Problem
from agentteam_supervisor.server.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from agentteam_protocol.activity import Language
    from agentteam_supervisor.server.bodies import Fields
    from agentteam_supervisor.server.transaction import Tx


@frozen
class Services:
    """What the routes work with; one per running server."""

    config: ServerConfig
    store: Store
    feed: Feed
    link: Link
    sockets: Connections


def services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


def language(request: Request) -> Language:
    """Follow `lang`, which an event stream can set, or else what the browser prefers."""
    preferred = request.headers.get("accept-language", "")
    return language_of(request.query_params.get("lang", preferred))


def respond(request: Request, reply: Reply) -> Response:
    """Make the answer, its texts in the client's language."""
    if reply.body is None:
        return Response(status_code=reply.status)
    body = orjson.dumps(localise(reply.body, language(request)))
    return Response(body, reply.status, media_type="application/json")


def unwritable(request: Request, exc: Exception, so: str) -> Problem:
    """Say what is wrong with the disk, what came of it, and what to do."""
    problem, todo = what_is_wrong(services(request).config.state_dir, str(exc))
    return Problem(507, "store_unwritable", f"{problem}; {so}: {todo}")


async def commit(
    request: Request, fields: Fields, command: Callable[[Tx], Reply]
) -> Response:
    """Run a command in one transaction, once per Idempotency-Key if there is one."""
    store = services(request).store
    header = request.headers.get("idempotency-key")
    if header is None:
        return respond(request, await store.write(command))
    key = make_key(request.method, request.url.path, header, fields.data)
    return respond(request, await store.write(lambda tx: once(tx, key, command)))


async def look(request: Request, view: Callable[[Tx], Any]) -> Response:
    """Answer with a view of one snapshot."""
    body = await services(request).store.read(view)
    return respond(request, Reply(200, body))


async def look_until(
    request: Request, seconds: float, view: Callable[[Tx], tuple[bool, Any]]
) -> Response:
    """
    Answer with a view as soon as it is final, or as it is when the time is up.

    Ends early when the server is going down.
    """
    store, feed = services(request).store, services(request).feed
    final, body = await store.read(view)
    with trio.move_on_after(seconds):
        while not final and seconds and not feed.closing:
            ticket = feed.stored.ticket()
            final, body = await store.read(view)
            if not final:
                await ticket.wait()
    return respond(request, Reply(200, body))
