"""The asks of an OpenCode server for permission. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define, field, frozen

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import mint
from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import AskClosed, Asked, AskRef, TurnRef
from agentteam_runtimes.excerpts import as_json
from agentteam_runtimes.opencode import wire
from agentteam_runtimes.opencode.tools import call_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_runtimes.jsonlines import JsonObject


@frozen
class _Open:
    request: str
    turn: str


@define
class Asks:
    """
    The asks that wait for a decision.

    OpenCode leaves one open when its turn is aborted, and a late yes can still run what
    it asked for: so a turn's asks are rejected before it is cut, and no yes is passed
    on for a turn that is cut or over.
    """

    _open: dict[str, _Open] = field(factory=dict[str, _Open])

    def ask(self, request: JsonObject, turn: TurnRef | None, ours: str) -> list[Asked]:
        """Open an ask; `ours` is our session, all others are sub-agents."""
        id, session = (
            jsonfields.text(request, "id"),
            jsonfields.text(request, "sessionID"),
        )
        if not id or any(o.request == id for o in self._open.values()):
            return []
        ask = AskRef(mint("ask"))
        self._open[ask.id] = _Open(id, turn.id if turn else "")
        call = jsonfields.text(jsonfields.mapping(request, "tool"), "callID")
        foreign = "" if session == ours else session
        shown = jsonfields.mapping(request, "metadata") or {
            "patterns": request.get("patterns")
        }
        name = jsonfields.text(request, "permission") or "tool"
        called = call_id(call, foreign) if call else None
        return [Asked(turn, ask, name, input=as_json(shown), call_id=called)]

    def decide(
        self, ask: AskRef, outcome: ApprovalOutcome, is_over: Callable[[str], bool]
    ) -> tuple[str, JsonObject] | None:
        """Take a decision: what to reply to which request; None if it is closed."""
        opened = self._open.pop(ask.id, None)
        if opened is None:
            return None
        if outcome is ApprovalOutcome.allowed_once and is_over(opened.turn):
            outcome = ApprovalOutcome.cancelled
        return opened.request, wire.reply(outcome)

    def replied(self, request: str) -> list[AskClosed]:
        """Close the ask of a request that has its reply."""
        names = [name for name, o in self._open.items() if o.request == request]
        return self._close(names)

    def withdraw(self) -> tuple[list[str], list[AskClosed]]:
        """Close all: which requests are to be rejected."""
        requests = [opened.request for opened in self._open.values()]
        return requests, self._close(list(self._open))

    def _close(self, names: list[str]) -> list[AskClosed]:
        for name in names:
            del self._open[name]
        return [AskClosed(AskRef(name)) for name in names]
