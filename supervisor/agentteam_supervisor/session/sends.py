"""Visible sends and reads of the agent: judged here first, then by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState, Evidence
from agentteam_protocol.ids import Generation, SendId, TargetId
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.pending import waiting
from agentteam_supervisor.session.state import OpenSend

if TYPE_CHECKING:
    from agentteam_protocol.inbox import Item
    from agentteam_runtimes.driver import CallRef, ReadCalled, SendCalled
    from agentteam_supervisor.session.work import Work

# interrupt spec §6.2: a clear word before the old run and the new request can race.
HELD = (
    "Held: the current run was interrupted by a new message. "
    "Do not send; the new message is your next input."
)
REJECTED = (
    "Rejected: this run was interrupted and is over. Stop sending; "
    "nothing of it is published any more."
)
_UNKNOWN = (
    "Outcome unknown: the link to the server was lost. Call read_history for the "
    "target first; do not send it again before."
)


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
    held = gen == w.gen and not w.is_open
    w.do(fx.ToolReply(inc, call, HELD if held else REJECTED, error=True))


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
        text = e.text or (_UNKNOWN if e.verdict == "unknown" else e.verdict)
        reply = fx.ToolReply(opened.inc, opened.call, text, error=not forwarded)
        w.do(reply)
    if w.is_open and opened.gen == w.gen and opened.call is not None:
        for shown, seqs in e.shown.items():
            _seen(w, shown, seqs, "attached to a held reply")


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
        assert item.delivery is not None
        w.record(
            j.DeliveryChanged(
                item.delivery,
                DeliveryState.surfaced,
                item.attempt,
                w.gen,
                evidence=Evidence(how),
            )
        )


def _shows(item: Item, target: TargetId, seqs: tuple[int, ...]) -> bool:
    ordinary = item.delivery is not None and item.policy is None
    return ordinary and item.target == target and item.seq in seqs
