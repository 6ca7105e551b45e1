"""One live process of the scripted runtime: the `Runtime` of rehearsal."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, cast

import trio
from attrs import define

from agentteam_protocol.errors import RuntimeFailure, RuntimeRefused
from agentteam_runtimes.driver import (
    Containment,
    InterruptRefused,
    ItemOutcome,
    SteerRefused,
    SubmitRefused,
    TurnRef,
)
from agentteam_runtimes.rehearsal import wire
from agentteam_runtimes.rehearsal.conversation import Conversation, Refusal
from agentteam_runtimes.rehearsal.reading import outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentteam_protocol.approval import ApprovalOutcome
    from agentteam_protocol.ids import ItemId
    from agentteam_runtimes.driver import AskRef, Batch, CallRef, InputItem

ABORT_SECONDS = 1.0


@define(eq=False)
class RehearsalSession:
    """
    Opened by the driver, with the handshake done.

    An answer that was lost is waited for without a limit: the caller's scope has one.
    """

    _conversation: Conversation
    containment: Containment | None

    async def start_turn(self, batch: Batch) -> TurnRef:
        self._conversation.reading.expect(batch.items)
        try:
            reply = await self._conversation.ask(wire.TURN, wire.turn(batch))
        except RuntimeRefused as refused:
            raise SubmitRefused(
                refused.message, written=False, code=refused.code
            ) from refused
        if not isinstance(reply.get("turn"), str):
            raise SubmitRefused("the answer names no turn", written=True)
        return TurnRef(reply["turn"])

    async def steer(self, turn: TurnRef, item: InputItem) -> None:
        self._conversation.reading.expect([item])
        fields = {"turn": turn.id, "key": item.key, "text": item.text}
        try:
            await self._conversation.ask(wire.STEER, fields)
        except RuntimeRefused as refused:
            raise SteerRefused(
                refused.message, written=False, code=refused.code
            ) from refused

    async def next_step(self, turn: TurnRef, items: Sequence[InputItem]) -> None:
        raise RuntimeRefused("rehearsal takes its steps by itself")

    async def interrupt(self, turn: TurnRef | None) -> None:
        reading = self._conversation.reading
        await self._conversation.until(lambda: bool(turn or reading.active))
        cut = cast("TurnRef", turn or reading.active)
        try:
            # The end that is seen counts, even if the answer was lost.
            await self._conversation.ask(
                wire.INTERRUPT, {"turn": cut.id}, lambda: reading.has_ended(cut)
            )
        except RuntimeRefused as refused:
            if reading.has_ended(cut):
                return
            named = refused.named if isinstance(refused, Refusal) else None
            raise InterruptRefused(
                refused.message, TurnRef(named) if named else None
            ) from refused

    async def answer(self, ask: AskRef, outcome: ApprovalOutcome) -> None:
        await self._conversation.tell("answer", ask=ask.id, outcome=outcome)

    async def tool_result(self, call: CallRef, text: str, *, error: bool) -> None:
        await self._conversation.tell(
            "tool_result", call=call.id, text=text, error=error
        )

    async def history(self, keys: Mapping[str, ItemId]) -> Mapping[ItemId, ItemOutcome]:
        reply = await self._conversation.ask(wire.HISTORY, {"keys": list(keys)})
        found = reply.get("items")
        if not isinstance(found, dict):
            return {}
        outcomes = cast("dict[str, object]", found)
        return {item: outcome_of(outcomes.get(key)) for key, item in keys.items()}

    async def maintain(self, task: str) -> str:
        """Run it; if cancelled, the program is told to stop before this returns."""
        wanted = True
        try:
            reply = await self._conversation.ask(wire.MAINTAIN, {"task": task})
            wanted = False
            return str(reply.get("text", ""))
        except RuntimeFailure:
            wanted = False
            raise
        finally:
            if wanted:
                await self._abort()

    async def _abort(self) -> None:
        bound = trio.current_time() + ABORT_SECONDS
        with trio.CancelScope(shield=True, deadline=bound), suppress(RuntimeFailure):
            await self._conversation.tell("abort")
