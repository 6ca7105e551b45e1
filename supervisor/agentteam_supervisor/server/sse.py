"""
Server-sent events: resume by `Last-Event-ID`, and gaps that are said.

| cursor | answer |
|---|---|
| none | the position, then what follows |
| within what the store holds | the exact rest |
| older | `gap` naming the range, then the rest that is there |
| newer, unreadable or of another store | `gap`, then what follows |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import trio
from attrs import frozen
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Message, Receive, Scope, Send

    from agentteam_protocol.activity import Language
    from agentteam_supervisor.server.feed import Entry, Feed, Watcher

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
]


@frozen
class Gap:
    """What is missing: from `start` to `end`, or all before `end` if unknown."""

    start: int | None
    end: int
    reason: str


def parse_cursor(text: str, store_id: str) -> int | None:
    """Read `storeId.seq`; None if it is not of this store."""
    store, _, number = text.strip().rpartition(".")
    if store != store_id or not number.isascii() or not number.isdigit():
        return None
    return int(number[:18])


def place(cursor: int | None, oldest: int, newest: int) -> tuple[int, Gap | None]:
    """Find where to go on from, and what cannot be given any more."""
    if cursor is None:
        reason = "the position is not of this server's store"
        return newest, Gap(None, newest, reason)
    if cursor > newest:
        reason = "the position is newer than anything this server stored"
        return newest, Gap(None, newest, reason)
    if oldest and cursor < oldest - 1:
        reason = "the server no longer holds these events"
        return oldest - 1, Gap(cursor + 1, oldest - 1, reason)
    return cursor, None


class EventStream(Response):
    """
    One watcher's connection.

    `cut` breaks the connection; it is called when the watcher has left its socket
    full for `stall` seconds, since a send that is under way cannot be cancelled.
    """

    def __init__(
        self,
        feed: Feed,
        store_id: str,
        last_event_id: str | None,
        language: Language,
        cut: Callable[[], None],
        stall: float,
        keepalive: float,
    ) -> None:
        super().__init__()
        self._feed = feed
        self._store_id = store_id
        self._last_event_id = last_event_id
        self._language = language
        self._cut = cut
        self._stall = stall
        self._keepalive = keepalive
        self._sending_since: float | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = self._feed.watch()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                nursery.start_soon(self._watch_stall)
                await self._follow(watcher, send)
                nursery.cancel_scope.cancel()
        finally:
            self._feed.unwatch(watcher)

    async def _follow(self, watcher: Watcher, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        cursor, first = await self._begin()
        await self._write(send, first)
        while not self._feed.closing:
            ticket = self._feed.moved.ticket()
            entries = await self._feed.after(cursor)
            missed = self._missed(cursor, entries)
            live = [watcher.live.popleft() for _ in range(len(watcher.live))]
            # Text first: what is stored may say that its run has been stopped.
            chunk = missed + b"".join(self._block(e) for e in [*live, *entries])
            cursor = entries[-1].seq if entries else cursor
            if chunk:
                await self._write(send, chunk)
                continue
            with trio.move_on_after(self._keepalive) as waited:
                await ticket.wait()
            if waited.cancelled_caught:
                await self._write(send, b": still here\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> tuple[int, bytes]:
        """Tell the position; an id without data moves the client's cursor silently."""
        oldest, newest = await self._feed.bounds()
        cursor, gap = newest, None
        if self._last_event_id is not None:
            known = parse_cursor(self._last_event_id, self._store_id)
            cursor, gap = place(known, oldest, newest)
        if gap is not None:
            return cursor, self._gap(gap)
        return cursor, f"id: {self._store_id}.{cursor}\n\n".encode()

    def _missed(self, cursor: int, entries: list[Entry]) -> bytes:
        """Say it when the store dropped events while this watcher was slow."""
        if not entries or entries[0].seq == cursor + 1:
            return b""
        reason = "this watcher was too slow"
        return self._gap(Gap(cursor + 1, entries[0].seq - 1, reason))

    def _gap(self, gap: Gap) -> bytes:
        data = orjson.dumps({"from": gap.start, "to": gap.end, "reason": gap.reason})
        return b"id: %s.%d\nevent: gap\ndata: %s\n\n" % (
            self._store_id.encode(),
            gap.end,
            data,
        )

    def _block(self, entry: Entry) -> bytes:
        identity = f"id: {self._store_id}.{entry.seq}\n" if entry.seq else ""
        head = f"{identity}event: {entry.kind}\ndata: ".encode()
        return head + entry.text(self._language) + b"\n\n"

    async def _write(self, send: Send, chunk: bytes) -> None:
        self._sending_since = trio.current_time()
        message: Message = {
            "type": "http.response.body",
            "body": chunk,
            "more_body": True,
        }
        await send(message)
        self._sending_since = None

    async def _watch_stall(self) -> None:
        while True:
            await trio.sleep(self._stall / 2)
            since = self._sending_since
            if since is not None and trio.current_time() - since > self._stall:
                self._cut()
                return


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
