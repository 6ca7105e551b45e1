"""
Routes of targets, messages and deliveries.

`mark_urgent` is the one place in the whole system where an interrupt policy enters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_protocol.control import Resolution
from agentteam_protocol.delivery import (
    TERMINAL,
    Author,
    AuthorKind,
    DeliveryState,
    InterruptPolicy,
)
from agentteam_supervisor.server import (
    agents,
    deliveries,
    messages,
    resolutions,
    targets,
)
from agentteam_supervisor.server.bodies import (
    page,
    read_body,
    search_words,
    wait_seconds,
)
from agentteam_supervisor.server.commands import commit, look, look_until
from agentteam_supervisor.server.idempotency import Reply
from agentteam_supervisor.server.problems import invalid

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from agentteam_supervisor.server.transaction import Tx


async def create_target(request: Request) -> Response:
    fields = await read_body(request, "name", "agents")
    name = targets.check_name(fields.text("name"))
    refs = fields.texts("agents")

    def create(tx: Tx) -> Reply:
        members = {a["id"]: a for a in (agents.find(tx, ref) for ref in refs)}
        targets.check_free(tx, name)
        target = targets.create(tx, name)
        for member in members:
            targets.join(tx, target, member)
        for member in members:
            agents.regrant(tx, member)
        return Reply(201, targets.view(tx, target))

    return await commit(request, fields, create)


async def list_targets(request: Request) -> Response:
    after, limit = page(request)
    return await look(
        request, lambda tx: {"targets": targets.listing(tx, after, limit)}
    )


async def post_message(request: Request) -> Response:
    """Send an ordinary message: it never carries a policy (R7)."""
    fields = await read_body(request, "body", "author", "interruptPolicy")
    if "interruptPolicy" in fields.data:
        detail = (
            "an ordinary message carries no 'interruptPolicy'; send it, then mark it"
            " urgent with POST /api/messages/{id}/agent-delivery"
        )
        raise invalid("policy_not_allowed", detail)
    ref = request.path_params["target"]
    body = fields.message("body")
    author = Author(AuthorKind.user, fields.line("author", "user"))

    def post(tx: Tx) -> Reply:
        return Reply(201, messages.post(tx, targets.find(tx, ref), body, author))

    return await commit(request, fields, post)


async def list_messages(request: Request) -> Response:
    after, limit = page(request)
    words = search_words(request)
    ref = request.path_params["target"]

    def view(tx: Tx) -> Any:
        target = targets.find(tx, ref)
        if words is None:
            rows = messages.after(tx, target["id"], after, limit)
        else:
            rows = messages.containing(tx, target["id"], words, limit)
        return {
            "messages": [messages.view(tx, row) for row in rows],
            "head": target["head"],
        }

    return await look(request, view)


async def get_message(request: Request) -> Response:
    ref = request.path_params["message"]
    return await look(request, lambda tx: messages.view(tx, messages.find(tx, ref)))


async def mark_urgent(request: Request) -> Response:
    """Mark a message that was sent before as urgent for one agent (R1, R2)."""
    fields = await read_body(request, "interruptPolicy", "agentId")
    policy = fields.choice("interruptPolicy", InterruptPolicy, "unknown_policy", None)
    ref = request.path_params["message"]
    named = fields.optional("agentId")

    def mark(tx: Tx) -> Reply:
        message = messages.find(tx, ref)
        agent = messages.choose(tx, message, named)
        before = deliveries.read_before(tx, message["id"], agent["id"])
        delivery, made = messages.mark_urgent(tx, message, agent, policy)
        told = {"made": made, "readBefore": before}
        return Reply(202, deliveries.view(delivery) | told)

    return await commit(request, fields, mark)


async def get_delivery(request: Request) -> Response:
    """Show a delivery; with `wait`, once it has come to an end."""
    ref = request.path_params["delivery"]

    def view(tx: Tx) -> tuple[bool, Any]:
        row = deliveries.find(tx, ref)
        return DeliveryState(row["state"]) in TERMINAL, deliveries.view(row)

    return await look_until(request, wait_seconds(request), view)


async def resolve_delivery(request: Request) -> Response:
    """202: only the daemon knows whether a withdrawal came in time; it will say."""
    fields = await read_body(request, "as")
    resolution = fields.choice("as", Resolution, "unknown_resolution", None)
    ref = request.path_params["delivery"]

    def resolve(tx: Tx) -> Reply:
        row = resolutions.resolve(tx, deliveries.find(tx, ref), resolution)
        dismissed = resolution is Resolution.dismiss
        asked = dismissed and resolutions.on_its_way(row)
        return Reply(202 if asked else 200, deliveries.view(row))

    return await commit(request, fields, resolve)
