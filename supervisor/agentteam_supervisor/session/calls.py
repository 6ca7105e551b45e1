"""
Calls of a driver: one task each, coming back as one event.

A call that takes too long is answered in its place and goes on: cancelling it could
cut a write in half. What it says later is not asked for any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio
from attrs import define

from agentteam_protocol.errors import RuntimeExited, RuntimeFailure
from agentteam_runtimes.driver import (
    Batch,
    InterruptRefused,
    Noticed,
    SteerRefused,
    SubmitRefused,
)
from agentteam_supervisor.session.events import (
    Event,
    FromRuntime,
    InterruptFailed,
    InterruptTaken,
    Settled,
    SteerAccepted,
    SteerFailed,
    SubmitAccepted,
    SubmitFailed,
    Swept,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import (
        AskRef,
        Containment,
        InputItem,
        ItemOutcome,
        Runtime,
        TurnRef,
    )
    from agentteam_supervisor.session import effects as fx

TOO_SLOW = "the runtime did not answer in time"


@define
class _Answer:
    """The first word on a call counts."""

    feed: Callable[[Event], None]
    given: bool = False

    def give(self, event: Event) -> None:
        if not self.given:
            self.given = True
            self.feed(event)


@define
class Calls:
    feed: Callable[[Event], None]
    limit: float

    async def submit(
        self, effect: fx.Submit, items: tuple[InputItem, ...], runtime: Runtime
    ) -> None:
        answer = _Answer(self.feed)

        def failed(problem: str, *, written: bool) -> None:
            answer.give(SubmitFailed(effect.batch, written, problem))

        async def call() -> None:
            try:
                turn = await _enter_turn(effect, items, runtime)
            except SubmitRefused as error:
                failed(str(error), written=error.written)
            except RuntimeFailure as error:
                failed(str(error), written=True)
            else:
                answer.give(SubmitAccepted(effect.batch, turn))

        await self._within_limit(call, lambda: failed(TOO_SLOW, written=True))

    async def steer(
        self, effect: fx.SteerItem, item: InputItem, runtime: Runtime
    ) -> None:
        answer = _Answer(self.feed)

        def failed(problem: str, *, written: bool) -> None:
            answer.give(SteerFailed(effect.item.id, written, problem))

        async def call() -> None:
            try:
                await runtime.steer(effect.turn, item)
            except SteerRefused as error:
                failed(str(error), written=error.written)
            except RuntimeFailure as error:
                failed(str(error), written=True)
            else:
                answer.give(SteerAccepted(effect.item.id))

        await self._within_limit(call, lambda: failed(TOO_SLOW, written=True))

    async def interrupt(self, inc: int, turn: TurnRef | None, runtime: Runtime) -> None:
        """Bounded by the ladder, which goes on without this answer."""
        try:
            await runtime.interrupt(turn)
        except InterruptRefused as error:
            self.feed(InterruptFailed(inc, str(error), error.named))
        except RuntimeFailure as error:
            self.feed(InterruptFailed(inc, str(error)))
        else:
            self.feed(InterruptTaken(inc))

    async def answer(
        self, inc: int, ask: AskRef, outcome: ApprovalOutcome, runtime: Runtime
    ) -> None:
        try:
            await runtime.answer(ask, outcome)
        except RuntimeFailure as error:
            self._notice(inc, "answer not taken", error)

    async def reply(self, effect: fx.ToolReply, runtime: Runtime) -> None:
        try:
            await runtime.tool_result(effect.call, effect.text, error=effect.error)
        except RuntimeFailure as error:
            self._notice(effect.inc, "tool result not taken", error)

    async def settle(self, effect: fx.Settle, runtime: Runtime) -> None:
        """
        An unread history decides nothing, and is an answer as well.

        That of a process which has just ended is none: its end is told next, and the
        history of the one that resumes its session can tell.
        """
        answer = _Answer(self.feed)
        keys = {item.key: item.id for item in effect.items}

        async def call() -> None:
            outcomes: Mapping[ItemId, ItemOutcome] = {}
            try:
                outcomes = await runtime.history(keys)
            except RuntimeExited:
                return
            except RuntimeFailure:
                pass
            answer.give(Settled(effect.inc, outcomes))

        unread = Settled(effect.inc, {})
        await self._within_limit(call, lambda: answer.give(unread))

    async def sweep(self, inc: int, mark: int, containment: Containment) -> None:
        try:
            survivors = tuple(await containment.sweep(mark))
        except RuntimeFailure as error:
            self._notice(inc, "sweep failed", error)
        else:
            self.feed(Swept(inc, survivors))

    def _notice(self, inc: int, what: str, error: RuntimeFailure) -> None:
        self.feed(FromRuntime(inc, (Noticed(what, str(error)),)))

    async def _within_limit(
        self, call: Callable[[], Awaitable[None]], late: Callable[[], None]
    ) -> None:
        async def expire() -> None:
            await trio.sleep(self.limit)
            late()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(expire)
            await call()
            nursery.cancel_scope.cancel()


async def _enter_turn(
    effect: fx.Submit, items: tuple[InputItem, ...], runtime: Runtime
) -> TurnRef:
    if effect.turn is None:
        return await runtime.start_turn(Batch(effect.batch, items))
    await runtime.next_step(effect.turn, items)
    return effect.turn
