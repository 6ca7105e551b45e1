"""A daemon's end of the link, driven by hand: it speaks frames and nothing more."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio
from attrs import define, field
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.delivery import DeliveryState, Evidence
from agentteam_protocol.frames import (
    NUMBERED,
    VERSION,
    AgentDeliver,
    AgentGranted,
    DeliveryReceived,
    DeliveryReported,
    Envelope,
    FenceReported,
    Frame,
    Hello,
    Refused,
    RunReported,
    StatusReported,
    Welcome,
)
from agentteam_protocol.ids import AgentId, DaemonId, Generation, RunId

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.kit.server import RunningServer

F = TypeVar("F")


@define(eq=False)
class DaemonState:
    """What a daemon keeps over connections: its numbers, and what it was told."""

    daemon: DaemonId = field(default=DaemonId("dmn_one"))
    name: str = "laptop"
    boot: str = "boot1"
    server: str = ""
    received: int = 0
    sent: int = 0
    runtimes: dict[str, Any] = field(factory=dict[str, Any])
    unacknowledged: list[tuple[int, Frame]] = field(factory=list[tuple[int, Frame]])
    inbox: list[Frame] = field(factory=list[Frame])
    heard: list[Frame] = field(factory=list[Frame])  # all that came, in order
    epochs: dict[AgentId, int] = field(factory=dict[AgentId, int])

    def hello(self) -> Hello:
        return Hello(
            VERSION,
            self.daemon,
            self.name,
            self.server,
            self.received,
            self.runtimes,
            self.boot,
        )


@define(eq=False)
class DaemonPeer:
    """One connection of that daemon."""

    state: DaemonState
    websocket: WebSocketConnection
    welcome: Welcome
    acknowledging: bool = True
    acknowledged: trio.Event = field(factory=trio.Event)
    closed: trio.Event = field(factory=trio.Event)
    arrived: trio.Event = field(factory=trio.Event)

    async def send(self, *frames: Frame) -> None:
        """Send frames as one batch, numbered where they have numbers."""
        first = None
        for frame in frames:
            if type(frame) in NUMBERED:
                self.state.sent += 1
                first = first or self.state.sent
                self.state.unacknowledged.append((self.state.sent, frame))
        await self.send_raw(Envelope(tuple(frames), first, self._ack()))

    async def send_raw(self, envelope: Envelope) -> None:
        await self.websocket.send_message(encode_envelope(envelope).decode())

    async def report(self, *frames: Frame) -> None:
        """Send frames and wait until the server has made them durable."""
        await self.send(*frames)
        with trio.fail_after(5):
            while self.state.unacknowledged:
                await self.acknowledged.wait()

    async def take(self, kind: type[F], match: Callable[[F], bool] = bool) -> F:
        """Wait for a frame of this kind and take it out of the inbox."""
        with trio.fail_after(5):
            while True:
                for index, frame in enumerate(self.state.inbox):
                    if isinstance(frame, kind) and match(frame):
                        del self.state.inbox[index]
                        return frame
                await self.arrived.wait()

    async def deliver(self) -> AgentDeliver:
        """Take the next delivery and say that it is durable here."""
        frame = await self.take(AgentDeliver)
        await self.send(DeliveryReceived(frame.delivery, frame.attempt))
        return frame

    async def surface(self, frame: AgentDeliver, kind: str = "test") -> None:
        """Report that the model has it."""
        await self.report(self.moved(frame, DeliveryState.surfaced, Evidence(kind)))

    def moved(
        self, frame: AgentDeliver, state: DeliveryState, evidence: Any = None
    ) -> DeliveryReported:
        return DeliveryReported(
            frame.delivery,
            frame.agent,
            state,
            frame.attempt,
            self.gen(frame.agent),
            evidence,
        )

    def gen(self, agent: AgentId, number: int = 1) -> Generation:
        return Generation(self.state.epochs.get(agent, 1), number)

    async def run(self, agent: AgentId, run: str, number: int = 1) -> None:
        """Report that a run is going on."""
        gen = self.gen(agent, number)
        started = "2026-01-01T00:00:00Z"
        await self.report(
            FenceReported(agent, gen, "open"),
            RunReported(agent, RunId(run), 1, gen, started),
            StatusReported(
                agent, gen.epoch, True, "running", False, RunId(run), gen, started
            ),
        )

    async def idle(self, agent: AgentId, parked: bool = False) -> None:
        await self.report(
            StatusReported(agent, self.gen(agent).epoch, False, "idle", parked)
        )

    async def read(self) -> None:
        """Take what comes until the connection ends."""
        try:
            while True:
                self.accept(decode_envelope(await self.websocket.get_message()))
        except ConnectionClosed:
            self.closed.set()

    def accept(self, envelope: Envelope) -> None:
        number = envelope.seq or 0
        for frame in envelope.frames:
            if type(frame) not in NUMBERED:
                self.state.inbox.append(frame)
                continue
            if number > self.state.received:
                assert number == self.state.received + 1, "a hole in the numbers"
                self.state.received = number
                self._keep(frame)
            number += 1
        left = [(n, f) for n, f in self.state.unacknowledged if n > envelope.ack]
        self.state.unacknowledged[:] = left
        self.acknowledged, passed = trio.Event(), self.acknowledged
        passed.set()
        self.arrived, passed = trio.Event(), self.arrived
        passed.set()

    def _keep(self, frame: Frame) -> None:
        self.state.inbox.append(frame)
        self.state.heard.append(frame)
        if isinstance(frame, AgentGranted):
            self.state.epochs[frame.agent] = frame.epoch

    def _ack(self) -> int:
        return self.state.received if self.acknowledging else 0


class RefusedByServer(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.problem)
        self.refused = refused


@asynccontextmanager
async def open_link(port: int) -> AsyncGenerator[WebSocketConnection]:
    """
    Connect, without any handshake of ours.

    The stream is ours to close: trio-websocket leaves the socket open when the other
    side closes first.
    """
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream, trio.open_nursery() as nursery:
        host = f"127.0.0.1:{port}"
        yield await wrap_client_stream(
            nursery, stream, host, "/link", max_message_size=2**24
        )
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_daemon(
    port: int, state: DaemonState | None = None, hello: Hello | None = None
) -> AsyncGenerator[DaemonPeer]:
    """Connect, shake hands, resend what was not acknowledged, and read on."""
    state = state or DaemonState()
    async with open_link(port) as websocket:
        await websocket.send_message(
            encode_envelope(Envelope((hello or state.hello(),))).decode()
        )
        first = decode_envelope(await websocket.get_message())
        greeting = first.frames[0]
        if isinstance(greeting, Refused):
            raise RefusedByServer(greeting)
        assert isinstance(greeting, Welcome)
        if state.server != greeting.server:
            state.server, state.received = greeting.server, 0
        peer = DaemonPeer(state, websocket, greeting)
        peer.accept(first)
        await _resend(peer, greeting.received)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read)
            yield peer
            nursery.cancel_scope.cancel()


async def _resend(peer: DaemonPeer, received: int) -> None:
    left = [(n, f) for n, f in peer.state.unacknowledged if n > received]
    peer.state.unacknowledged[:] = left
    if left:
        frames = tuple(frame for _, frame in left)
        await peer.send_raw(Envelope(frames, left[0][0], peer.state.received))


async def running(
    server: RunningServer, daemon: DaemonPeer, run: str = "run_1"
) -> AgentId:
    """Make the agent `ada`, with a run going on."""
    agent = AgentId((await server.agent())["id"])
    await daemon.take(AgentGranted)
    await daemon.run(agent, run)
    return agent
