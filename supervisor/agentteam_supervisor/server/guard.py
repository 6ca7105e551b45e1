"""
Who may talk to a server on loopback: not a web page in somebody's browser.

Checked before any route, for HTTP and WebSocket alike: `Host` must be one of our own
names (a foreign name that resolves to us is a rebinding attack), `Origin`, if there
is one, must be this very server, bodies are JSON and bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_supervisor.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
WITH_BODY = frozenset({"POST", "PATCH", "PUT"})

# A refused body is read up to here; beyond it the connection just ends.
DRAINED = 8 * 1024 * 1024


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self._app = app
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except Problem as problem:
            await _refuse(problem, scope, receive, send)
            return
        if scope["type"] == "http":
            receive = _Bounded(receive, self._max_body)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        hosts = _header(scope, b"host")
        check_host(hosts)
        check_origin(_header(scope, b"origin"), hosts[0])
        if scope["type"] == "http" and scope["method"] in WITH_BODY:
            check_content_type(_header(scope, b"content-type"))
            check_length(_header(scope, b"content-length"), self._max_body)


def check_host(hosts: Sequence[str]) -> None:
    """Refuse every name that is not loopback's."""
    if len(hosts) == 1 and _hostname(hosts[0]) in LOOPBACK:
        return
    detail = "this server answers only as 127.0.0.1, localhost or [::1]"
    raise Problem(403, "foreign_host", detail)


def check_origin(origins: Sequence[str], host: str) -> None:
    """Refuse requests that a page of another site made."""
    if not origins or origins == [f"http://{host}"]:
        return
    detail = "a web page of another origin may not use this server"
    raise Problem(403, "foreign_origin", detail)


def check_content_type(values: Sequence[str]) -> None:
    kinds = [value.partition(";")[0].strip().lower() for value in values]
    if kinds != ["application/json"]:
        detail = "send JSON with `Content-Type: application/json`"
        raise Problem(415, "unsupported_media_type", detail)


def check_length(values: Sequence[str], bound: int) -> None:
    if any(not value.isdigit() or int(value) > bound for value in values):
        raise _too_large(bound)


class _Bounded:
    """Counts a body that did not say its length."""

    def __init__(self, receive: Receive, bound: int) -> None:
        self._receive = receive
        self._bound = bound
        self._read = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        if self._read > self._bound:
            raise _too_large(self._bound)
        return message


def _too_large(bound: int) -> Problem:
    detail = f"a body may have at most {bound} bytes; send less"
    return Problem(413, "body_too_large", detail)


def _hostname(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if colon and port.isdigit():
        return name.lower()
    return host.lower()


def _header(scope: Scope, name: bytes) -> list[str]:
    return [v.decode("latin-1") for k, v in scope["headers"] if k.lower() == name]


async def _refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _drain(receive)
        await problem.response()(scope, receive, send)
        return
    # Not accepted: the peer's handshake is answered with 403.
    await receive()
    await send({"type": "websocket.close", "code": 1008, "reason": problem.slug})


async def _drain(receive: Receive) -> None:
    """Read what the client is still sending, or it may never read the answer."""
    read, more = 0, True
    while more and read < DRAINED:
        message = await receive()
        read += len(message.get("body", b""))
        more = message.get("more_body", False)
