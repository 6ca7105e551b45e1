"""A thin client of the HTTP contract: sentences for problems, safe retries, events."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Self

import click
import httpx

from agentteam_supervisor.cli.answers import object_of, refused, translated
from agentteam_supervisor.cli.event_stream import EventStream
from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import language, say
from agentteam_supervisor.cli.waiting import answer_awaited, tell_people

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from agentteam_supervisor.cli.json_object import JsonObject
    from agentteam_supervisor.cli.waiting import Tell

# A repeated POST carries the key of the first one, so it cannot act twice.
TRIES = 3
SECONDS = 15.0


NAME = re.compile(r"@?[A-Za-z0-9_-]{1,128}")


def segment(name: str) -> str:
    """Give an id or a name as one part of a path; anything else is wrong usage."""
    if not NAME.fullmatch(name):
        raise click.UsageError(
            say(f"{name!r} is neither a name nor an id", f"{name!r} 不是名称或 ID")
        )
    return name


def agent_path(agent: str) -> str:
    """Give the path of an agent, which may be named as the target that it is."""
    return f"/api/agents/{segment(agent).removeprefix('@')}"


class Client:
    """
    One server, spoken to in turn.

    Every fault is a `CommandFailed`: code 3 when nobody answers, 4 when an answer
    takes too long, 1 with the server's own words when it refuses.
    """

    def __init__(
        self,
        url: str,
        *,
        seconds: float = SECONDS,
        find: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`find` says where the server is now, for a stream that lost it."""
        self._seconds = seconds
        self._find = find
        # Proxies of the environment are for the outside, not for our own server.
        self._http = httpx.Client(
            base_url=url.rstrip("/"),
            timeout=seconds,
            trust_env=False,
            headers={"Accept-Language": language().value},
        )

    @property
    def url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def get(
        self, path: str, *, expected: float = 0, **params: str | float
    ) -> JsonObject:
        """Get an answer that the server may hold back for the `expected` seconds."""
        timeout = httpx.Timeout(self._seconds + expected)
        return self._answer(
            lambda: self._http.get(path, params=params, timeout=timeout),
            expected=expected,
        )

    def post(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        return self._answer(lambda: self._http.post(path, json=body, headers=headers))

    def patch(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        return self._answer(lambda: self._http.patch(path, json=body), tries=1)

    def delete(self, path: str) -> JsonObject:
        return self._answer(lambda: self._http.delete(path), tries=1)

    def at_target(self, target: str, call: Callable[[str], JsonObject]) -> JsonObject:
        """Call with the target's path; `name` and `@name` stand for each other."""
        other = target[1:] if target.startswith("@") else f"@{target}"
        try:
            return call(f"/api/targets/{segment(target)}")
        except CommandFailed as exc:
            if exc.problem.get("status") != 404:
                raise
            refused = exc
        try:
            return call(f"/api/targets/{segment(other)}")
        except CommandFailed as exc:
            missing = exc.problem.get("status") == 404
            known = not missing or "removed" in exc.problem
            raise (exc if known else refused) from None

    def delivery(self, delivery_id: str, wait: float = 0) -> JsonObject:
        """Get a delivery; waits for its terminal state for so many seconds."""
        seconds = min(wait, 60.0)
        return self.get(
            f"/api/deliveries/{segment(delivery_id)}",
            expected=seconds,
            wait=seconds,
        )

    def events(
        self, seconds: float | None = None, tell: Tell = tell_people
    ) -> EventStream:
        """Open the stream of events; it reconnects and resumes by itself."""
        return EventStream(self._http, seconds, self._find, tell)

    def _answer(
        self,
        call: Callable[[], httpx.Response],
        tries: int = TRIES,
        expected: float = 0,
    ) -> JsonObject:
        limit = expected + self._seconds
        with translated(self.url), answer_awaited(self.url, limit, expected):
            response = _tried(call, tries)
        if response.is_success:
            return object_of(response)
        raise refused(response)


def _tried(call: Callable[[], httpx.Response], tries: int) -> httpx.Response:
    for left in reversed(range(tries)):
        try:
            return call()
        except (httpx.ConnectError, httpx.TimeoutException):
            raise
        except httpx.TransportError:
            # The connection broke under the request: it may have acted, or not.
            if not left:
                raise
    raise AssertionError("unreachable: the last try raises")
