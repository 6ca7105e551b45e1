"""Requests to a server that hangs, breaks off or is gone, and its stream of events."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import define, field

from agentteam_protocol.errors import RuntimeExited, RuntimeRefused, RuntimeTooSlow
from agentteam_runtimes.opencode import server as module
from agentteam_runtimes.opencode.server import BrokenOff, Server, Unconnected, events_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntrue"
NO = b'HTTP/1.1 409 Conflict\r\ncontent-length: 18\r\n\r\n{"message":"busy"}'
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@define(eq=False)
class Peer:
    """Says what it was given, connection by connection; None: it hangs."""

    says: list[bytes | None]
    heard: list[str] = field(factory=list)
    url: str = ""

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            head = bytes(await stream.receive_some())
            self.heard.append(head.decode().splitlines()[0])
            answer = self.says.pop(0) if self.says else None
            if answer is None or answer.startswith(STREAM):
                await stream.send_all(answer or b"")
                await trio.sleep_forever()
            await stream.send_all(answer)


@asynccontextmanager
async def a_peer(*says: bytes | None) -> AsyncIterator[tuple[Peer, Server]]:
    peer = Peer(list(says))
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, peer.serve, listeners)
        server = Server(f"http://127.0.0.1:{port}", "pw")
        with trio.fail_after(20):
            yield peer, server
        await server.aclose()
        nursery.cancel_scope.cancel()


async def test_a_hung_read_is_asked_once_more_and_a_write_never() -> None:
    async with a_peer(None, OK, None) as (peer, server):
        assert await server.get("/a", 0.2) is True
        with pytest.raises(RuntimeTooSlow):
            await server.post("/b", {"x": 1}, 0.2)
    paths = [line.split(" HTTP")[0] for line in peer.heard]
    assert paths == ["GET /a", "GET /a", "POST /b"]


async def test_a_refusal_a_broken_connection_and_none_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EXIT_SECONDS", 0.0)
    async with a_peer(NO, b"") as (_, server):
        with pytest.raises(RuntimeRefused, match="busy") as refused:
            await server.post("/a")
        with pytest.raises(BrokenOff):
            await server.post("/a")
    assert refused.value.code == "409"
    nowhere = Server("http://127.0.0.1:1", "pw")
    with pytest.raises(Unconnected):
        await nowhere.post("/a")
    nowhere.exited(RuntimeExited(3, "last words"))
    with pytest.raises(RuntimeExited) as exited:
        await nowhere.post("/a")
    assert (exited.value.returncode, exited.value.stderr_tail) == (3, "last words")
    await nowhere.aclose()


@pytest.mark.bug("B19")
async def test_a_silent_stream_is_opened_again_and_each_opening_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "RECONNECT_SECONDS", (0.0,))
    one, two = b'data: {"type":"one"}\n\n', b': beat\ndata: {"type":"two"}\n\n'
    told: list[Any] = []
    async with (
        a_peer(STREAM + one, b"", NO, STREAM + two) as (peer, server),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.follow, told.extend, lambda: told.append("connected"))
        while len(told) < 4:  # noqa: ASYNC110 - seen from outside
            await trio.sleep(0.01)
        server.exited(RuntimeExited(0))
        nursery.cancel_scope.cancel()
    assert told[:4] == ["connected", {"type": "one"}, "connected", {"type": "two"}]
    assert len(peer.heard) >= 4


def test_what_is_no_event_is_left_out() -> None:
    lines = [b"event: x", b"", b"data: [1]", b"data: {broken", b'data:{"type":"a"}']
    assert events_of(lines) == [{"type": "a"}]
