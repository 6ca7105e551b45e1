"""Visible sends and reads of the agent: judged here first, then by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState, Evidence
from agentteam_protocol.ids import Generation, SendId, TargetId
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.pending import waiting
from agentteam_supervisor.session.state import OpenSend
from agentteam_supervisor.session.words import HELD, REJECTED, UNKNOWN

if TYPE_CHECKING:
    from agentteam_protocol.inbox import Item
    from agentteam_runtimes.driver import CallRef, ReadCalled, SendCalled
    from agentteam_supervisor.session.work import Work


def send_called(w: Work, inc: int, e: SendCalled) -> None:
    """Take an open run's send to the server's compare-and-set (t29)."""
    turn = w.open_turn
    number = turn.number if turn is not None else 0
    send = SendId(w.serial("snd"))
    opened = OpenSend(send, w.gen, e.target, e.text, e.call, inc, number)
    w.set(sends={**w.live.sends, send: opened})
    w.do(fx.JudgeSend(send, w.gen, e.target, e.text))


def refuse_call(w: Work, inc: int, call: CallRef, gen: Generation | None) -> None:
    """Answer a call of a run that is not open any more, or that nobody knows."""
    w.do(fx.ToolReply(inc, call, _cut_words(w, gen), error=True))


def send_answered(w: Work, e: ev.SendAnswered) -> None:
    opened = w.live.sends.get(e.send)
    if opened is None:
        return
    w.set(sends={s: o for s, o in w.live.sends.items() if s != e.send})
    target = e.target or TargetId(opened.target)
    forwarded = e.verdict == "forwarded"
    w.record(
        j.SendDecided(
            opened.gen,
            target,
            e.verdict,
            send_id=e.send,
            seq=e.seq if forwarded else None,
            text=opened.text,
            auto_reply=opened.call is None,
        )
    )
    if opened.call is not None:
        text = _words(w, opened, e)
        reply = fx.ToolReply(opened.inc, opened.call, text, error=not forwarded)
        w.do(reply)
    if w.is_open and opened.gen == w.gen and opened.call is not None:
        for shown, seqs in e.shown.items():
            _seen(w, shown, seqs, "attached to a held reply")


def _words(w: Work, opened: OpenSend, e: ev.SendAnswered) -> str:
    """What cannot be known, and that a run is cut, is said here and nowhere else."""
    if e.verdict == "unknown":
        return UNKNOWN
    if e.verdict == "forwarded" or (w.is_open and opened.gen == w.gen):
        return e.text or e.verdict
    return _cut_words(w, opened.gen)


def _cut_words(w: Work, gen: Generation | None) -> str:
    return HELD if gen == w.gen and not w.is_open else REJECTED


def read_called(w: Work, inc: int, e: ReadCalled) -> None:
    w.set(reads={**w.live.reads, (w.gen, e.call.id): inc})
    w.do(fx.ReadTarget(e.call, w.gen, e.target, e.after))


def history_read(w: Work, e: ev.HistoryRead) -> None:
    """What `read_history` hands to an open run is seen, and exactly that (t30)."""
    inc = w.live.reads.get((e.gen, e.call.id))
    if inc is None:
        return
    w.set(reads={r: i for r, i in w.live.reads.items() if r != (e.gen, e.call.id)})
    if e.gen != w.gen or not w.is_open:
        refuse_call(w, inc, e.call, e.gen)
        return
    w.do(fx.ToolReply(inc, e.call, e.text, error=e.error))
    if not e.error and e.target is not None:
        _seen(w, e.target, e.seqs, "read_history")


def _seen(w: Work, target: TargetId, seqs: tuple[int, ...], how: str) -> None:
    if seqs:
        w.record(j.FrontierMoved(target, seqs))
    shown = tuple(i for i in waiting(w.ledger.lanes) if _shows(i, target, seqs))
    if not shown:
        return
    w.record(j.InboxSpliced(j.SpliceReason.shown, tuple(i.id for i in shown)))
    for item in shown:
        w.change(item, DeliveryState.surfaced, evidence=Evidence(how))


def _shows(item: Item, target: TargetId, seqs: tuple[int, ...]) -> bool:
    ordinary = item.delivery is not None and item.policy is None
    return ordinary and item.target == target and item.seq in seqs
