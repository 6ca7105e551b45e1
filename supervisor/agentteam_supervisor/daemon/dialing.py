"""How the daemon reaches its server: the dialing, the upgrade, the pauses between."""

from __future__ import annotations

import random
import ssl
from urllib.parse import urlsplit

import trio
from attrs import frozen
from trio_websocket import WebSocketConnection, wrap_client_stream

Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@frozen
class LinkLimits:
    """Seconds and bytes. The first pause is halved at random, so are the others."""

    first_pause: float = 0.1
    longest_pause: float = 10.0
    lasting: float = 5.0  # a connection of this age makes the pauses short again
    connect: float = 10.0
    handshake: float = 10.0
    close: float = 2.0
    beat: float = 15.0
    answer: float = 30.0
    refusals: int = 5
    batch: int = 512
    gather: float = 0.02  # between messages: reports that come together leave together
    message: int = 16 << 20


async def dial(url: str, limits: LinkLimits) -> Stream:
    """Open the stream; the caller closes it, which the library may leave undone."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "127.0.0.1", parts.scheme == "wss"
    port = parts.port or (443 if secure else 80)
    with trio.fail_after(limits.connect):
        stream = await trio.open_tcp_stream(host, port)
    if not secure:
        return stream
    context = ssl.create_default_context()
    return trio.SSLStream(stream, context, server_hostname=host)


async def upgrade(
    nursery: trio.Nursery, stream: Stream, url: str, limits: LinkLimits
) -> WebSocketConnection:
    """Make a WebSocket of it, whose reader lives in the nursery."""
    parts = urlsplit(url)
    return await wrap_client_stream(
        nursery,
        stream,
        parts.netloc,
        parts.path or "/",
        message_queue_size=1,
        max_message_size=limits.message,
        receive_buffer_size=256 << 10,
    )


class Pause:
    """How long to wait before the next try: longer each time, never in step."""

    def __init__(self, limits: LinkLimits) -> None:
        self._limits = limits
        self._tries = 0

    def after(self, lasted: float) -> float:
        if lasted >= self._limits.lasting:
            self._tries = 0
        longest = self._limits.first_pause * 2 ** min(self._tries, 32)
        self._tries += 1
        return float(min(self._limits.longest_pause, longest)) * random.uniform(
            0.5, 1.0
        )
