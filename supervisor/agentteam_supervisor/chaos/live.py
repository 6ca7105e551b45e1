"""Watches the event stream throughout, over every restart, as a page would."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import trio
from attrs import define, field

from agentteam_supervisor.chaos.observations import Shown

SETTLE = 0.01


@define(eq=False)
class Live:
    """
    What was shown, in order; `ended` has the time by `clock` at which a run ended.

    `seen` has the number of the last stored line of each agent's activity; `news` is
    set by the next thing that is stored and shown.
    `cursor` resumes where the last connection broke off, so nothing comes twice.
    """

    url: Callable[[], str | None]
    shown: list[Shown] = field(factory=list[Shown])
    ended: dict[str, float] = field(factory=dict[str, float])
    clock: Callable[[], float] = trio.current_time
    cursor: str = ""
    seen: dict[str, int] = field(factory=dict[str, int])
    news: trio.Event = field(factory=trio.Event)

    async def after(self, news: trio.Event, within: float) -> None:
        """Wait until these news have come, or until then."""
        with trio.move_on_after(within):
            await news.wait()
            # What belongs together comes together.
            await trio.sleep(SETTLE)

    async def has(self, agent: str, line: int) -> None:
        """Wait until this line of an agent's activity has come."""
        while self.seen.get(agent, 0) < line:
            await self.news.wait()

    def forget_all(self) -> None:
        self.cursor = ""
        self.shown.clear()
        self.seen.clear()

    async def run(self) -> None:
        async with httpx.AsyncClient(
            timeout=None, trust_env=False, verify=False
        ) as client:
            while True:
                if (url := self.url()) is not None:
                    with contextlib.suppress(httpx.HTTPError):
                        await self._listen(client, url)
                await trio.sleep(0.05)

    async def _listen(self, client: httpx.AsyncClient, url: str) -> None:
        headers = {"Last-Event-ID": self.cursor} if self.cursor else {}
        kind, identity = "", ""
        async with client.stream("GET", f"{url}/api/events", headers=headers) as answer:
            async for line in answer.aiter_lines():
                name, _, value = line.partition(": ")
                match name:
                    case "id":
                        identity = value
                    case "event":
                        kind = value
                    case "data":
                        self._take(kind, json.loads(value))
                    case "":
                        self.cursor, kind = identity or self.cursor, ""
                    case _:
                        pass

    def _take(self, kind: str, data: dict[str, Any]) -> None:
        if kind != "activity":
            self._tell()
            return
        generation = data.get("generation")
        shown = Shown(
            agent=data["agentId"],
            kind=data["kind"],
            run=data.get("runId"),
            generation=None if generation is None else tuple(generation),
            text=str(data.get("text", ""))[:60],
        )
        self.shown.append(shown)
        if shown.kind == "run_ended" and shown.run is not None:
            self.ended.setdefault(shown.run, self.clock())
        if (line := data.get("seq")) is not None:
            self.seen[shown.agent] = line
            self._tell()

    def _tell(self) -> None:
        self.news.set()
        self.news = trio.Event()
