"""
The approvals that people decide, and the fence before every call of a tool. Pure.

Claude asks only for what its own rules do not already allow. The hook before a call is
asked for every one: there the calls of a turn that is being cut are denied, also those
that need no approval.
"""

from __future__ import annotations

from attrs import define, field, frozen

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import AskClosed, Asked, AskRef, TurnRef
from agentteam_runtimes.excerpts import as_json
from agentteam_runtimes.jsonlines import JsonObject

FENCE = "fence"

CUT = "The run was interrupted; stop here."
# What the model reads. A cancelled ask ends the turn, too: only a cut cancels one.
REASONS = {
    ApprovalOutcome.rejected: "The user rejected this call.",
    ApprovalOutcome.cancelled: CUT,
    ApprovalOutcome.unavailable: "Nobody could decide about this call.",
}


@frozen
class _Open:
    request: str
    turn: str
    input: JsonObject


@define
class Asks:
    """The approvals that wait for a decision."""

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def ask(self, id: str, request: JsonObject, turn: TurnRef | None) -> Asked:
        ask = AskRef(mint("ask"))
        given = jsonfields.mapping(request, "input")
        self._open[ask.id] = _Open(id, turn.id if turn else "", given)
        return Asked(
            turn,
            ask,
            jsonfields.text(request, "tool_name"),
            input=as_json(given),
            call_id=jsonfields.text(request, "tool_use_id") or None,
            reason=jsonfields.text(request, "decision_reason", "description") or None,
        )

    def decide(
        self, ask: AskRef, outcome: ApprovalOutcome
    ) -> tuple[str, JsonObject] | None:
        """Take a decision: what to answer to which request; None if it is closed."""
        opened = self._open.pop(ask.id, None)
        if opened is None:
            return None
        if outcome is ApprovalOutcome.allowed_once:
            # Older versions deny an allow that does not repeat the input.
            return opened.request, {"behavior": "allow", "updatedInput": opened.input}
        ends = outcome is ApprovalOutcome.cancelled
        denied: JsonObject = {"behavior": "deny", "message": REASONS[outcome]}
        return opened.request, denied | ({"interrupt": True} if ends else {})

    def withdrawn(self, request: str) -> list[AskClosed]:
        """Close the ask that Claude no longer waits for."""
        return self._close([k for k, o in self._open.items() if o.request == request])

    def turn_ended(self, turn: str) -> list[AskClosed]:
        return self._close([k for k, o in self._open.items() if o.turn == turn])

    def _close(self, names: list[str]) -> list[AskClosed]:
        for name in names:
            del self._open[name]
        return [AskClosed(AskRef(name)) for name in names]


def fence(cut: bool) -> JsonObject:
    """Answer the hook before a call: deny it, or leave it to Claude's own rules."""
    if not cut:
        return {}
    denied = {"permissionDecision": "deny", "permissionDecisionReason": CUT}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **denied}}
