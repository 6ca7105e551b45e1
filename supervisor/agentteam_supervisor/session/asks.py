"""Approvals inside the machine: asked by an open run, decided once, never by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.ids import ApprovalId
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import OpenAsk, OpenTurn, Phase

if TYPE_CHECKING:
    from agentteam_runtimes.driver import Asked, AskRef
    from agentteam_supervisor.session.work import Work


def asked(w: Work, inc: int, e: Asked, turn: OpenTurn) -> None:
    """An open run asks: `never` decides before anybody is asked (R76, R80)."""
    request = ApprovalRequest(
        id=ApprovalId(w.serial("apr")),
        run_id=turn.run_id,
        tool_name=e.tool_name,
        input=e.input,
        call_id=e.call_id,
        reason=e.reason,
    )
    w.record(j.ApprovalAsked(turn.number, request))
    if w.asks_nobody:
        rejected = ApprovalOutcome.rejected
        w.record(j.ApprovalDecided(turn.number, request.id, rejected))
        w.do(fx.Deny(inc, e.ask, rejected))
        return
    opened = OpenAsk(request.id, e.ask, w.gen, inc)
    w.set(asks={**w.live.asks, request.id: opened})
    w.do(fx.Consult(request))


def answered(w: Work, e: ev.ApprovalAnswered) -> None:
    """The answer races the cut: one that comes late is discarded and told so."""
    opened = w.live.asks.get(e.approval)
    if opened is None or w.open_turn is None:
        w.reply(e.ref, error="already_decided: the approval is no longer open")
        return
    _decide(w, opened, e.outcome)
    w.do(fx.WithdrawAsk(opened.approval))
    if e.outcome is ApprovalOutcome.allowed_once:
        w.do(fx.Allow(opened.inc, opened.gen, opened.ask))
    else:
        w.do(fx.Deny(opened.inc, opened.ask, e.outcome))
    w.reply(e.ref, value=e.outcome)


def withdrawn(w: Work, ask: AskRef) -> None:
    """The runtime does not wait for it any more."""
    for opened in tuple(w.live.asks.values()):
        if opened.ask == ask and w.open_turn is not None:
            _decide(w, opened, ApprovalOutcome.cancelled)
            w.do(fx.WithdrawAsk(opened.approval))


def _decide(w: Work, opened: OpenAsk, outcome: ApprovalOutcome) -> None:
    assert w.open_turn is not None
    w.record(j.ApprovalDecided(w.open_turn.number, opened.approval, outcome))
    w.set(asks={a: o for a, o in w.live.asks.items() if a != opened.approval})


def chosen(w: Work, e: ev.PolicyChosen) -> None:
    if w.phase is not Phase.closed and e.policy != w.ledger.policy:
        w.record(j.ApprovalPolicySet(e.policy))
