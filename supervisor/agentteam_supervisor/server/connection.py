"""One daemon's WebSocket: frames in order, batches both ways, one writer."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field
from sqlalchemy.exc import SQLAlchemyError
from starlette.websockets import WebSocketDisconnect

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.errors import QueueFull, RemoteProtocolError
from agentteam_protocol.frames import (
    NUMBERED,
    VERSION,
    AgentTroubled,
    Answer,
    Envelope,
    FenceReported,
    Frame,
    HistoryAsked,
    Progressed,
    Query,
    Receipt,
    RunReported,
    SendAsked,
    SendRequested,
    Welcome,
)
from agentteam_supervisor.chaos import points
from agentteam_supervisor.server import history, leases, outbox, reports
from agentteam_supervisor.server.freshness import Fence, Fencing, fencing
from agentteam_supervisor.server.pulse import Pulse
from agentteam_supervisor.server.writer import StoreUnwritable, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.websockets import WebSocket

    from agentteam_protocol.ids import AgentId, DaemonId, RunId
    from agentteam_supervisor.server.feed import Feed
    from agentteam_supervisor.server.leases import Session
    from agentteam_supervisor.server.store import Store
    from agentteam_supervisor.server.transaction import Tx

LOG = logging.getLogger(__name__)

LIVE = 1000
REASON = 120  # bytes; a close frame holds three more
UNREADABLE = "the store cannot be read; come back"
GOING_DOWN = (1001, "the server is going down")


@define(eq=False)
class _Waiter:
    done: trio.Event = field(factory=trio.Event)
    answer: Answer | None = None


class Connection:
    """
    The link to one daemon while it lasts.

    Receipts leave only after the transaction of what they acknowledge. Only the
    writer sends, and nobody cancels it while it does: half a frame would break the
    stream.
    """

    def __init__(
        self,
        websocket: WebSocket,
        daemon: DaemonId,
        name: str,
        store: Store,
        feed: Feed,
        fences: dict[AgentId, Fence],
        cut: Callable[[], None],
        silence: float,
    ) -> None:
        self.daemon = daemon
        self.name = name
        self.client: Any = websocket.client
        self.ended = trio.Event()
        self._websocket = websocket
        self._store = store
        self._feed = feed
        self._fences = fences
        self._over: dict[AgentId, RunId] = {}  # the run of each that ended last
        self._cut = cut
        self._silence = silence
        self._received = 0
        self._acknowledged = 0
        self._wake = Pulse()
        self._outbox_moved = True
        self._live: deque[Frame] = deque()
        self._closing: tuple[int, str] | None = None
        self._waiters: dict[int, _Waiter] = {}
        self._refs = itertools.count(1)

    async def run(self, session: Session) -> None:
        """Serve until the daemon goes or `close` was called."""
        self._received = session.received
        self._tell(Welcome(VERSION, self._store.id, session.received))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_outbox)
                nursery.start_soon(self._read, nursery.cancel_scope)
                await self._write(session.sent)
                nursery.cancel_scope.cancel()
        finally:
            for waiter in self._waiters.values():
                waiter.done.set()

    def close(self, code: int, reason: str) -> None:
        """Say goodbye after what is being sent; nothing more is read or sent."""
        self._closing = self._closing or (code, reason)
        self._wake.beat()

    async def ask(
        self, agent: AgentId, what: str, arguments: Mapping[str, Any], patience: float
    ) -> Answer | None:
        """Ask the daemon; None if it did not answer in time or went away."""
        ref = next(self._refs)
        waiter = self._waiters[ref] = _Waiter()
        try:
            self._tell(Query(ref, agent, what, arguments))
            with trio.move_on_after(patience):
                await waiter.done.wait()
        finally:
            del self._waiters[ref]
        return waiter.answer

    def _tell(self, frame: Frame) -> None:
        """Send a frame that has no number: it is lost with the connection."""
        if len(self._live) >= LIVE:
            raise QueueFull("the daemon does not read what it asked for")
        self._live.append(frame)
        self._wake.beat()

    async def _watch_outbox(self) -> None:
        while True:
            ticket = self._store.moved["outbox"].ticket()
            self._outbox_moved = True
            self._wake.beat()
            await ticket.wait()

    async def _write(self, sent: int) -> None:
        told = -1
        while self._closing is None:
            ticket = self._wake.ticket()
            try:
                rows = await self._next_rows(sent)
            except SQLAlchemyError as exc:
                LOG.error("frames of daemon %s: %s", self.daemon, words_of(exc))
                self.close(1011, UNREADABLE)
                break
            live = [self._live.popleft() for _ in range(len(self._live))]
            received = self._received
            if not rows and not live and received == told:
                await ticket.wait()
                continue
            numbered = [frame for _, frame in rows]
            frames = (*live, *numbered) or (Receipt(),)
            first = rows[0][0] if rows else None
            envelope = Envelope(frames, seq=first, ack=received)
            points.before("server-sends", frames)
            await self._websocket.send_text(encode_envelope(envelope).decode())
            points.after("server-sends", frames)
            told = received
            sent = rows[-1][0] if rows else sent
        await self._websocket.close(*(self._closing or GOING_DOWN))

    async def _next_rows(self, sent: int) -> list[tuple[int, Frame]]:
        if not self._outbox_moved:
            return []
        self._outbox_moved = False
        newest = self._store.newest
        if newest is not None and newest[:2] == (self.daemon, sent + 1):
            # Just committed, and all that is missing: no second look at the disk.
            return [newest[1:]]
        rows = await self._store.read(lambda tx: outbox.batch(tx, self.daemon, sent))
        self._outbox_moved = self._outbox_moved or bool(rows)
        return rows

    async def _read(self, scope: trio.CancelScope) -> None:
        try:
            while (message := await self._next()) is not None:
                await self._keep(decode_envelope(_payload(message)))
        except RemoteProtocolError as exc:
            LOG.warning("daemon %s broke the protocol: %s", self.daemon, exc)
            words = f"not a valid frame: {exc}".encode()[:REASON]
            self.close(1002, words.decode(errors="ignore"))
            return
        except StoreUnwritable as exc:
            LOG.error("reports of daemon %s were not stored: %s", self.daemon, exc)
            self.close(1011, "the reports could not be stored; send them again")
            return
        except SQLAlchemyError as exc:
            LOG.error("what daemon %s asked for: %s", self.daemon, words_of(exc))
            self.close(1011, UNREADABLE)
            return
        except WebSocketDisconnect:
            pass
        scope.cancel()

    async def _next(self) -> Mapping[str, Any] | None:
        """
        Wait for a message; None: the daemon is gone.

        A live one says something on each of its beats. Of a dead host no transport
        tells, and the broken stream fails a send that waits for it.
        """
        with trio.move_on_after(self._silence) as quiet:
            message = await self._websocket.receive()
            gone = message["type"] == "websocket.disconnect"
            return None if gone else message
        assert quiet.cancelled_caught
        LOG.warning("daemon %s said nothing for %g s", self.daemon, self._silence)
        self._cut()
        return None

    async def _keep(self, envelope: Envelope) -> None:
        """Take it; what the disk did not take of it is at least shown."""
        try:
            await self._take(envelope)
        except StoreUnwritable:
            self._store.unstored.keep(envelope.frames)
            raise
        self._store.unstored.stored(envelope.frames)

    async def _take(self, envelope: Envelope) -> None:
        fresh = self._fresh(envelope)
        lasting = [f for f in fresh if type(f) in NUMBERED or isinstance(f, _KEPT)]
        last = self._last(envelope)
        points.before("server-receives", fresh)
        self._close_fences(fresh)
        self._show_last_words(fresh)
        self._hand_over_answers(fresh)
        if lasting or envelope.ack > self._acknowledged:
            await self._store.write(
                lambda tx: self._apply(tx, lasting, last, envelope.ack)
            )
        self._acknowledged = max(self._acknowledged, envelope.ack)
        self._received = last
        self._wake.beat()
        for frame in fresh:
            await self._after(frame)
        points.after("server-receives", fresh)

    def _fresh(self, envelope: Envelope) -> list[Frame]:
        """Leave out what was received before; the sender's numbers are the truth."""
        fresh: list[Frame] = []
        number = envelope.seq or 0
        for frame in envelope.frames:
            if type(frame) not in NUMBERED:
                fresh.append(frame)
                continue
            if number > self._received:
                fresh.append(frame)
            number += 1
        return fresh

    def _last(self, envelope: Envelope) -> int:
        numbered = sum(type(frame) in NUMBERED for frame in envelope.frames)
        if envelope.seq is None or not numbered:
            return self._received
        return max(self._received, envelope.seq + numbered - 1)

    def _apply(self, tx: Tx, frames: list[Frame], last: int, ack: int) -> None:
        for frame in frames:
            reports.apply(tx, frame)
        leases.progress(tx, self.daemon, last)
        outbox.acknowledge(tx, self.daemon, ack)

    def _close_fences(self, frames: list[Frame]) -> None:
        """Before any line of them is shown: text that came with a hold is late."""
        for frame in frames:
            if isinstance(frame, FenceReported):
                fence = self._fences.get(frame.agent, Fence())
                state = fencing(frame.fence)
                self._fences[frame.agent] = fence.reported(frame.gen, state)

    def _show_last_words(self, frames: list[Frame]) -> None:
        """Show the text of runs that end in this message before their end is told."""
        ends = {
            (f.agent, f.run_id)
            for f in frames
            if isinstance(f, RunReported) and f.ended_at is not None
        }
        for frame in frames:
            if isinstance(frame, Progressed) and (frame.agent, frame.run_id) in ends:
                self._progress(frame)
        self._over.update(ends)

    async def _after(self, frame: Frame) -> None:
        """Do what needs no store, or only a look at it."""
        match frame:
            case Progressed():
                self._progress(frame)
            case HistoryAsked():
                self._tell(await self._store.read(lambda tx: history.read(tx, frame)))
            case _:
                pass

    def _hand_over_answers(self, frames: list[Frame]) -> None:
        """Before the store, which may be what the question was about."""
        for frame in frames:
            waiter = self._waiters.get(frame.ref) if isinstance(frame, Answer) else None
            if waiter is not None and isinstance(frame, Answer):
                waiter.answer = frame
                waiter.done.set()

    def _progress(self, frame: Progressed) -> None:
        """Show streaming text, unless its generation or run is no longer live."""
        fence = self._fences.get(frame.agent, Fence())
        over = self._over.get(frame.agent) == frame.run_id
        if over or fence.of(frame.gen) is not Fencing.open:
            return
        self._feed.tell_live(
            "activity",
            {
                "seq": None,
                "agentId": frame.agent,
                "kind": ActivityKind.progress,
                "words": {"text": frame.text},
                "runId": frame.run_id,
                "generation": [frame.gen.epoch, frame.gen.number],
            },
        )


# Without numbers, yet each is applied at its place among those that have one.
_KEPT = (SendRequested, SendAsked, AgentTroubled)


def _payload(message: Mapping[str, Any]) -> bytes | str:
    payload: bytes | str = message.get("text") or message.get("bytes") or b""
    return payload
