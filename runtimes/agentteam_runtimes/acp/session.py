"""
One live agent with one session: the `Runtime` of the Agent Client Protocol.

A cut replies `cancelled` to what is asked, then cancels; the turn is over with the
answer to its prompt. What that leaves open is looked up in the agent's own record, by
loading the session once more: it is the one way that the protocol has.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.errors import RuntimeExited, RuntimeFailure, RuntimeRefused
from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.acp.asks import Asks
from agentteam_runtimes.acp.record import Memory, Replay
from agentteam_runtimes.acp.turns import Turns, late
from agentteam_runtimes.connection import Connection
from agentteam_runtimes.driver import (
    Containment,
    Emit,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    Runtime,
    RuntimeEvent,
    SessionNamed,
    SubmitRefused,
    Surfaced,
    TurnRef,
)
from agentteam_runtimes.jsonlines import Noise
from agentteam_runtimes.jsonrpc import (
    METHOD_NOT_FOUND,
    Answer,
    Notification,
    Refusal,
    Request,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.acp.record import Record
    from agentteam_runtimes.connection import Received
    from agentteam_runtimes.driver import AskRef, Batch

LOAD_SECONDS = 60.0


@define(eq=False)
class AcpSession(Runtime):
    """Our session of one agent. Opened by the driver, with the handshake done."""

    connection: Connection
    _containment: Containment | None
    workdir: Path
    memory: Memory
    _emit: Emit
    _nursery: trio.Nursery
    id: str = ""
    loads: bool = False  # its record can be read, now and by a later process
    named: bool = False  # it was told by which name to load it
    turns: Turns = field(factory=Turns)
    _asks: Asks = field(factory=Asks)
    _replay: Replay | None = None

    @property
    def containment(self) -> Containment | None:
        return self._containment

    @property
    def record(self) -> Record:
        return self.turns.record

    # The contract.

    async def start_turn(self, batch: Batch) -> TurnRef:
        if self._replay is not None:
            # Whoever asked for it may have given up; what comes now is the past.
            with trio.move_on_after(LOAD_SECONDS):
                await self.connection.until(lambda: self._replay is None)
        if self.turns.active is not None or self._replay is not None:
            # The protocol leaves open what a second prompt does.
            raise SubmitRefused("the agent is busy", written=False)
        turn = self.turns.begin(batch)
        params = wire.prompt(self.id, [item.text for item in batch.items])
        call = self.connection.prepare(wire.PROMPT, params, self._stopped)
        try:
            # Before it is written: what is not there was certainly never sent.
            self.memory.keep(self.record)
            await self.connection.put(call)
        except RuntimeExited:
            raise
        except (RuntimeFailure, OSError) as failure:
            self.turns.not_begun()
            raise SubmitRefused(str(failure), written=False) from failure
        name = [SessionNamed(self.id)] if self.loads and not self.named else []
        self.named = True
        self._pass_on([*name, *self.turns.start()])
        return turn

    async def interrupt(self, turn: TurnRef | None) -> None:
        active = self.turns.active
        if active is None and turn is None:
            raise InterruptRefused("no turn is active")
        if active is None or turn not in (None, active.ref) or active.cut:
            return  # it is over, or will be
        active.cut = True
        try:
            # First the no to what it asks, so that no yes can meet a cancelled turn.
            for request, result in self._asks.waiting():
                active.refused = True
                await self.connection.reply(request, result)
            await self.connection.notify(wire.CANCEL, {"sessionId": self.id})
        except RuntimeRefused as refused:
            active.cut = False
            raise InterruptRefused(refused.message) from refused

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        active, decided = self.turns.active, self._asks.decide(ask, outcome)
        if decided is None:
            return
        request, result = decided
        if active is not None and outcome is ApprovalOutcome.cancelled:
            active.refused = True  # only a cut decides so
        # A cut may have replied already: then nothing is written.
        await self.connection.reply(request, result)

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        """
        Look the keys up in what is known of them, and in the agent's record.

        While a turn runs, what is open may still surface: left out.
        """
        idle = self.turns.active is None and self._replay is None
        if idle and self.loads and self.record.has_open:
            await self.load()
            self._note()
        found = dict(self.record.outcomes(keys))
        if idle and self.record.known:
            never = [item for key, item in keys.items() if not self.record.has(key)]
            found |= dict.fromkeys(never, ItemOutcome.dropped)
        return found

    async def load(self) -> object:
        """Have the agent load the session and replay its past; gives its answer."""
        replay = self._replay = Replay()

        def loaded(answer: Answer | Refusal) -> None:
            self._replay = None
            if isinstance(answer, Answer):
                self.record.compare(replay.messages)

        params = wire.session_load(self.id, self.workdir)
        call = self.connection.prepare(wire.SESSION_LOAD, params, loaded)
        await self.connection.put(call)
        with trio.move_on_after(LOAD_SECONDS):
            await self.connection.until(lambda: call.outcome is not None)
        return call.result

    # What the agent sends.

    def receive(self, received: Sequence[Received]) -> None:
        """Turn what one read brought into events, in its order."""
        events: list[RuntimeEvent] = []
        for message in received:
            match message:
                case Notification():
                    events += self._updated(message)
                case Request():
                    events += self._asked(message)
                case Noise():
                    events += self.connection.noise.notice(message)
        if any(isinstance(event, Surfaced) for event in events):
            self._note()  # a process that goes on after this one's death must know
        self._pass_on(events)

    def _updated(self, event: Notification) -> list[RuntimeEvent]:
        ours = self.id and jsonfields.text(event.params, "sessionId") == self.id
        if event.method != wire.UPDATE or not ours:
            return []
        update = jsonfields.mapping(event.params, "update")
        if self._replay is not None:
            self._replay.take(update)
            return []
        return self.turns.receive(update)

    def _asked(self, request: Request) -> list[RuntimeEvent]:
        if request.method != wire.ASK_PERMISSION:
            message = f"{request.method} is not supported"
            refusal = self.connection.refuse(request.id, METHOD_NOT_FOUND, message)
            self._nursery.start_soon(self._attempt, refusal)
            return [Noticed("the agent asked what nobody here answers", request.method)]
        active = self.turns.active
        call = jsonfields.mapping(request.params, "toolCall")
        turn, events = self.turns.asks(call)
        over = turn is not None and (active is None or turn != active.ref)
        ours = jsonfields.text(request.params, "sessionId") == self.id
        if active is None or active.cut or over or not ours:
            reply = self.connection.reply(request.id, wire.CANCELLED)
            self._nursery.start_soon(self._attempt, reply)
            return [*events, late(turn)]
        return [*events, self._asks.ask(request, turn, self.turns.shown(call))]

    def _stopped(self, answer: Answer | Refusal) -> None:
        """Take the answer to the prompt, in the stream's order."""
        for request, _ in self._asks.waiting():
            self.connection.withdraw(request)
        closed = self._asks.turn_ended()
        if isinstance(answer, Refusal):
            ended = self.turns.failed(answer.message)
        else:
            ended = self.turns.stopped(answer.result)
        self._note()
        self._pass_on([*closed, *ended])

    def _note(self) -> None:
        with suppress(OSError):  # the record of the agent decides once more
            self.memory.keep(self.record)

    def _pass_on(self, events: Sequence[RuntimeEvent]) -> None:
        if events:
            self._emit(events)

    async def _attempt(self, reply: Awaitable[None]) -> None:
        try:
            await reply
        except RuntimeFailure as failure:
            self._emit([Noticed("a reply was not written", str(failure))])
