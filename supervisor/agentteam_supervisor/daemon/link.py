"""
The daemon's end of the link: one WebSocket to the server, for ever renewed.

Numbered frames leave from the journal once they are durable there and stay until the
server's receipt; what the server sends is marked as received only after everything
that it caused is durable. So a lost connection, or a crash on either side, loses
nothing, and repeats nothing but frames whose handlers know them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import trio
from trio_websocket import (
    ConnectionClosed,
    HandshakeError,
    WebSocketConnection,
)

from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.errors import (
    AgentTeamError,
    JournalUnwritable,
    QueueFull,
    RemoteProtocolError,
)
from agentteam_protocol.frames import (
    NUMBERED,
    Envelope,
    Frame,
    Hello,
    HistoryGiven,
    Progressed,
    Receipt,
    Refused,
    SendJudged,
    Welcome,
)
from agentteam_supervisor.chaos import points
from agentteam_supervisor.daemon import answers
from agentteam_supervisor.daemon.dialing import LinkLimits, Pause, dial, upgrade
from agentteam_supervisor.daemon.numbering import Inbound, Unnumbered, compose
from agentteam_supervisor.daemon.questions import Questions
from agentteam_supervisor.session import words

if TYPE_CHECKING:
    from agentteam_protocol.ids import AgentId
    from agentteam_supervisor.journal.log import Commit, Journal
    from agentteam_supervisor.session.effects import JudgeSend, ReadTarget
    from agentteam_supervisor.session.events import HistoryRead, SendAnswered

T = TypeVar("T")
_log = logging.getLogger(__name__)

# The second argument is called once the frame's effects are in the journal's hands.
Handle = Callable[[Frame, Callable[[], None]], None]


# What ends a connection and not the link.
_FAULTS = (
    HandshakeError,
    ConnectionClosed,
    OSError,
    trio.TooSlowError,
    trio.BrokenResourceError,
    RemoteProtocolError,
    JournalUnwritable,
    QueueFull,  # the disk is behind: what was not taken is sent again
)


class LinkRefused(AgentTeamError):
    """The server will not have this daemon: another one serves it already."""

    def __init__(self, problem: str, what_to_do: str) -> None:
        super().__init__(f"the server refused this daemon: {problem}; {what_to_do}")
        self.problem = problem
        self.what_to_do = what_to_do


class Link:
    """
    `run` keeps the connection; the other methods may be called at any time.

    `handle` gets the numbered frames of the server and its queries, in order;
    `standing` gives what is said without a number at the start of each connection.
    """

    def __init__(
        self,
        url: str,
        journal: Journal,
        hello: Callable[[], Hello],
        handle: Handle,
        limits: LinkLimits | None = None,
        standing: Callable[[], Iterable[Frame]] = tuple,
    ) -> None:
        self._url = url
        self._journal = journal
        self._hello = hello
        self._handle = handle
        self._limits = limits or LinkLimits()
        self._standing = standing
        self._unnumbered = Unnumbered()
        self._questions = Questions(self.send_live, self._limits.answer)
        self._scope: trio.CancelScope | None = None
        self._cursor = 0
        self._acked = 0
        self._work = trio.Event()
        self._pressing = trio.Event()
        self._due = False
        self._changed = trio.Event()
        self._greeted = trio.Event()
        self._refusals = 0
        journal.watch(self._stir)

    @property
    def connected(self) -> bool:
        return self._scope is not None

    # --- what the sessions want of it --------------------------------------------

    def send_live(self, frame: Frame) -> None:
        """Send an unnumbered frame now; without a connection it is dropped."""
        if self.connected:
            self._unnumbered.put(self._journal.outbound_number, frame)
            if not isinstance(frame, Progressed):
                self._pressing.set()  # somebody waits for what comes of it
            self._stir()

    async def judge(self, send: JudgeSend, agent: AgentId) -> SendAnswered:
        """
        Take a visible send to the server, once.

        It keeps its place behind the reports that are durable now. When the link is
        lost meanwhile, the answer is unknown, and the server is asked by id later.
        """
        if not self.connected:
            return answers.refused(send.send)
        return await self._questions.judge(send, agent)

    async def read(self, read: ReadTarget, agent: AgentId) -> HistoryRead:
        """Fetch messages of a target for the agent."""
        if not self.connected:
            return answers.unread(read, words.UNREAD_NO_LINK)
        return await self._questions.read(read, agent)

    async def greeted(self) -> None:
        """Return when the server has welcomed us, or never will."""
        await self._greeted.wait()

    def give_up(self) -> None:
        """Nobody need wait for the server any more."""
        self._greeted.set()

    async def drained(self) -> None:
        """Return when the server has everything; the caller sets the limit."""
        while self._acked < self._journal.outbound_number:
            await self._changed.wait()

    # --- the connection ------------------------------------------------------------

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Connect and reconnect until cancelled; raises `LinkRefused`."""
        pause = Pause(self._limits)
        task_status.started()
        while True:
            began = trio.current_time()
            try:
                await self._connect()
            except LinkRefused as exc:
                if not self._tolerated():
                    raise
                _log.warning("%s", exc)
            except _FAULTS as exc:
                _log.info("the link to %s is down: %r", self._url, exc)
            await trio.sleep(pause.after(trio.current_time() - began))

    def _tolerated(self) -> bool:
        """A server that knew us may be going down, or be slow to see that we left."""
        self._refusals += 1
        return self._greeted.is_set() and self._refusals <= self._limits.refusals

    async def _connect(self) -> None:
        fault: Exception | None = None
        # The library leaves the stream open when the peer breaks off: we own it.
        async with (
            await dial(self._url, self._limits) as stream,
            trio.open_nursery() as nursery,
        ):
            try:
                with trio.fail_after(self._limits.connect):
                    socket = await upgrade(nursery, stream, self._url, self._limits)
                await self._serve(socket)
                with trio.move_on_after(self._limits.close):
                    await socket.aclose()
            except (*_FAULTS, LinkRefused) as exc:
                fault = exc
            finally:
                self._give_up_waiting()
            nursery.cancel_scope.cancel()
        if fault is not None:
            raise fault

    async def _serve(self, socket: WebSocketConnection) -> None:
        inbound, first = await self._shake_hands(socket)
        fault: list[RemoteProtocolError | LinkRefused | QueueFull] = []
        async with trio.open_nursery() as nursery:
            self._scope = nursery.cancel_scope
            self._greeted.set()
            self._refusals = 0
            self._questions.ask_again()
            for frame in self._standing():
                self.send_live(frame)
            nursery.start_soon(self._write, socket)
            nursery.start_soon(self._beat, socket)
            try:
                self._take(first, inbound)
                await self._read(socket, inbound)
            except (RemoteProtocolError, LinkRefused, QueueFull) as exc:
                fault.append(exc)
            nursery.cancel_scope.cancel()
        if fault:
            raise fault[0]

    async def _shake_hands(
        self, socket: WebSocketConnection
    ) -> tuple[Inbound, Envelope]:
        journal = self._journal
        # All that was handed to the journal is durable before we say what we have.
        journal.reset_inbound()
        await journal.flushed()
        hello = self._hello()
        await socket.send_message(encode_envelope(Envelope((hello,))).decode())
        envelope = await self._first(socket)
        welcome = _welcome(envelope)
        await self._agree(welcome)
        self._cursor = self._acked = welcome.received
        received = hello.received if welcome.server == hello.server else 0
        return Inbound(received), envelope

    async def _first(self, socket: WebSocketConnection) -> Envelope:
        with trio.move_on_after(self._limits.handshake):
            return decode_envelope(await socket.get_message())
        raise RemoteProtocolError("the server did not greet in time")

    async def _agree(self, welcome: Welcome) -> None:
        journal = self._journal
        known = journal.acked_number <= welcome.received <= journal.outbound_number
        if welcome.server == journal.server and known:
            journal.acked(welcome.received)
        else:
            await journal.rebase(welcome.server, welcome.received)

    # --- reading ---------------------------------------------------------------------

    async def _read(self, socket: WebSocketConnection, inbound: Inbound) -> None:
        while True:
            try:
                message = await socket.get_message()
            except ConnectionClosed as exc:
                _log.info("the link to %s was closed: %s", self._url, exc.reason)
                return
            self._take(decode_envelope(message), inbound)

    def _take(self, envelope: Envelope, inbound: Inbound) -> None:
        if envelope.ack > self._acked:
            self._acked = envelope.ack
            self._journal.acked(envelope.ack)
            self._changed.set()
            self._changed = trio.Event()
        number = envelope.seq
        for frame in envelope.frames:
            if type(frame) not in NUMBERED:
                self._take_unnumbered(frame)
                continue
            if number is None:
                raise RemoteProtocolError("a numbered frame without its number")
            if inbound.arrived(number):
                self._take_numbered(frame, number, inbound)
            number += 1

    def _take_numbered(self, frame: Frame, number: int, inbound: Inbound) -> None:
        def done() -> None:
            if (mark := inbound.done(number)) is not None:
                self._journal.received(mark).when_done(self._marked)

        points.through("daemon-receives", frame, lambda f: self._handle(f, done))
        if isinstance(frame, SendJudged):
            self._questions.judged(frame)

    def _take_unnumbered(self, frame: Frame) -> None:
        match frame:
            case HistoryGiven():
                self._questions.given(frame)
            case Refused(problem, what_to_do):
                raise LinkRefused(problem, what_to_do)
            case Welcome() | Receipt():
                pass  # said what they had to say already
            case _:
                self._handle(frame, _nothing)

    def _marked(self, commit: Commit) -> None:
        """Tell the server, or, when something was not written, have it sent again."""
        if commit.error is None:
            self._stir()
        elif self._scope is not None:
            _log.warning("the link starts over: %s", commit.error)
            self._scope.cancel()

    # --- writing ---------------------------------------------------------------------

    def _stir(self) -> None:
        self._work.set()

    async def _write(self, socket: WebSocketConnection) -> None:
        """
        The only writer of a connection: a send is never cut by another's end.

        What is told in quick succession leaves as one message, which the server keeps
        in one transaction: each has its price while a runtime is being cut.
        """
        told = -1
        self._due = False
        while True:
            self._work, self._pressing = trio.Event(), trio.Event()
            ack = self._journal.received_number
            rows = await self._journal.outbound(self._cursor, self._limits.batch)
            outgoing, self._cursor = compose(rows, self._unnumbered, self._cursor)
            if not outgoing.frames and ack == told and not self._due:
                await self._work.wait()
                continue
            self._due = False
            self._questions.leaving(outgoing.unnumbered)
            try:
                points.before("daemon-sends", outgoing.frames)
                await socket.send_message(outgoing.text(ack))
                points.after("daemon-sends", outgoing.frames)
            except ConnectionClosed:
                return  # the reader sees it, too, and ends the connection
            told = ack
            with trio.move_on_after(self._limits.gather):
                await self._pressing.wait()

    async def _beat(self, socket: WebSocketConnection) -> None:
        """
        A peer that does not answer is gone, whatever the transport believes.

        The server believes the same of us: it gets a message on every beat.
        """
        while True:
            await trio.sleep(self._limits.beat)
            self._due = True
            self._stir()
            try:
                with trio.fail_after(self._limits.beat):
                    await socket.ping()
            except ConnectionClosed:
                return
            except trio.TooSlowError:
                _log.info("the link to %s is silent", self._url)
                if self._scope is not None:
                    self._scope.cancel()

    def _give_up_waiting(self) -> None:
        """The connection is gone: everybody who waits for an answer gets one."""
        self._scope = None
        self._unnumbered.clear()
        self._questions.cut_off()


def _nothing() -> None:
    """An unnumbered frame is done when it was handled."""


def _welcome(envelope: Envelope) -> Welcome:
    match envelope.frames[:1]:
        case (Welcome() as welcome,):
            return welcome
        case (Refused(problem, what_to_do),):
            raise LinkRefused(problem, what_to_do)
        case _:
            raise RemoteProtocolError("the server did not greet", str(envelope))
