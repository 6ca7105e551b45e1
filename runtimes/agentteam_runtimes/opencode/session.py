"""
One OpenCode server with one session: the `Runtime` of OpenCode.

What its messages mean is in `turns.py`, how a turn ends in `endings.py`; this file
submits, answers, and passes on what comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import (
    RuntimeExited,
    RuntimeFailure,
    RuntimeRefused,
    RuntimeTooSlow,
)
from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import (
    Containment,
    Emit,
    ItemOutcome,
    Noticed,
    Runtime,
    RuntimeEvent,
    SteerRefused,
    SubmitRefused,
    TurnRef,
)
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.asks import Asks
from agentteam_runtimes.opencode.endings import Endings
from agentteam_runtimes.opencode.record import Record
from agentteam_runtimes.opencode.server import BrokenOff, Server, Unconnected
from agentteam_runtimes.opencode.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import AskRef, Batch, InputItem
    from agentteam_runtimes.jsonlines import JsonObject


@define(eq=False)
class OpenCodeSession(Runtime):
    """Our session of one server. Opened by the driver, with the server warmed up."""

    server: Server
    turns: Turns
    _containment: Containment | None
    _emit: Emit
    _nursery: trio.Nursery
    _asks: Asks = field(factory=Asks)
    _sending: trio.Lock = field(factory=trio.Lock)
    _record: Record = field(init=False)
    _endings: Endings = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._record = Record(self.server, self.turns, self._emit)
        self._endings = Endings(
            self.server,
            self.turns,
            self._asks,
            self._record,
            self._emit,
            self._sending,
        )

    # The contract.

    @property
    def containment(self) -> Containment | None:
        return self._containment

    async def start_turn(self, batch: Batch) -> TurnRef:
        async with self._sending:
            if self.turns.active is not None:
                # On a busy session OpenCode would fold it into the running turn.
                raise SubmitRefused("a turn is active", written=False)
            message = wire.message_id()
            self.turns.start(message, batch)
            try:
                await self._prompt(message, batch.items)
            except RuntimeExited:
                raise
            except (RuntimeTooSlow, BrokenOff) as lost:
                raise SubmitRefused(str(lost), written=True) from lost
            except RuntimeRefused as refused:
                self.turns.not_started(message)
                raise SubmitRefused(
                    refused.message, written=False, code=refused.code
                ) from refused
            self._emit(self.turns.accepted(message))
        return TurnRef(message)

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        async with self._sending:
            if self.turns.has_ended(turn.id) or self.turns.is_cut(turn.id):
                raise SteerRefused("the turn is over")
            message = wire.message_id()
            self.turns.steer(turn.id, message, item)
            try:
                await self._prompt(message, (item,))
            except RuntimeExited:
                raise
            except (RuntimeTooSlow, BrokenOff) as lost:
                raise SteerRefused(str(lost), written=True) from lost
            except RuntimeRefused as refused:
                self.turns.not_steered(message)
                raise SteerRefused(refused.message, code=refused.code) from refused
            self._emit(self.turns.accepted(message))
            # It came after the last step, maybe: then its turn goes on, or not.
            self._nursery.start_soon(self._endings.watch, turn.id)

    async def interrupt(self, turn: TurnRef | None) -> None:
        await self._endings.interrupt(turn)
        self._watch(self.turns.active if turn is None else turn.id)

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        # With the lock, so that no yes is on its way when a turn is aborted.
        async with self._sending:
            decided = self._asks.decide(ask, outcome, self._is_over)
            if decided is None:
                return
            request, reply = decided
            try:
                await self.server.post(wire.permission_reply(request), reply)
            except RuntimeRefused as refused:
                if refused.code != "404":  # it was closed meanwhile
                    raise

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        """Look the keys up in the session's messages; what is unanswered goes back."""
        async with self._sending:
            outcomes = await self._record.look_up(keys)
        active = self.turns.active
        if active is not None and not self.turns.was_accepted(active):
            lost = self.turns.items(active)
            if any(outcomes.get(id) is ItemOutcome.dropped for id in lost):
                self.turns.not_started(active)
        return outcomes

    # What the server sends.

    def receive(self, events: Sequence[JsonObject]) -> None:
        """Turn what one read brought into events, in its order."""
        told: list[RuntimeEvent] = []
        for event in events:
            told += self._receive(event)
        if told:
            self._emit(told)

    def connected(self) -> None:
        """What happened before was not heard: look again."""
        self._nursery.start_soon(self._attempt, self._look_again)

    def _receive(self, event: JsonObject) -> list[RuntimeEvent]:
        told = jsonfields.mapping(event, "properties")
        ours = jsonfields.text(told, "sessionID") in ("", self.turns.session)
        match jsonfields.text(event, "type"):
            case wire.MESSAGE:
                return self.turns.message(jsonfields.mapping(told, "info"))
            case wire.PART:
                return self.turns.part(jsonfields.mapping(told, "part"))
            case wire.DELTA if ours and jsonfields.text(told, "field") == "text":
                return self.turns.delta(told)
            case wire.IDLE if ours:
                return self._idle()
            case wire.STATUS_CHANGED if ours:
                return self._status(jsonfields.mapping(told, "status"))
            case wire.SESSION_ERROR if ours:
                return self._error(jsonfields.mapping(told, "error"))
            case wire.ASKED:
                return self._asked(told)
            case wire.REPLIED:
                return [*self._asks.replied(jsonfields.text(told, "requestID"))]
            case wire.QUESTION:
                path = wire.question_reject(jsonfields.text(told, "id"))
                self._nursery.start_soon(self._attempt, self._poster(path))
                return [Noticed("OpenCode asked what nobody here answers")]
            case _:
                return []

    def _idle(self) -> list[RuntimeEvent]:
        turn = self.turns.active
        if turn is None or self.turns.is_cut(turn):
            return []
        more = self.turns.waits(turn) or self._sending.locked()
        if self.turns.is_done(turn) and not more:
            return self.turns.end(turn)
        self._watch(turn)
        return []

    def _watch(self, turn: str | None) -> None:
        if turn is not None and not self.turns.has_ended(turn):
            self._nursery.start_soon(self._endings.watch, turn)

    def _status(self, status: JsonObject) -> list[RuntimeEvent]:
        if jsonfields.text(status, "type") != "retry":
            return []
        why = jsonfields.text(status, "message")
        what = f"the model failed, OpenCode retries: {why}"
        return [Noticed(what, why, told=jsonfields.number(status, "attempt") == 1)]

    def _error(self, error: JsonObject) -> list[RuntimeEvent]:
        told = jsonfields.text(jsonfields.mapping(error, "data"), "message")
        problem = told or jsonfields.text(error, "name") or "an unknown error"
        self.turns.failed(problem)
        if wire.POISONED in problem:
            # Every session of it fails from here on, until it is made anew.
            cure = self._poster(wire.DISPOSE_INSTANCE)
            self._nursery.start_soon(self._attempt, cure)
            return [Noticed("OpenCode broke at its start and is set up again", problem)]
        return []

    def _asked(self, request: JsonObject) -> list[RuntimeEvent]:
        message = jsonfields.text(jsonfields.mapping(request, "tool"), "messageID")
        turn = self.turns.root(jsonfields.text(request, "sessionID"), message)
        return [*self._asks.ask(request, turn, self.turns.session)]

    def _is_over(self, turn: str) -> bool:
        return self.turns.has_ended(turn) or self.turns.is_cut(turn)

    async def _look_again(self) -> None:
        pending = await self.server.get(wire.PERMISSIONS)
        busy = await self._record.read()
        asked = [
            a for request in jsonfields.objects(pending) for a in self._asked(request)
        ]
        if asked:
            self._emit(asked)
        if not busy:
            self._watch(self.turns.active)

    # Sending.

    async def _prompt(self, message: str, items: Sequence[InputItem]) -> None:
        """
        Send a prompt; a lost one is sent once more.

        With the same ids OpenCode takes the second for the first.
        """
        path = wire.session(self.turns.session, "prompt_async")
        body = wire.prompt(message, items)
        try:
            await self.server.post(path, body)
        except (RuntimeTooSlow, BrokenOff, Unconnected):
            await self.server.post(path, body)

    def _poster(self, path: str) -> Callable[[], Awaitable[None]]:
        async def post() -> None:
            await self.server.post(path)

        return post

    async def _attempt(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except RuntimeExited:
            pass
        except RuntimeFailure as failure:
            self._emit([Noticed("OpenCode did not take a request", str(failure))])
