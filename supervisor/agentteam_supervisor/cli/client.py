"""A thin client of the HTTP contract: sentences for problems, safe retries, events."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Self

import click
import httpx

from agentteam_supervisor.cli.event_stream import EventStream
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import JsonObject, as_object
from agentteam_supervisor.cli.speech import language, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

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

    def __init__(self, url: str, *, seconds: float = SECONDS) -> None:
        self.url = url.rstrip("/")
        # Proxies of the environment are for the outside, not for our own server.
        self._http = httpx.Client(
            base_url=self.url,
            timeout=seconds,
            trust_env=False,
            headers={"Accept-Language": language().value},
        )

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
        self, path: str, *, seconds: float | None = None, **params: str | float
    ) -> JsonObject:
        timeout = (
            httpx.USE_CLIENT_DEFAULT if seconds is None else httpx.Timeout(seconds)
        )
        return self._answer(
            lambda: self._http.get(path, params=params, timeout=timeout)
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
            raise (refused if missing else exc) from None

    def delivery(self, delivery_id: str, wait: float = 0) -> JsonObject:
        """Get a delivery; waits for its terminal state for so many seconds."""
        seconds = min(wait, 60.0)
        return self.get(
            f"/api/deliveries/{segment(delivery_id)}",
            seconds=seconds + SECONDS,
            wait=seconds,
        )

    def events(self, seconds: float | None = None) -> EventStream:
        """Open the stream of events; it reconnects and resumes by itself."""
        return EventStream(self._http, self.url, seconds)

    def _answer(
        self, call: Callable[[], httpx.Response], tries: int = TRIES
    ) -> JsonObject:
        response = self._tried(call, tries)
        if response.is_success:
            return _object(response)
        raise refused(response)

    def _tried(self, call: Callable[[], httpx.Response], tries: int) -> httpx.Response:
        for left in reversed(range(tries)):
            try:
                return call()
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                raise unreachable(self.url) from exc
            except httpx.TimeoutException as exc:
                raise _too_slow(self.url) from exc
            except httpx.TransportError as exc:
                # The connection broke under the request: it may have acted, or not.
                if not left:
                    raise unreachable(self.url) from exc
        raise AssertionError("unreachable: the last try raises")


def _object(response: httpx.Response) -> JsonObject:
    if not response.content:
        return {}
    try:
        body = as_object(response.json())
    except ValueError:
        body = None
    if body is None:
        raise CommandFailed(_not_ours(str(response.url)))
    return body


def refused(response: httpx.Response) -> CommandFailed:
    """Make a failure of a problem document; its `detail` is made for people."""
    try:
        problem = as_object(json.loads(response.content))
    except ValueError:
        problem = None
    if problem is None:
        problem = {"detail": f"HTTP {response.status_code} {response.reason_phrase}"}
    problem = {**problem, "status": response.status_code}
    detail = problem.get("detail") or problem.get("title") or problem.get("type")
    return CommandFailed(str(detail), ExitCode.failed, problem)


def unreachable(url: str) -> CommandFailed:
    return CommandFailed(
        say(
            f"no server answers at {url}; start one with `agentteam up`",
            f"{url} 没有服务应答；请先运行 `agentteam up`",
        ),
        ExitCode.unreachable,
    )


def _too_slow(url: str) -> CommandFailed:
    return CommandFailed(
        say(
            f"the server at {url} took too long to answer; see `agentteam doctor`",
            f"{url} 的服务应答超时；请查看 `agentteam doctor`",
        ),
        ExitCode.timeout,
    )


def _not_ours(url: str) -> str:
    return say(
        f"{url} does not speak our protocol; check --url or the port",
        f"{url} 不是 AgentTeam 服务；请检查 --url 或端口",
    )
