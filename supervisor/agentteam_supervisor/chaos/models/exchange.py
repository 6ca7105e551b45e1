"""One request of a runtime and its answer, on a connection of their own."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import h11
import trio
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@define
class Exchange:
    stream: trio.SocketStream
    connection: h11.Connection = field(factory=lambda: h11.Connection(h11.SERVER))

    async def receive(self) -> tuple[str, bytes] | None:
        """Read a request: its path, its body; None when there was none."""
        path, body = "", bytearray()
        while True:
            match self.connection.next_event():
                case h11.NEED_DATA:
                    self.connection.receive_data(await self.stream.receive_some())
                case h11.Data(data=data):
                    body += data
                case h11.Request(target=target):
                    path = target.decode()
                case h11.EndOfMessage():
                    return path, bytes(body)
                case _:
                    return None

    async def json(self, status: int, body: dict[str, Any]) -> None:
        await self._begin(status, "content-type", "application/json")
        await self._send(h11.Data(data=json.dumps(body).encode()))
        await self.finish()

    async def nothing(self) -> None:
        await self._begin(200, "content-length", "0")
        await self.finish()

    async def begin_events(self) -> None:
        await self._begin(200, "content-type", "text/event-stream")

    async def data(self, text: str, kind: str = "") -> None:
        event = f"event: {kind}\n" if kind else ""
        await self._send(h11.Data(data=f"{event}data: {text}\n\n".encode()))

    async def finish(self) -> None:
        await self._send(h11.EndOfMessage())

    async def _begin(self, status: int, *header: str) -> None:
        name, value = header
        headers = [(name, value), ("connection", "close")]
        await self._send(h11.Response(status_code=status, headers=headers))

    async def _send(self, event: h11.Event) -> None:
        if data := self.connection.send(event):
            await self.stream.send_all(data)


async def serve_one(
    answer: Callable[[Exchange, str, bytes], Awaitable[None]],
    stream: trio.SocketStream,
) -> None:
    """Answer the one request of a connection."""
    async with stream:
        with contextlib.suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            exchange = Exchange(stream)
            if (asked := await exchange.receive()) is not None:
                await answer(exchange, *asked)
