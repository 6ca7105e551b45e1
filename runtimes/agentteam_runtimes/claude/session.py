"""
One live Claude with one session: the `Runtime` of Claude Code.

The state of the turns is in `turns.py`; this file submits, cuts, answers, and passes on
what comes. A turn is cut by a request that also drops what still waits; it is over with
the `result` of its round, or when nothing of it is left to be taken. Older versions know
no such request: what waits is withdrawn first, and a round that begins all the same is
interrupted again. Whoever is too slow for that is killed and resumed by the session.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.claude import wire
from agentteam_runtimes.claude.asks import Asks, fence
from agentteam_runtimes.claude.dialogue import Dialogue
from agentteam_runtimes.claude.record import Kept, Memory, read_fates
from agentteam_runtimes.claude.tools import ToolCalls
from agentteam_runtimes.claude.turns import Turns
from agentteam_runtimes.driver import (
    Containment,
    Emit,
    InterruptRefused,
    ItemOutcome,
    Noticed,
    ReadCalled,
    Runtime,
    RuntimeEvent,
    SendCalled,
    SteerRefused,
    SubmitRefused,
    TurnEnded,
    TurnRef,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import AskRef, Batch, CallRef, InputItem
    from agentteam_runtimes.jsonlines import JsonObject


@define(eq=False)
class ClaudeSession(Runtime):
    """Our session of one process. Opened by the driver, with the handshake done."""

    dialogue: Dialogue
    turns: Turns
    _containment: Containment | None
    projects: Path
    memory: Memory
    left_out: tuple[str, ...]  # keys in the record that this process does not know
    _emit: Emit
    _nursery: trio.Nursery
    no_session: str = ""  # what Claude says of a session that it does not know
    _asks: Asks = field(factory=Asks)
    _tools: ToolCalls = field(factory=ToolCalls)

    # The contract.

    @property
    def containment(self) -> Containment | None:
        return self._containment

    async def start_turn(self, batch: Batch) -> TurnRef:
        if self.turns.active is not None:
            raise SubmitRefused("a turn is active", written=False)
        turn, uuid = self.turns.start(batch)
        try:
            await self._write_input(uuid, *batch.items)
        except RuntimeRefused as refused:
            raise SubmitRefused(refused.message, written=False) from refused
        return TurnRef(turn)

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        if not self.turns.takes_steers(turn.id):
            raise SteerRefused("the turn takes no further input now")
        uuid = self.turns.steer(turn.id, item)
        try:
            await self._write_input(uuid, item)
        except RuntimeRefused as refused:
            raise SteerRefused(refused.message) from refused

    async def interrupt(self, turn: TurnRef | None) -> None:
        if turn is not None and self.turns.has_ended(turn.id):
            return
        active = self.turns.active
        if active is None or (turn is not None and turn.id != active):
            named = TurnRef(active) if active else None
            raise InterruptRefused("that turn is not active", named)
        self.turns.cut(active)
        if self.turns.receipts:
            await self._interrupt(active)
        else:
            await self._withdraw_and_interrupt(active)

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        if decided := self._asks.decide(ask, outcome):
            await self._answer(*decided)

    async def tool_result(self, call: CallRef, text: str, *, error: bool) -> None:
        if finished := self._tools.finish(call, text, error):
            await self._answer(*finished)

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        """
        Look the keys up in Claude's own record.

        While a turn runs, what is not there yet may still come: left out. Of a process
        that is gone nobody can tell, but the one that resumes its session can.
        """
        self.dialogue.check()
        session = self.turns.session
        fates = await trio.to_thread.run_sync(read_fates, self.projects, session)
        fates |= dict.fromkeys(self.left_out, ItemOutcome.dropped)
        here = [key for key in keys if self.turns.has_surfaced(key)]
        fates |= dict.fromkeys(here, ItemOutcome.surfaced)
        found = {keys[key]: fate for key, fate in fates.items() if key in keys}
        if self.turns.idle:
            missing = [item for item in keys.values() if item not in found]
            found |= dict.fromkeys(missing, ItemOutcome.dropped)
        self.turns.carry(
            (key, item)
            for key, item in keys.items()
            if found.get(item) is ItemOutcome.carried
        )
        self._remember()
        return found

    # What Claude prints.

    def receive(self, lines: Sequence[JsonObject]) -> None:
        """Turn what one read brought into events, in its order."""
        events: list[RuntimeEvent] = []
        for line in lines:
            match line.get("type"):
                case wire.REQUEST:
                    events += self._asked(line)
                case wire.WITHDRAWN:
                    events += self._asks.withdrawn(jsonfields.text(line, "request_id"))
                case wire.RESULT if not self.turns.round:
                    errors = jsonfields.strings(line, "errors")
                    self.no_session = next(
                        (e for e in errors if wire.NO_SESSION in e), self.no_session
                    )
                case _:
                    events += self.turns.receive(line)
        self._pass_on(events)

    def _asked(self, line: JsonObject) -> list[RuntimeEvent]:
        id, request = (
            jsonfields.text(line, "request_id"),
            jsonfields.mapping(line, "request"),
        )
        turn = self.turns.owner(jsonfields.text(request, "tool_use_id"))
        match request.get("subtype"):
            case wire.ASK:
                return [self._asks.ask(id, request, turn)]
            case wire.HOOK:
                self._soon(wire.response(id, fence(self.turns.is_cut(turn))))
                return []
            case wire.MCP:
                message = jsonfields.mapping(request, "message")
                taken = self._tools.take(id, message, self.turns.owner)
                if isinstance(taken, SendCalled | ReadCalled):
                    return [taken]
                self._soon(wire.response(id, taken))
                return []
            case other:
                self._soon(wire.refusal(id, f"{other} is not supported"))
                return [Noticed("claude asked what nobody here answers", str(other))]

    def _pass_on(self, events: Sequence[RuntimeEvent]) -> None:
        ready: list[RuntimeEvent] = []
        for event in events:
            if isinstance(event, TurnEnded):
                ready += self._asks.turn_ended(event.turn.id)
                self._tools.turn_ended(event.turn.id)
            ready.append(event)
        # Before anybody hears of it: whoever asks after a kill reads what is kept here.
        self._remember()
        if ready:
            self._emit(ready)

    # Cutting.

    async def _interrupt(self, turn: str) -> None:
        """Interrupt the round and drop what waits; a refusal is an answer, too."""

        def take(answer: JsonObject) -> None:
            dropped = jsonfields.strings(answer, "cancelled")
            self._pass_on(self.turns.withdrawn(dropped))

        asking = self.dialogue.prepare(wire.INTERRUPT, take, cancel_queued=True)
        await self.dialogue.put(asking)
        await self.dialogue.until(lambda: asking.answered or self.turns.has_ended(turn))
        if asking.refusal is not None and not self.turns.has_ended(turn):
            raise InterruptRefused(asking.refusal)

    async def _withdraw_and_interrupt(self, turn: str) -> None:
        """Do what `_interrupt` does, by the requests of older versions."""
        for uuid in self.turns.waiting(turn):
            await self._withdraw(uuid)
        while not self.turns.has_ended(turn):
            await self._interrupt_round(turn, self.turns.round)

    async def _interrupt_round(self, turn: str, before: int) -> None:
        """Interrupt; one that came before its round is lost, so wait for another."""
        await self._interrupt(turn)
        await self.dialogue.until(
            lambda: self.turns.has_ended(turn) or self.turns.round != before
        )

    async def _withdraw(self, uuid: str) -> None:
        def take(answer: JsonObject) -> None:
            if answer.get("cancelled") is True:
                self._pass_on(self.turns.withdrawn([uuid]))

        asking = self.dialogue.prepare(wire.CANCEL_MESSAGE, take, message_uuid=uuid)
        await self.dialogue.put(asking)
        await self.dialogue.until(lambda: asking.answered)

    def _remember(self) -> None:
        kept = Kept(dict(self.turns.carried), self.turns.unanswered)
        self.memory.keep(self.turns.session, kept)

    # Writing.

    async def _write_input(self, uuid: str, *items: InputItem) -> None:
        self._remember()
        line = wire.user_line(uuid, [item.text for item in items])
        there = False
        try:
            await self.dialogue.write(line)
            there = True
        except RuntimeExited as gone:
            # Its last lines may still be read: it is gone for whoever asks now.
            self.dialogue.exited(gone)
            there = True
            raise
        finally:
            if not there:  # refused, or cancelled
                self.turns.not_written(uuid)

    async def _answer(self, request: str, answer: JsonObject) -> None:
        await self.dialogue.write(wire.response(request, answer))

    def _soon(self, line: bytes) -> None:
        self._nursery.start_soon(self._reply, line)

    async def _reply(self, line: bytes) -> None:
        try:
            await self.dialogue.write(line)
        except RuntimeFailure as failure:
            self._emit([Noticed("a reply was not written", str(failure))])
