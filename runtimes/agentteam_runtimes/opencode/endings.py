"""
How a turn ends, by itself or cut.

OpenCode says `idle` before a cut turn has said its last, and again later, when another
turn may run. So an idle is only a reason to look: the turn is over when the session's
status and its messages, read again, say so.

An abort leaves an open ask open, whose late answer can still run the command: the asks
are rejected before. An abort while a sub-agent runs ends that one, and the turn goes on
with another request to the model: it is aborted again until the session is idle.

A message that OpenCode has stored and not read when its turn ends is taken back, so
that it can be sent in its order, or be replaced by its urgent copy. What it does not
give back is carried: it will fold that into its next request.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import RuntimeExited, RuntimeFailure, RuntimeRefused
from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import Emit, InterruptRefused, Noticed, TurnRef
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.asks import Asks
from agentteam_runtimes.opencode.record import Record
from agentteam_runtimes.opencode.server import Server
from agentteam_runtimes.opencode.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Sequence

ABORT_SECONDS = 5.0
REJECT_SECONDS = 2.0
LOOK_SECONDS = 0.05
# How many looks in a row must find the session idle where its messages leave it open.
CALM_LOOKS = 3
STRANDED_LOOKS = 20  # before a prompt counts as not run, which may begin any moment
MOST_FAILURES = 3


@define(eq=False)
class Endings:
    """Watches the turns of one session end, and cuts them."""

    server: Server
    turns: Turns
    asks: Asks
    record: Record
    emit: Emit
    sending: trio.Lock  # held by whoever tells the session something
    _watched: set[str] = field(factory=set[str])

    async def interrupt(self, turn: TurnRef | None) -> None:
        """Abort the turn; returns when OpenCode took it. `watch` sees the end."""
        async with self.sending:
            id = self._find(turn)
            if self.turns.has_ended(id):
                return
            self.turns.cut(id)
            await self._reject_known()
            await self._abort()

    def _find(self, turn: TurnRef | None) -> str:
        id = self.turns.active if turn is None else turn.id
        if id is None or not self.turns.knows(id):
            active = self.turns.active
            named = TurnRef(active) if active else None
            raise InterruptRefused("that turn is not active", named)
        return id

    async def watch(self, turn: str) -> None:
        """Look until the turn is over, or until it turns out to be running."""
        if turn in self._watched:
            return
        self._watched.add(turn)
        try:
            await self._watch(turn)
        except RuntimeExited:
            pass  # nothing is owed after the end of the process
        finally:
            self._watched.discard(turn)

    async def _watch(self, turn: str) -> None:
        calm, failures = 0, 0
        while not self.turns.has_ended(turn):
            try:
                busy = await self._look(turn)
                if busy and not self.turns.is_cut(turn):
                    return  # the next idle is another reason to look
                calm = 0 if busy else calm + 1
                if calm and self._is_over(turn, calm):
                    await self._end(turn)
            except RuntimeExited:
                raise
            except RuntimeFailure as failure:
                failures += 1
                if failures >= MOST_FAILURES:
                    what = "the end of a turn cannot be read"
                    self.emit([Noticed(what, str(failure))])
                    return
            if not self.turns.has_ended(turn):
                await trio.sleep(LOOK_SECONDS)

    async def _look(self, turn: str) -> bool:
        busy = await self.record.read()
        if busy and self.turns.is_cut(turn) and not self.sending.locked():
            await self._abort()
        return busy

    def _is_over(self, turn: str, calm: int) -> bool:
        if self.sending.locked():
            return False
        if self.turns.is_cut(turn):
            return self.turns.is_settled(turn) or calm >= CALM_LOOKS
        if not self.turns.was_answered(turn):
            return calm >= STRANDED_LOOKS
        if self.turns.waits(turn):
            return calm >= CALM_LOOKS
        return self.turns.is_done(turn) or calm >= CALM_LOOKS

    async def _end(self, turn: str) -> None:
        """End it, unless something was sent to it in the last moment and is worked on."""
        async with self.sending:
            # Stranded, it would be folded into the next request, behind its batch.
            unread = self.turns.to_withdraw(turn)
            if unread and await self.record.busy():
                return
            if self.turns.is_cut(turn):
                # What was asked meanwhile: no abort withdraws it.
                await self._reject_pending()
            for message in unread:
                await self.record.withdraw(message)
            self.emit(self.turns.end(turn))

    async def _abort(self) -> None:
        path = wire.session(self.turns.session, "abort")
        await self.server.post(path, seconds=ABORT_SECONDS)

    async def _reject_known(self) -> None:
        requests, closed = self.asks.withdraw()
        if closed:
            self.emit(closed)
        await self._reject(requests)

    async def _reject_pending(self) -> None:
        """Reject what is asked still; nobody else uses this server."""
        await self._reject_known()
        pending = await self.server.get(wire.PERMISSIONS, REJECT_SECONDS)
        await self._reject(
            [jsonfields.text(one, "id") for one in jsonfields.objects(pending)]
        )

    async def _reject(self, requests: Sequence[str]) -> None:
        for request in requests:
            path = wire.permission_reply(request)
            # Closed meanwhile: rejecting one rejects its siblings.
            with suppress(RuntimeRefused):
                await self.server.post(path, wire.CANCEL, REJECT_SECONDS)
