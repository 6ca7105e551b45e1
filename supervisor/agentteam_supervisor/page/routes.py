"""Routes of the page: its files, and messages of agents as HTML."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from agentteam_supervisor.page.markdown import render
from agentteam_supervisor.page.timeline import draw_run
from agentteam_supervisor.server import agents, messages
from agentteam_supervisor.server.bodies import MAX_LIMIT
from agentteam_supervisor.server.commands import language, services
from agentteam_supervisor.server.problems import unknown

if TYPE_CHECKING:
    from starlette.requests import Request

# Nothing of any other host is ever loaded, and no markup can bring a script along:
# only `trusted.js` may make markup, out of what `markdown.render` has cleaned.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types rendered",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "private, max-age=31536000, immutable"


def page_routes() -> list[Route]:
    """Make a route per file: what is not listed in the package cannot be asked for."""
    static = files("agentteam_supervisor.page") / "static"
    routes = [
        Route("/page/messages/{message}", _message, methods=["GET"]),
        Route("/page/runtimes", _runtimes, methods=["GET"]),
        Route("/page/agents/{agent}/runs/{run}.svg", _timeline, methods=["GET"]),
    ]
    for file in sorted(static.iterdir(), key=lambda f: f.name):
        kind = KINDS["." + file.name.rpartition(".")[2]]
        headers = {**HEADERS, "content-type": kind, "cache-control": "no-cache"}
        path = "/" if file.name == "index.html" else f"/page/{file.name}"
        routes.append(Route(path, Response(file.read_bytes(), headers=headers)))
    return routes


async def _message(request: Request) -> Response:
    """Render what an agent said; a message never changes, so it is rendered once."""
    ref = request.path_params["message"]
    row = await services(request).store.read(lambda tx: messages.find(tx, ref))
    headers = {**HEADERS, "cache-control": FOREVER}
    return HTMLResponse(render(row["body"]), headers=headers)


async def _runtimes(request: Request) -> Response:
    """List what the daemon can run agents on."""
    names = await services(request).store.read(agents.runtimes)
    return JSONResponse({"runtimes": names}, headers=HEADERS)


async def _timeline(request: Request) -> Response:
    """Draw a run; the daemon has the journal, and is asked for all of it."""
    served, ref = services(request), request.path_params["agent"]
    agent = await served.store.read(lambda tx: agents.find(tx, ref)["id"])
    entries: list[dict[str, Any]] = []
    while True:
        after = entries[-1]["seq"] if entries else 0
        asked = {"after": after, "limit": MAX_LIMIT}
        answer = await served.link.ask(agent, "journal", asked)
        found: list[dict[str, Any]] = answer.body.get("events", [])
        entries += found
        if len(found) < MAX_LIMIT:
            break
    run = request.path_params["run"]
    picture = draw_run(entries, run, language(request))
    if picture is None:
        raise unknown("run", run)
    headers = {**HEADERS, "cache-control": "no-cache"}
    return Response(picture, headers=headers, media_type="image/svg+xml")
