"""What watchers are told: the stored events as they come, and live progress."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson
import trio
from attrs import define, field

from agentteam_protocol.activity import Language
from agentteam_supervisor.server import events
from agentteam_supervisor.server.activity import localise
from agentteam_supervisor.server.pulse import Pulse

if TYPE_CHECKING:
    from agentteam_supervisor.server.store import Store

# Watchers that are further behind read from the store instead of from memory.
RING = 2048
RING_BYTES = 16 * 1024 * 1024
PAGE = 100
LIVE = 256


@define(eq=False)
class Entry:
    """An event, and its JSON in each language once somebody wanted it."""

    seq: int
    kind: str
    data: Any
    _texts: dict[Language, bytes] = field(factory=dict[Language, bytes])

    def text(self, language: Language) -> bytes:
        if language not in self._texts:
            self._texts[language] = orjson.dumps(localise(self.data, language))
        return self._texts[language]


@define(eq=False)
class Watcher:
    """One subscriber: its own live lines, of which it loses the oldest if slow."""

    live: deque[Entry] = field(factory=lambda: deque[Entry](maxlen=LIVE))


class Feed:
    """
    Follows the store's events and lets any number of watchers follow it.

    A watcher has a cursor and nothing else, so a slow one costs no memory and holds
    nobody up.
    """

    def __init__(self, store: Store) -> None:
        self.head = 0
        self.moved = Pulse()  # anything, live lines too
        self.stored = Pulse()  # stored events alone
        self.closing = False
        self._store = store
        self._ring: list[Entry] = []
        self._bytes = 0
        self._watchers: set[Watcher] = set()

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow the store until cancelled."""
        _, self.head = await self._store.read(events.bounds)
        task_status.started()
        while True:
            ticket = self._store.moved["events"].ticket()
            fresh = self._fresh()
            if fresh is None:
                fresh = await self._read(self.head, PAGE)
            if not fresh:
                await ticket.wait()
                continue
            self._keep(fresh)
            self.head = fresh[-1].seq
            self.stored.beat()
            self.moved.beat()

    def watch(self) -> Watcher:
        watcher = Watcher()
        self._watchers.add(watcher)
        return watcher

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def tell_live(self, kind: str, data: Any) -> None:
        """Tell who watches now; nothing is kept."""
        if not self._watchers:
            return
        entry = Entry(0, kind, data)
        for watcher in self._watchers:
            watcher.live.append(entry)
        self.moved.beat()

    def close(self) -> None:
        """Let every watcher end by itself."""
        self.closing = True
        self.stored.beat()
        self.moved.beat()

    async def after(self, seq: int) -> list[Entry]:
        """List what follows `seq`, from memory if it is there, else from the store."""
        if seq >= self.head:
            return []
        if self._ring and self._ring[0].seq <= seq + 1:
            start = bisect_right(self._ring, seq, key=attrgetter("seq"))
            return self._ring[start : start + PAGE]
        return await self._read(seq, PAGE)

    async def bounds(self) -> tuple[int, int]:
        return await self._store.read(events.bounds)

    def _keep(self, fresh: list[Entry]) -> None:
        self._ring.extend(fresh)
        self._bytes += sum(map(_weight, fresh))
        while len(self._ring) > 2 * RING or self._bytes > RING_BYTES:
            dropped = self._ring[: len(self._ring) // 2 + 1]
            del self._ring[: len(dropped)]
            self._bytes -= sum(map(_weight, dropped))

    def _fresh(self) -> list[Entry] | None:
        """Take what this process has just committed: no second look at the disk."""
        told = self._store.told_after(self.head)
        if told is None:
            return None
        return [Entry(one.seq, one.kind, orjson.loads(one.data)) for one in told]

    async def _read(self, seq: int, limit: int) -> list[Entry]:
        rows = await self._store.read(lambda tx: events.after(tx, seq, limit))
        return [Entry(row["seq"], row["kind"], row["data"]) for row in rows]


def _weight(entry: Entry) -> int:
    """Estimate what an entry costs: bodies are the only large thing."""
    return 1000 + len(entry.data.get("body", ""))
