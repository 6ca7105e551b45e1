"""Server-sent events of `/api/events`: parsed, resumed, bounded in time."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

import httpx
from attrs import frozen

from agentteam_supervisor.cli.answers import (
    not_ours,
    refused,
    too_slow,
    translated,
)
from agentteam_supervisor.cli.failure import CommandFailed, ExitCode
from agentteam_supervisor.cli.json_object import as_object
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.waiting import Line, Tell, answer_awaited, tell_people

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

# A server that runs writes at least a comment every 15 s; else the line is dead.
SILENCE = 20.0
# How long the position may take that begins every stream.
FIRST = 15.0
# Between two attempts, growing to the longest.
PAUSE = 0.2
LONGEST_PAUSE = 2.0
# How long who waits for something (not who watches) looks for a server that is away.
AWAY = 15.0


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
    caused inside it can be missed. A line that breaks or falls silent is opened again
    and goes on where it was. `seconds` bounds the whole; it ends with exit code 4, or
    3 when the server has gone away. Without a bound it goes on for ever.
    `find` says where the server is now: one that was started again may have moved.
    """

    def __init__(
        self,
        http: httpx.Client,
        seconds: float | None = None,
        find: Callable[[], str | None] = lambda: None,
        tell: Tell = tell_people,
    ) -> None:
        self._http = http
        self._find = find
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._line = Line(tell)
        self._away_since: float | None = None
        self._last_id = ""
        self._stack = ExitStack()
        self._events: Iterator[Event] | None = None

    @property
    def url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    def __enter__(self) -> Self:
        try:
            with translated(self.url), answer_awaited(self.url, self._first()):
                self._connect()
        except BaseException:
            self._drop()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._drop()

    def __iter__(self) -> Iterator[Event]:
        pause = 0.0
        while True:
            away = False
            try:
                if self._events is None:
                    self._connect()
                for event in self._events or ():
                    pause = 0.0
                    self._last_id = event.id or self._last_id
                    if event.name:
                        yield event
            except httpx.TransportError as exc:
                away = isinstance(exc, httpx.ConnectError)
            self._drop()
            self._failed(away)
            pause = min(pause + PAUSE, LONGEST_PAUSE)
            time.sleep(pause)

    def _failed(self, away: bool) -> None:
        self._check_time()
        self._line.failed(self.url)
        now = time.monotonic()
        self._away_since = (self._away_since or now) if away else None
        bounded = self._deadline is not None
        if bounded and self._away_since and now - self._away_since >= AWAY:
            raise CommandFailed(_lost(self.url), ExitCode.unreachable)

    def _connect(self) -> None:
        if self._last_id and (url := self._find()):
            self._http.base_url = httpx.URL(url)
        headers = {"Accept": "text/event-stream"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        timeout = httpx.Timeout(self._first(), read=self._patience())
        response = self._stack.enter_context(
            self._http.stream("GET", "/api/events", headers=headers, timeout=timeout)
        )
        if response.status_code >= 500:
            # It is going down, or cannot read its store: one that comes back can.
            raise httpx.RemoteProtocolError(f"HTTP {response.status_code}")
        if not response.is_success:
            response.read()
            raise refused(response)
        events = parse_events(self._lines(response))
        first = next(events, None)
        if first is None:
            raise CommandFailed(not_ours(str(response.url)))
        self._last_id = first.id or self._last_id
        self._events = chain((first,), events)

    def _lines(self, response: httpx.Response) -> Iterator[str]:
        for line in response.iter_lines():
            self._line.heard(self.url)
            self._check_time()  # also on the comments that keep the line alive
            yield line

    def _drop(self) -> None:
        self._stack.close()
        self._events = None

    def _first(self) -> float:
        return FIRST if self._deadline is None else min(FIRST, self._left())

    def _patience(self) -> float:
        return SILENCE if self._deadline is None else min(SILENCE, self._left())

    def _left(self) -> float:
        return max(0.05, (self._deadline or 0) - time.monotonic())

    def _check_time(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            if self._line.down:
                raise too_slow(self.url)
            raise CommandFailed(_timed_out(), ExitCode.timeout)


def _lost(url: str) -> str:
    return say(
        f"lost the server at {url}; what it accepted is kept: start it again with"
        " `agentteam up`, then look with `agentteam status`",
        f"与 {url} 的连接已断开；已接受的内容会保留：请重新运行 `agentteam up`，"
        "再用 `agentteam status` 查看",
    )


def _timed_out() -> str:
    return say(
        "the time is up and it has not ended; ask again with `agentteam status`",
        "等待超时，尚未结束；请用 `agentteam status` 再查看",
    )
