"""
Cutting a turn: the interrupt, the turn's name, and what the turn left running.

The interrupt ends the model's part only. The commands go on, and so do sub-agents; a
turn that was cut counts as ended when those of its own are ended too. Commands of
earlier turns stay: a development server is not part of this turn. Sub-agents of earlier
turns are cut.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.turns import Turns
from agentteam_runtimes.connection import Call, Connection
from agentteam_runtimes.driver import (
    Emit,
    InterruptRefused,
    Noticed,
    TurnEnded,
    TurnRef,
    TurnStatus,
)
from agentteam_runtimes.jsonrpc import Refusal

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject

CLEAN_SECONDS = 2.0
END_SECONDS = 1.0  # how long the end of a turn may trail a refused interrupt

NAMED = re.compile(r"found `?([0-9A-Za-z-]+)`?")


def named_turn(message: str) -> str | None:
    """Read which turn a refusal says is active."""
    found = NAMED.search(message)
    return found[1] if found else None


@define(eq=False)
class Cuts:
    """The interrupts of one thread: at most one request for each turn."""

    connection: Connection
    turns: Turns
    emit: Emit
    _asked: dict[str, Call] = field(factory=dict[str, Call])

    def is_cut(self, ended: TurnEnded) -> bool:
        return ended.turn.id in self._asked or ended.status is TurnStatus.interrupted

    def owes(self, ended: TurnEnded) -> bool:
        """Tell whether a turn that is over may have left something that runs."""
        turn, children = ended.turn.id, self.turns.children
        if not self.is_cut(ended):
            return False
        return self.turns.has_called(turn) or bool(
            children.threads(turn) or children.running()
        )

    async def interrupt(self, turn: TurnRef | None) -> None:
        id = await self._find(turn)
        # Before `turn/started` codex may refuse, and the turn runs on.
        await self.connection.until(lambda: self.turns.has_started(id))
        if self.turns.has_ended(id):
            return
        call = self._asked.get(id)
        if call is None:
            params = wire.turn_interrupt(self.turns.thread, id)
            call = self.connection.prepare(wire.TURN_INTERRUPT, params)
            self._asked[id] = call
            await self.connection.put(call)
        await self.connection.until(
            lambda: call.outcome is not None or self.turns.has_ended(id)
        )
        if isinstance(call.outcome, Refusal):
            await self._interrupt_refused(id, call.outcome)

    async def _find(self, turn: TurnRef | None) -> str:
        """Find the turn to cut; wait for its name when one is on its way."""
        await self.connection.until(lambda: not self.turns.starting)
        if turn is None and self.turns.active is not None:
            return self.turns.active
        if turn is not None and self.turns.knows(turn.id):
            return turn.id
        active = await self._read_active()
        if active is None or (turn is not None and turn.id != active):
            named = TurnRef(active) if active else None
            raise InterruptRefused("that turn is not active", named)
        self.turns.adopt(active)
        return active

    async def _read_active(self) -> str | None:
        """Ask codex which turn is active (interrupt spec §7)."""
        params = {"threadId": self.turns.thread, "includeTurns": True}
        try:
            read = await self.connection.call(wire.THREAD_READ, params)
        except RuntimeRefused:
            return None  # it keeps nothing of a thread before its first input
        for turn in jsonfields.objects(jsonfields.mapping(read, "thread"), "turns"):
            if turn.get("status") == "inProgress":
                return jsonfields.text(turn, "id") or None
        return None

    async def _interrupt_refused(self, turn: str, refusal: Refusal) -> None:
        """Tell a refusal from a turn that had just ended by itself."""
        named = named_turn(refusal.message)
        if named is None:
            with trio.move_on_after(END_SECONDS):
                await self.connection.until(lambda: self.turns.has_ended(turn))
        if self.turns.has_ended(turn):
            return
        del self._asked[turn]  # so that it can be tried once more
        raise InterruptRefused(refusal.message, TurnRef(named) if named else None)

    async def _cut_child(self, thread: str, turn: str) -> None:
        """Cut a sub-agent's turn: the parent's interrupt does not reach it."""
        params = wire.turn_interrupt(thread, turn)
        try:
            await self.connection.call(wire.TURN_INTERRUPT, params, CLEAN_SECONDS)
        except RuntimeFailure as failure:
            self.emit([Noticed("a sub-agent's turn was not cut", str(failure))])

    async def finish(self, ended: TurnEnded) -> None:
        """End what the cut turn left running, then report its end."""
        try:
            with trio.move_on_after(CLEAN_SECONDS) as cleaning:
                await self._end_work(ended.turn.id)
        except RuntimeExited:
            return  # nothing is owed after the end of the process
        except RuntimeFailure as failure:
            self.emit([Noticed("commands may still run", str(failure))])
        else:
            if cleaning.cancelled_caught:
                self.emit([Noticed("commands may still run", "codex is silent")])
        self.emit([ended])

    async def _end_work(self, turn: str) -> None:
        """
        Cut the sub-agents, then end the commands.

        A sub-agent that outlived an earlier turn is cut as well: whoever cuts wants the
        agent to leave what it does.
        """
        children = self.turns.children
        working = children.running()
        for thread, child in working:
            await self._cut_child(thread, child)
        await self.connection.until(lambda: not children.running())
        mine = [self.turns.thread, *children.threads(turn)]
        places = [(thread, turn) for thread in mine]
        places += [(thread, children.root(child) or turn) for thread, child in working]
        for thread, root in dict.fromkeys(places):
            await self._clean(thread, root)

    async def _clean(self, thread: str, turn: str) -> None:
        """End the commands of this turn; those of earlier turns stay (a dev server)."""
        params: JsonObject = {"threadId": thread}
        listed = await self.connection.call(wire.TERMINALS_LIST, params, CLEAN_SECONDS)
        for terminal in jsonfields.objects(listed, "data"):
            item = jsonfields.text(terminal, "itemId")
            if self.turns.started_by(turn, thread, item):
                process = {"processId": terminal.get("processId")}
                await self.connection.call(wire.TERMINALS_TERMINATE, params | process)
                # Its result follows at once, and still belongs into its turn.
                await self.connection.until(
                    partial(self.turns.has_returned, thread, item)
                )
