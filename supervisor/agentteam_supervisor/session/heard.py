"""
What the runtime says, tied to its generation; the fence is the first rule.

An event of a generation that is not OPEN is either a balancing record of its own
turn, still open under HOLD, or diagnostic history (t28).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, assert_never

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx
from agentteam_supervisor.session.asks import asked, withdrawn
from agentteam_supervisor.session.cuts import turn_named, turn_over
from agentteam_supervisor.session.processes import name_session
from agentteam_supervisor.session.sends import read_called, refuse_call, send_called
from agentteam_supervisor.session.settle import late_evidence, settle, surface
from agentteam_supervisor.session.state import Chunk, Ended, OpenTurn, Phase
from agentteam_supervisor.session.turns import end_later, name_turn, step_ended

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_supervisor.session.work import Work

# Late events of one turn are kept up to this number; a flood is no diagnostic.
MAX_LATE = 20


def hear(w: Work, inc: int, e: d.RuntimeEvent) -> None:
    """Handle one event of incarnation `inc`; nothing a runtime sends is fatal."""
    if inc == w.ledger.inc + 1 and isinstance(e, d.SessionNamed):
        w.set(named=e.resume)  # it counts once the handshake is done
        return
    if inc != w.ledger.inc:
        _late(w, inc, e)
        return
    match e:
        case d.TurnStarted():
            if name_turn(w, e.batch, e.turn):
                turn_named(w)
            else:
                _keep_late(w, e.turn.id, "a turn nobody asked for")
        case d.SessionNamed():
            name_session(w, e.resume)
        case d.Surfaced():
            _surfaced(w, e)
        case d.AskClosed():
            withdrawn(w, e.ask)
        case d.Noticed(told=True):
            w.record(j.RunNotice(e.what, e.detail[:2000]))
        case d.Noticed():
            _keep_late(w, f"notice {inc}", e.what, e.detail)
        case d.Exited():
            pass  # the actor turns it into `ProcessGone`, after the tree is gone
        case _:
            _of_turn(w, inc, e)


def joined(events: Sequence[d.RuntimeEvent]) -> list[d.RuntimeEvent]:
    """Join the pieces of text that came in one read: they are shown at once anyway."""
    if sum(isinstance(event, d.Output) for event in events) < 2:
        return list(events)
    result: list[d.RuntimeEvent] = []
    for _, group in groupby(events, key=_place):
        pieces = list(group)
        texts = [piece.text for piece in pieces if isinstance(piece, d.Output)]
        if len(texts) > 1 and isinstance(first := pieces[0], d.Output):
            result.append(d.Output(first.turn, "".join(texts)))
        else:
            result += pieces
    return result


def _place(event: d.RuntimeEvent) -> object:
    """Pieces of one turn have the same place, everything else has its own."""
    return event.turn if isinstance(event, d.Output) else event


_OfTurn = (
    d.TurnEnded
    | d.StepEnded
    | d.Output
    | d.Said
    | d.ToolStarted
    | d.ToolEnded
    | d.Asked
    | d.SendCalled
    | d.ReadCalled
)


def _of_turn(w: Work, inc: int, e: _OfTurn) -> None:
    turn = w.open_turn
    current = e.turn is not None and e.turn == w.live.runtime_turn
    # What a sweep ended still has its result, while the turn is open here.
    over = w.live.ended is not None and not isinstance(e, d.ToolEnded)
    if turn is None or not current or over:
        _late(w, inc, e)
    elif w.is_open and w.phase is Phase.running:
        _open(w, inc, e, turn)
    else:
        _held(w, inc, e, turn)


def _open(w: Work, inc: int, e: _OfTurn, turn: OpenTurn) -> None:
    match e:
        case d.TurnEnded():
            settle(w, e.items)
            end_later(w, _ended(e))
        case d.StepEnded():
            step_ended(w, more=e.more)
        case d.Output():
            w.set(said=Chunk(e.text, w.live.said))
            w.do(fx.Progress(turn.run_id, w.gen, e.text))
        case d.Said():
            if w.live.said is not None:
                w.set(said=None)
            w.record(j.AssistantMessage(turn.number, e.text))
        case d.ToolStarted():
            if e.call_id not in turn.calls:
                w.record(j.ToolCall(turn.number, e.call_id, e.name, e.input))
        case d.ToolEnded():
            _tool_ended(w, e, turn)
        case d.Asked():
            asked(w, inc, e, turn)
        case d.SendCalled():
            send_called(w, inc, e)
        case d.ReadCalled():
            read_called(w, inc, e)
        case _:
            assert_never(e)


def _held(w: Work, inc: int, e: _OfTurn, turn: OpenTurn) -> None:
    """Under HOLD: the turn's own end and balancing records, no effect."""
    match e:
        case d.TurnEnded():
            settle(w, e.items)
            turn_over(w, _ended(e))
        case d.ToolEnded():
            _tool_ended(w, e, turn)
        case _:
            _late(w, inc, e)


def _ended(e: d.TurnEnded) -> Ended:
    return Ended(e.status, e.detail, e.text, e.usage, e.advice)


def _surfaced(w: Work, e: d.Surfaced) -> None:
    """Evidence counts until its turn is closed, also while its end is settled."""
    flight = w.ledger.in_flight.get(e.item)
    ours = w.open_turn is not None and e.turn == w.live.runtime_turn
    if ours and flight is not None and (flight.item.key == e.key or flight.carried):
        surface(w, flight.item, e.evidence)
    else:
        late_evidence(w, e.item, e.key)


def _tool_ended(w: Work, e: d.ToolEnded, turn: OpenTurn) -> None:
    if e.call_id in turn.calls:
        w.record(j.ToolResult(turn.number, e.call_id, e.output, e.error))


def _late(w: Work, inc: int, e: d.RuntimeEvent) -> None:
    """Keep it as history, refuse what it asks for, show nothing of it as live."""
    match e:
        case d.Asked():
            held = w.gen_of(e.turn) == w.gen and not w.is_open
            outcome = ApprovalOutcome.cancelled if held else ApprovalOutcome.rejected
            w.do(fx.Deny(inc, e.ask, outcome))
            _keep(w, e.turn, "ask", e.tool_name)
        case d.SendCalled():
            refuse_call(w, inc, e.call, w.gen_of(e.turn))
            _keep(w, e.turn, "send", e.text)
        case d.ReadCalled():
            refuse_call(w, inc, e.call, w.gen_of(e.turn))
        case d.Surfaced():
            late_evidence(w, e.item, e.key)
        case d.Output() | d.Said():
            _keep(w, e.turn, "output", e.text)
        case d.ToolStarted():
            _keep(w, e.turn, "tool call", e.name)
        case d.ToolEnded():
            _keep(w, e.turn, "tool result", e.call_id)
        case d.TurnEnded():
            _keep(w, e.turn, "turn end", e.status)
        case _:
            pass


def _keep(w: Work, turn: d.TurnRef | None, what: str, detail: str) -> None:
    key = turn.id if turn is not None else "no turn"
    _keep_late(w, key, what, detail, turn)


def _keep_late(
    w: Work, key: str, what: str, detail: str = "", turn: d.TurnRef | None = None
) -> None:
    count = w.live.late.get(key, 0) + 1
    late = {k: n for k, n in list(w.live.late.items())[-MAX_LATE:] if k != key}
    w.set(late={**late, key: count})
    if count <= MAX_LATE:
        w.record(j.FenceLate(w.gen_of(turn), what, detail[:2000]))
