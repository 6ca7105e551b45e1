"""Services that a session asks: listeners, answerers, the server; all bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from agentteam_supervisor.approval.policy import read_outcome
from agentteam_supervisor.session.events import (
    ApprovalAnswered,
    Event,
    HistoryRead,
    PreStepDecided,
    SendAnswered,
)
from agentteam_supervisor.session.ports import Entered, Rejected
from agentteam_supervisor.session.words import REJECTED, UNREAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_protocol.approval import ApprovalRequest
    from agentteam_protocol.ids import ApprovalId
    from agentteam_protocol.inbox import Item
    from agentteam_supervisor.session import effects as fx
    from agentteam_supervisor.session.deadlines import Limits
    from agentteam_supervisor.session.ports import Ports


class Services:
    def __init__(
        self, ports: Ports, limits: Limits, feed: Callable[[Event], None]
    ) -> None:
        self._ports = ports
        self._limits = limits
        self._feed = feed
        self._consults: dict[ApprovalId, trio.CancelScope] = {}

    # --- agent/pre-step -----------------------------------------------------------

    def admit_at_once(self, effect: fx.PreStep) -> bool:
        """Without a listener everything enters, before the step's caller goes on."""
        if self._ports.listeners:
            return False
        self._feed(PreStepDecided(effect.batch, effect.items))
        return True

    async def ask_listeners(self, effect: fx.PreStep) -> None:
        decision = await self._waterfall(effect.items)
        match decision:
            case Entered(items):
                self._feed(PreStepDecided(effect.batch, items))
            case Rejected(reason):
                self._feed(PreStepDecided(effect.batch, None, reason))

    async def _waterfall(self, items: tuple[Item, ...]) -> Entered | Rejected:
        for listener in self._ports.listeners:
            try:
                decision = await listener(items)
            except Exception as error:
                # A listener is a host's code, and its fault blocks one batch.
                return Rejected(f"a listener failed: {error!r}")
            match _read_decision(decision):
                case Entered(items):
                    pass
                case Rejected() as rejected:
                    return rejected
        return Entered(items)

    # --- approval/request ---------------------------------------------------------

    async def consult(self, request: ApprovalRequest) -> None:
        with trio.CancelScope() as scope:
            self._consults[request.id] = scope
            try:
                outcome = read_outcome(await self._ports.consult(request))
            finally:
                self._consults.pop(request.id, None)
            self._feed(ApprovalAnswered(request.id, outcome))

    def withdraw(self, approval: ApprovalId) -> None:
        if (scope := self._consults.get(approval)) is not None:
            scope.cancel()

    # --- the server -----------------------------------------------------------------

    async def judge(self, effect: fx.JudgeSend) -> None:
        answer = SendAnswered(effect.send, "unknown")
        with trio.move_on_after(self._limits.request):
            answer = await self._ports.judge(effect)
        self._feed(answer)

    async def read(self, effect: fx.ReadTarget) -> None:
        answer = _unread(effect, UNREAD)
        with trio.move_on_after(self._limits.request):
            answer = await self._ports.read(effect)
        self._feed(answer)

    def stopped_send(self, effect: fx.JudgeSend) -> SendAnswered:
        return SendAnswered(effect.send, "rejected")

    def stopped_read(self, effect: fx.ReadTarget) -> HistoryRead:
        return _unread(effect, REJECTED)


def _read_decision(value: object) -> Entered | Rejected:
    """Take a host's word as it is; no decision lets nothing in."""
    if isinstance(value, Entered | Rejected):
        return value
    return Rejected("a listener gave no decision")


def _unread(effect: fx.ReadTarget, words: str) -> HistoryRead:
    return HistoryRead(effect.call, effect.gen, None, (), words, error=True)
