"""A server's end of the link, in the test: numbers, receipts, and a pair of scissors."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, field
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    WebSocketRequest,
    serve_websocket,
)

from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.frames import (
    NUMBERED,
    VERSION,
    Envelope,
    Frame,
    Hello,
    Refused,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence


@define(eq=False)
class LinkServer:
    """
    Keeps its frames until the daemon's receipt, like the real one.

    `received` is what it counts as durable; `heard` every frame that was new to it,
    in order; `cut_after` makes it drop connections after so many messages.
    """

    name: str = "srv_1"
    received: int = 0
    sent: int = 0
    queue: dict[int, Frame] = field(factory=dict[int, Frame])
    heard: list[Frame] = field(factory=list[Frame])
    hellos: list[Hello] = field(factory=list[Hello])
    acks: list[int] = field(factory=list[int])
    refused: Refused | None = None
    silent: bool = False
    cut_after: random.Random | None = None
    doubles: int = 0
    url: str = ""
    _work: trio.Event = field(factory=trio.Event)
    _news: trio.Event = field(factory=trio.Event)
    _live: list[Frame] = field(factory=list[Frame])
    _sockets: set[WebSocketConnection] = field(factory=set[WebSocketConnection])

    def send(self, frame: Frame) -> None:
        if type(frame) in NUMBERED:
            self.sent += 1
            self.queue[self.sent] = frame
        else:
            self._live.append(frame)
        self._work.set()

    async def until(self, count: int) -> Sequence[Frame]:
        """Wait until so many frames were heard."""
        while len(self.heard) < count:
            await self._news.wait()
        return self.heard

    async def greeted(self, count: int) -> None:
        """Wait until so many connections were made."""
        while len(self.hellos) < count:
            await self._news.wait()

    async def acked(self, number: int) -> None:
        while not self.acks or self.acks[-1] < number:
            await self._news.wait()

    async def cut(self) -> None:
        """Drop every connection the hard way."""
        for socket in tuple(self._sockets):
            await socket._stream.aclose()  # pyright: ignore

    # --- a connection -----------------------------------------------------------------

    async def serve(self, request: WebSocketRequest) -> None:
        socket = await request.accept()
        self._sockets.add(socket)
        try:
            await self._serve(socket)
        except ConnectionClosed:
            pass
        finally:
            self._sockets.discard(socket)

    async def _serve(self, socket: WebSocketConnection) -> None:
        (hello,) = decode_envelope(await socket.get_message()).frames
        assert isinstance(hello, Hello)
        self.hellos.append(hello)
        self._tell()
        if self.refused is not None:
            await self._put(socket, Envelope((self.refused,)))
            await socket.aclose(1008, "refused")
            return
        if self.silent:
            await trio.sleep_forever()
        if hello.server != self.name:
            self.received = 0
        self._acked(hello.received if hello.server == self.name else 0)
        welcome = Welcome(VERSION, self.name, self.received)
        await self._put(socket, Envelope((welcome,), ack=self.received))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, socket)
            await self._read(socket)
            nursery.cancel_scope.cancel()

    async def _read(self, socket: WebSocketConnection) -> None:
        left = self.cut_after.randint(0, 3) if self.cut_after else -1
        while left:
            left -= 1
            try:
                envelope = decode_envelope(await socket.get_message())
            except ConnectionClosed:
                return
            self._take(envelope)
            self._acked(envelope.ack)
            self._work.set()
            self._tell()
        await socket._stream.aclose()  # pyright: ignore

    def _take(self, envelope: Envelope) -> None:
        number = envelope.seq or 0
        for frame in envelope.frames:
            if type(frame) not in NUMBERED:
                self.heard.append(frame)
                continue
            if number > self.received:
                assert number == self.received + 1, "the daemon left a hole"
                self.received = number
                self.heard.append(frame)
            else:
                self.doubles += 1
            number += 1

    def _acked(self, number: int) -> None:
        self.acks.append(number)
        for old in [n for n in self.queue if n <= number]:
            del self.queue[old]

    async def _write(self, socket: WebSocketConnection) -> None:
        sent, told = 0, -1
        while True:
            self._work = trio.Event()
            fresh = [(n, f) for n, f in self.queue.items() if n > sent][:50]
            live, self._live = self._live, []
            if fresh or live or told != self.received:
                told = self.received
                frames = (*live, *(f for _, f in fresh))
                seq = fresh[0][0] if fresh else None
                sent = fresh[-1][0] if fresh else sent
                await self._put(socket, Envelope(frames, seq=seq, ack=told))
            else:
                await self._work.wait()

    async def _put(self, socket: WebSocketConnection, envelope: Envelope) -> None:
        with suppress(ConnectionClosed):
            await socket.send_message(encode_envelope(envelope).decode())

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


@asynccontextmanager
async def open_link_server() -> AsyncGenerator[LinkServer]:
    server = LinkServer()
    async with trio.open_nursery() as nursery:
        serving = partial(
            serve_websocket, server.serve, "127.0.0.1", 0, None, handler_nursery=nursery
        )
        listening = await nursery.start(serving)
        server.url = f"ws://127.0.0.1:{listening.port}/link"
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()
