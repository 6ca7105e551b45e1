"""
One live app-server with one thread: the `Runtime` of Codex.

The state of the turns is in `turns.py`, how one is cut in `cuts.py`; this file submits,
waits, answers, and passes on what comes.
"""

from __future__ import annotations

from collections.abc import Callable
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
from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.asks import REFUSALS, Asks
from agentteam_runtimes.codex.cuts import Cuts, named_turn
from agentteam_runtimes.codex.tools import ToolCalls
from agentteam_runtimes.codex.turns import Turns, keys_of
from agentteam_runtimes.connection import ANSWER_SECONDS, Call, Connection
from agentteam_runtimes.driver import (
    Containment,
    Emit,
    ItemOutcome,
    Noticed,
    Runtime,
    RuntimeEvent,
    SteerRefused,
    SubmitRefused,
    TurnEnded,
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
    from collections.abc import Mapping, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.connection import Received
    from agentteam_runtimes.driver import (
        AskRef,
        Batch,
        CallRef,
        InputItem,
    )
    from agentteam_runtimes.jsonlines import JsonObject

Taker = Callable[[Answer | Refusal], None]

MOST_PAGES = 50


@define(eq=False)
class CodexSession(Runtime):
    """Our thread of one app-server. Opened by the driver, with the handshake done."""

    connection: Connection
    turns: Turns
    _containment: Containment | None
    _emit: Emit
    _nursery: trio.Nursery
    _asks: Asks = field(factory=Asks)
    _tools: ToolCalls = field(factory=ToolCalls)
    _cuts: Cuts = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._cuts = Cuts(self.connection, self.turns, self._emit)

    # The contract.

    @property
    def containment(self) -> Containment | None:
        return self._containment

    async def start_turn(self, batch: Batch) -> TurnRef:
        if self.turns.starting or self.turns.active is not None:
            # On a busy thread codex would make a steer of it, without a word.
            raise SubmitRefused("a turn is active", written=False)
        client = self.turns.start(batch)
        texts = [item.text for item in batch.items]
        params = wire.turn_start(self.turns.thread, texts, client)
        named: list[str] = []

        def take(answer: Answer | Refusal) -> None:
            named.extend(self._named(answer))

        call = await self._submit(params, take)
        with trio.move_on_after(ANSWER_SECONDS):
            await self.connection.until(lambda: call.outcome is not None)
        try:
            call.result  # noqa: B018 - raises the refusal
        except RuntimeRefused as refused:
            raise SubmitRefused(
                refused.message, written=False, code=refused.code
            ) from refused
        except RuntimeTooSlow as slow:
            raise SubmitRefused(str(slow), written=True) from slow
        if not named:
            raise SubmitRefused("codex named no new turn for it", written=True)
        return TurnRef(named[0])

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        if self.turns.has_ended(turn.id):
            raise SteerRefused("the turn is over")
        refusal = await self._steer(turn.id, item)
        if refusal is not None and (named := self._named_instead(refusal, turn.id)):
            refusal = await self._steer(named, item)
        if refusal is not None:
            raise SteerRefused(refusal.message, code=str(refusal.code))

    async def interrupt(self, turn: TurnRef | None) -> None:
        await self._cuts.interrupt(turn)

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        if decided := self._asks.decide(ask, outcome):
            await self.connection.reply(*decided)

    async def tool_result(self, call: CallRef, text: str, *, error: bool) -> None:
        if finished := self._tools.finish(call, text, error):
            await self.connection.reply(*finished)

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        """
        Look the keys up in the thread's record.

        While a turn runs, what is not there yet may still come: left out.
        """
        missing = dict(keys)
        found: dict[ItemId, ItemOutcome] = {}
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            params = wire.turns_list(self.turns.thread, cursor)
            page = await self.connection.call(wire.TURNS_LIST, params)
            for key in _recorded(page):
                if key in missing:
                    found[missing.pop(key)] = ItemOutcome.surfaced
            cursor = jsonfields.text(page, "nextCursor") or None
            if not missing or cursor is None:
                break
        if cursor is None and not self.turns.starting and self.turns.active is None:
            found |= dict.fromkeys(missing.values(), ItemOutcome.dropped)
        return found

    # What the app-server sends.

    def receive(self, received: Sequence[Received]) -> None:
        """Turn what one read brought into events, in its order."""
        events: list[RuntimeEvent] = []
        for message in received:
            match message:
                case Notification():
                    events += self._notified(message)
                case Request():
                    events += self._asked(message)
                case Noise():
                    events += self.connection.noise.notice(message)
        self._pass_on(events)

    def _notified(self, event: Notification) -> list[RuntimeEvent]:
        if event.method == wire.REQUEST_RESOLVED:
            request = event.params.get("requestId")
            if isinstance(request, int | str):
                self.connection.withdraw(request)
            return [*self._asks.resolved(request)]
        return self.turns.receive(event)

    def _asked(self, request: Request) -> list[RuntimeEvent]:
        turn = self.turns.root(request.params)
        if request.method == wire.TOOL_CALL:
            called = self._tools.take(request, turn)
            if called is not None:
                return [called]
        asked = self._asks.ask(request, turn, self.turns.shown(request.params))
        if asked is not None:
            return [asked]
        self._nursery.start_soon(self._refuse, request)
        return [Noticed("codex asked what nobody here answers", request.method)]

    def _pass_on(self, events: Sequence[RuntimeEvent]) -> None:
        """Emit, but keep back the end of a turn that was cut until all of it ended."""
        ready: list[RuntimeEvent] = []
        for event in events:
            if not isinstance(event, TurnEnded):
                ready.append(event)
                continue
            requests, closed = self._asks.turn_ended(event.turn.id)
            for request in [*requests, *self._tools.turn_ended(event.turn.id)]:
                self.connection.withdraw(request)
            ready += closed
            if self._cuts.owes(event):
                self._nursery.start_soon(self._cuts.finish, event)
            else:
                ready += [*self.turns.outlived(event), event]
        if ready:
            self._emit(ready)

    # Submitting.

    async def _submit(self, params: JsonObject, take: Taker) -> Call:
        """Write the start; if it cannot be written, the batch became no turn."""
        call = self.connection.prepare(wire.TURN_START, params, take)
        written = False
        try:
            await self.connection.put(call)
            written = True
        except RuntimeExited:
            raise
        except RuntimeFailure as failure:
            raise SubmitRefused(str(failure), written=False) from failure
        finally:
            if not written:
                # Cancelled, it may go out all the same: a turn that nobody asked for.
                call.then = None
                self._pass_on(self.turns.not_started())
        return call

    def _named(self, answer: Answer | Refusal) -> list[str]:
        """Take the answer to a start, in the stream's order; the turn's id if new."""
        if isinstance(answer, Refusal):
            self._pass_on(self.turns.not_started())
            return []
        turn = wire.turn_id(answer.result)
        if not turn:
            self._pass_on(self.turns.not_started())
            return []
        fresh, events = self.turns.named(turn)
        self._pass_on(events)
        return [turn] if fresh else []

    async def _steer(self, turn: str, item: InputItem) -> Refusal | None:
        """Hand the entry over; a refusal certainly did not take it."""
        self.turns.steer(turn, item)
        params = wire.turn_steer(self.turns.thread, turn, item.text, item.key)
        in_time: list[bool] = []

        def take(answer: Answer | Refusal) -> None:
            if isinstance(answer, Refusal):
                self.turns.not_steered(item.key)
            else:
                in_time.append(self.turns.steered(item.key))

        call = self.connection.prepare(wire.TURN_STEER, params, take)
        try:
            await self.connection.put(call)
        except RuntimeRefused as refused:
            self.turns.not_steered(item.key)
            raise SteerRefused(refused.message) from refused
        with trio.move_on_after(ANSWER_SECONDS):
            await self.connection.until(lambda: call.outcome is not None)
        if isinstance(call.outcome, Refusal):
            return call.outcome
        if in_time != [True]:
            raise SteerRefused("accepted too late, or not answered", written=True)
        return None

    def _named_instead(self, refusal: Refusal, turn: str) -> str | None:
        """Name the turn to try once more, when codex says that another is active."""
        named = named_turn(refusal.message)
        if named is None or named == turn or self.turns.has_ended(named):
            return None
        return named

    # Refusing.

    async def _refuse(self, request: Request) -> None:
        try:
            if request.method in REFUSALS:
                await self.connection.reply(request.id, REFUSALS[request.method])
            else:
                message = f"{request.method} is not supported"
                await self.connection.refuse(request.id, METHOD_NOT_FOUND, message)
        except RuntimeFailure as failure:
            self._emit([Noticed("a reply was not written", str(failure))])


def _recorded(page: object) -> list[str]:
    """Name the keys that a page of turns holds."""
    return [
        key
        for turn in jsonfields.objects(page, "data")
        for item in jsonfields.objects(turn, "items")
        if item.get("type") == wire.USER_MESSAGE
        for key in keys_of(jsonfields.text(item, "clientId"))
    ]
