"""Server-sent events of `/api/events`: parsed, resumed, bounded in time."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import httpx
from attrs import frozen

from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import as_object
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

# A server that runs writes at least a comment this often; else the line is dead.
SILENCE = 60.0
RECONNECTS = 5
PAUSE = 0.2


@frozen
class Event:
    """`id` is empty for what is live only; `name` for what only tells the position."""

    name: str
    data: dict[str, Any]
    id: str = ""


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Read the lines of a stream into events; what is not JSON is skipped."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if not line:
            if event := _event(fields):
                yield event
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))


def _event(fields: dict[str, list[str]]) -> Event | None:
    identity = fields.get("id", [""])[-1]
    if "data" not in fields:
        return Event("", {}, identity) if identity else None
    try:
        data = as_object(json.loads("\n".join(fields["data"])))
    except ValueError:
        data = None
    if data is None:
        return None
    return Event(fields.get("event", ["message"])[-1], data, identity)


class EventStream:
    """
    Events from now on.

    The server has told its position when the block is entered, so nothing that is
    caused inside it can be missed. `seconds` bounds the whole; it ends with exit code 4.
    """

    def __init__(
        self, http: httpx.Client, url: str, seconds: float | None = None
    ) -> None:
        self._http = http
        self._url = url
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._last_id = ""
        self._stack = ExitStack()
        self._events: Iterator[Event] | None = None

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __iter__(self) -> Iterator[Event]:
        failures = 0
        while failures < RECONNECTS:
            try:
                if self._events is None:
                    self._connect()
                for event in self._events or ():
                    self._last_id = event.id or self._last_id
                    failures = 0
                    if event.name:
                        yield event
            except httpx.TransportError:
                pass
            self._check_time()
            self._drop()
            failures += 1
            time.sleep(PAUSE * failures)
        raise self._lost()

    def _connect(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        timeout = httpx.Timeout(15.0, read=self._patience())
        try:
            response = self._stack.enter_context(
                self._http.stream(
                    "GET", "/api/events", headers=headers, timeout=timeout
                )
            )
        except httpx.ConnectError as exc:
            raise self._lost() from exc
        if not response.is_success:
            response.read()
            raise CommandFailed(f"HTTP {response.status_code}: {response.text}")
        events = parse_events(self._lines(response))
        first = next(events, Event("", {}))
        self._events = chain((first,), events)

    def _lines(self, response: httpx.Response) -> Iterator[str]:
        for line in response.iter_lines():
            self._check_time()  # also on the comments that keep the line alive
            yield line

    def _drop(self) -> None:
        self._stack.close()
        self._events = None

    def _patience(self) -> float:
        if self._deadline is None:
            return SILENCE
        return max(0.05, min(SILENCE, self._deadline - time.monotonic()))

    def _check_time(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise CommandFailed(_timed_out(), ExitCode.timeout)

    def _lost(self) -> CommandFailed:
        return CommandFailed(
            say(
                f"lost the server at {self._url}; start one with `agentteam up`",
                f"与 {self._url} 的连接已断开；请运行 `agentteam up`",
            ),
            ExitCode.unreachable,
        )


def _timed_out() -> str:
    return say(
        "the time is up and it has not ended; ask again with `agentteam status`",
        "等待超时，尚未结束；请用 `agentteam status` 再查看",
    )
