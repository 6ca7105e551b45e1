"""
The permission requests of an agent. Pure.

The agent blocks on each, so each gets exactly one reply (B26). A grant is the option of
the kind `allow_once` and no other: one that allows for ever is more than was decided.
At a cut all are answered `cancelled`, before the cut: OpenCode takes a yes that comes
after its cancel, and runs the command (measured).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.driver import AskClosed, Asked, AskRef, TurnRef
from agentteam_runtimes.jsonlines import JsonObject
from agentteam_runtimes.jsonrpc import RequestId

if TYPE_CHECKING:
    from agentteam_runtimes.jsonrpc import Request

Reply = tuple[RequestId, JsonObject]

KINDS = {
    ApprovalOutcome.allowed_once: ("allow_once",),
    ApprovalOutcome.rejected: ("reject_once", "reject_always"),
    ApprovalOutcome.unavailable: ("reject_once", "reject_always"),
    ApprovalOutcome.cancelled: (),
}


@frozen
class _Open:
    request: RequestId
    options: dict[str, str]  # the first option of each kind


@define
class Asks:
    """The permission requests that wait for a decision; one turn has them all."""

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def ask(self, request: Request, turn: TurnRef | None, shown: str) -> Asked:
        """Open an ask; `shown` is what its tool was given, by the call itself."""
        call = jsonfields.mapping(request.params, "toolCall")
        options: dict[str, str] = {}
        for option in jsonfields.objects(request.params, "options"):
            kind = jsonfields.text(option, "kind")
            options.setdefault(kind, jsonfields.text(option, "optionId"))
        ask = AskRef(mint("ask"))
        self._open[ask.id] = _Open(request.id, options)
        return Asked(
            turn,
            ask,
            jsonfields.text(call, "kind") or "tool",
            input=shown,
            call_id=jsonfields.text(call, "toolCallId") or None,
            reason=jsonfields.text(call, "title") or None,
        )

    def decide(self, ask: AskRef, outcome: ApprovalOutcome) -> Reply | None:
        """Take a decision: what to reply to which request; None if it is closed."""
        opened = self._open.pop(ask.id, None)
        if opened is None:
            return None
        for kind in KINDS[outcome]:
            if option := opened.options.get(kind):
                return opened.request, wire.selected(option)
        return opened.request, wire.CANCELLED

    def waiting(self) -> list[Reply]:
        """Say what a cut replies; the asks stay open until their turn has ended."""
        return [(opened.request, wire.CANCELLED) for opened in self._open.values()]

    def turn_ended(self) -> list[AskClosed]:
        """Close what is open: no ask outlives its turn."""
        names = list(self._open)
        self._open.clear()
        return [AskClosed(AskRef(name)) for name in names]
