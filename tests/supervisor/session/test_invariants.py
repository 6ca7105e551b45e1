"""
The session machine under thousands of hostile steps, against the oracle.

`AGENTTEAM_HYPOTHESIS=thorough` runs far longer. A failure prints the blob that
reproduces it.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, Phase as Pass, settings, strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
)
from tests.kit.driving import (
    AGENT,
    BROKEN,
    SEEN,
    Drive,
    Manner,
    followup,
    injected,
    reloaded,
    steering,
)
from tests.kit.people import TARGETS, People

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import DeliveryId, ItemId, TargetId
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.state import Ledger, Phase, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

THOROUGH = os.environ.get("AGENTTEAM_HYPOTHESIS") == "thorough"
SETTINGS = settings(
    max_examples=3000 if THOROUGH else 120,
    stateful_step_count=80 if THOROUGH else 40,
    deadline=None,
    derandomize=not THOROUGH,
    database=None,
    print_blob=True,
    # A failing run is short enough to read; shrinking it takes minutes.
    phases=list(Pass) if THOROUGH else [Pass.explicit, Pass.generate],
    suppress_health_check=list(HealthCheck),
)

pytestmark = pytest.mark.inv(
    *(1, 2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24),
    *(25, 26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38),
)

OUTCOMES = st.sampled_from(list(d.ItemOutcome))
STATUSES = st.sampled_from(list(d.TurnStatus))


class Sessions(People):
    """With them, what runtimes, services and clocks do."""

    # --- what the machine wants, well or badly ------------------------------------------

    def _pick(self, pick: int) -> fx.Effect | None:
        owed = self.drive.owed
        return owed[pick % len(owed)] if owed else None

    @rule(pick=st.integers(0, 20), outcome=OUTCOMES, allows=st.booleans())
    def perform(self, pick: int, outcome: d.ItemOutcome, allows: bool) -> None:
        effect = self._pick(pick)
        if effect is not None:
            self.drive.perform(effect, Manner(outcome=outcome, allows=allows))

    @rule()
    def perform_all(self) -> None:
        self.drive.answer_all()

    @rule(written=st.booleans(), started_first=st.booleans(), refused=st.booleans())
    def submit(self, written: bool, started_first: bool, refused: bool) -> None:
        for effect in self.drive.wanted(fx.Submit)[:1]:
            if not refused and effect.turn is None:
                self.drive.owed.remove(effect)
                self.drive.submit(effect, started_first=started_first)
            elif refused and effect.turn is None:
                self.drive.owed.remove(effect)
                self.drive.feed(ev.SubmitFailed(effect.batch, written, "refused"))

    @rule(written=st.booleans())
    def steer_refused(self, written: bool) -> None:
        for effect in self.drive.wanted(fx.SteerItem)[:1]:
            self.drive.owed.remove(effect)
            self.drive.feed(ev.SteerFailed(effect.item.id, written, "mismatch"))

    @rule(names=st.booleans())
    def interrupt_refused(self, names: bool) -> None:
        for effect in self.drive.wanted(fx.Interrupt)[:1]:
            self.drive.owed.remove(effect)
            named = self.drive.turn if names else None
            self.drive.feed(ev.InterruptFailed(effect.inc, "refused", named))

    @rule()
    def interrupt_taken_late(self) -> None:
        for effect in self.drive.wanted(fx.Interrupt)[:1]:
            self.drive.owed.remove(effect)
            self.drive.feed(ev.InterruptTaken(effect.inc))

    @rule()
    def start_failed(self) -> None:
        for effect in self.drive.wanted(fx.OpenRuntime)[:1]:
            self.drive.owed.remove(effect)
            self.drive.feed(ev.StartFailed(effect.inc, BROKEN))

    @rule(lost=st.booleans(), named=st.booleans(), outcome=OUTCOMES)
    def start(self, lost: bool, named: bool, outcome: d.ItemOutcome) -> None:
        for effect in self.drive.wanted(fx.OpenRuntime)[:1]:
            self.drive.owed.remove(effect)
            if named:
                self.drive.hear(d.SessionNamed(f"s{self.name()}"), inc=effect.inc)
            settled = {} if lost else {i.id: outcome for i in effect.unsettled}
            self.drive.inc = effect.inc
            self.drive.feed(
                ev.RuntimeReady(
                    effect.inc,
                    self.drive.able,
                    settled,
                    self.drive.in_process,
                    history_lost=lost,
                )
            )

    @rule()
    def kill_failed(self) -> None:
        for effect in self.drive.wanted(fx.Kill)[:1]:
            self.drive.owed.remove(effect)
            self.drive.feed(ev.KillFailed(effect.inc))

    @rule(drop=st.sampled_from([fx.Terminate, fx.Sweep, fx.Settle, fx.Interrupt]))
    def lost_in_the_runtime(self, drop: type[fx.Effect]) -> None:
        for effect in self.drive.wanted(drop)[:1]:
            self.drive.owed.remove(effect)

    @rule(pick=st.integers(0, 9))
    def deadline(self, pick: int) -> None:
        armed = list(self.drive.armed)
        if armed:
            self.drive.pass_deadline(armed[pick % len(armed)])

    @rule(
        what=st.sampled_from(["reject", "rewrite", "select", "cancel", "inject"]),
    )
    def listener(self, what: str) -> None:
        for effect in self.drive.wanted(fx.PreStep)[:1]:
            self.drive.owed.remove(effect)
            items: tuple[Item, ...] | None = effect.items
            match what:
                case "reject":
                    items = None
                case "rewrite":
                    items = tuple(evolve(i, body=i.body) for i in effect.items)
                case "select":
                    items = effect.items[:1]
                case "cancel":
                    self.drive.feed(ev.CancelRequested("inside"))
                case _:
                    self.drive.send(injected(self.name()), steering(self.name()))
            self.drive.feed(ev.PreStepDecided(effect.batch, items, "no"))

    @rule(outcome=st.sampled_from(list(ApprovalOutcome)), twice=st.booleans())
    def answer(self, outcome: ApprovalOutcome, twice: bool) -> None:
        for effect in self.drive.wanted(fx.Consult)[:1]:
            self.drive.owed.remove(effect)
            for _ in range(1 + twice):
                event = ev.ApprovalAnswered(effect.request.id, outcome, self.ref())
                self.drive.feed(event)

    @rule(verdict=st.sampled_from(["forwarded", "held", "unknown"]))
    def judge(self, verdict: str) -> None:
        for effect in self.drive.wanted(fx.JudgeSend)[:1]:
            self.drive.owed.remove(effect)
            target = TargetId(effect.target)
            head = self.seqs.get(effect.target, 0)
            seq = None
            shown = {}
            if verdict == "forwarded" and self.drive.session.is_open(effect.gen):
                self.seqs[effect.target] = seq = head + 1
            elif verdict == "held":
                shown = {target: tuple(range(1, head + 1))}
            self.drive.feed(
                ev.SendAnswered(effect.send, verdict, seq, target, verdict, shown)
            )

    @rule()
    def history_read(self) -> None:
        for effect in self.drive.wanted(fx.ReadTarget)[:1]:
            self.drive.owed.remove(effect)
            seqs = tuple(range(1, self.seqs.get(effect.target, 0) + 1))
            target = TargetId(effect.target)
            self.drive.feed(
                ev.HistoryRead(effect.call, effect.gen, target, seqs, "text")
            )

    # --- the runtime by itself -----------------------------------------------------------

    def alive(self) -> bool:
        return self.drive.turn is not None

    @precondition(alive)
    @rule(
        status=STATUSES,
        outcome=OUTCOMES,
        names=st.booleans(),
        surfaces=st.booleans(),
    )
    def turn_done(
        self,
        status: d.TurnStatus,
        outcome: d.ItemOutcome,
        names: bool,
        surfaces: bool,
    ) -> None:
        for item in tuple(self.drive.held) if surfaces else ():
            if self.drive.turn is not None:
                self.drive.surface(item)
        if self.drive.turn is not None:
            named = dict.fromkeys(self.drive.held, outcome) if names else {}
            self.drive.end(status, named, text=self.body("the answer"))

    @precondition(lambda self: self.alive() and self.drive.able.steps)
    @rule(more=st.booleans())
    def boundary(self, more: bool) -> None:
        if not self.drive.at_boundary:
            self.drive.boundary(more=more)

    @precondition(alive)
    @rule(
        what=st.sampled_from(["chunk", "said", "call", "gated", "done", "again"]),
        n=st.integers(1, 3),
    )
    def output(self, what: str, n: int) -> None:
        turn, call = self.drive.turn, f"c{self.drive.turns}-{n}"
        match what:
            case "chunk":
                self.drive.hear(d.Output(turn, self.body("piece")))
            case "said":
                self.drive.hear(d.Said(turn, self.body("all")))
            case "call":
                self.drive.hear(d.ToolStarted(turn, call, "shell"))
            case "gated":
                ask = d.AskRef(self.name())
                self.drive.hear(
                    d.ToolStarted(turn, call, "shell"),
                    d.Asked(turn, ask, "shell", call_id=call),
                )
            case "done":
                open_turn = self.drive.session.ledger.turn
                gated = open_turn is not None and call in open_turn.withheld
                if not gated:
                    self.drive.hear(d.ToolEnded(turn, call, "out"))
            case _:
                self.drive.hear(d.AskClosed(d.AskRef(f"i{self.names}")))

    @precondition(alive)
    @rule(where=TARGETS, read=st.booleans())
    def agent_tool(self, where: str, read: bool) -> None:
        turn, call = self.drive.turn, d.CallRef(self.name())
        if read:
            self.drive.hear(d.ReadCalled(turn, call, where))
        else:
            self.drive.hear(d.SendCalled(turn, call, where, self.body("reply")))

    @precondition(lambda self: self.drive.held and self.alive())
    @rule(pick=st.integers(0, 9), wrong=st.booleans())
    def surfaced(self, pick: int, wrong: bool) -> None:
        item = list(self.drive.held)[pick % len(self.drive.held)]
        turn = self.drive.turn
        assert turn is not None
        if wrong:
            self.drive.hear(d.Surfaced(turn, item, "another.key", SEEN))
        else:
            self.drive.surface(item)

    @rule(
        old_process=st.booleans(),
        what=st.sampled_from(["said", "ask", "send", "seen", "end", "call", "start"]),
        turn=st.sampled_from([None, "turn1", "turn2", "turn3", "nobody"]),
    )
    def late(self, old_process: bool, what: str, turn: str | None) -> None:
        """Anything of another turn, an old process or no turn moves nothing."""
        ref = d.TurnRef(turn) if turn else None
        if ref is not None and ref == self.drive.turn and not old_process:
            return
        known = ref or d.TurnRef("nobody")
        late: dict[str, d.RuntimeEvent] = {
            "said": d.Said(ref, "late"),
            "ask": d.Asked(ref, d.AskRef("late"), "shell"),
            "send": d.SendCalled(ref, d.CallRef("late"), "tgt_a", "late"),
            "seen": d.Surfaced(known, ItemId("dlv_i1"), "dlv_i1.9", SEEN),
            "end": d.TurnEnded(known, d.TurnStatus.completed),
            "call": d.ToolStarted(ref, "late", "shell"),
            "start": d.TurnStarted(known, "bat_old"),
        }
        event = late[what]
        inc = max(self.drive.session.ledger.inc - int(old_process), 0)
        before = len(self.drive.log)
        effects = self.drive.feed(ev.FromRuntime(inc, (event,)))
        kept = self.drive.log[before:]
        allowed = j.FenceLate | j.DeliveryChanged
        assert all(isinstance(r, allowed) for r in kept), f"8: {kept}"
        assert all(r.note for r in kept if isinstance(r, j.DeliveryChanged)), "8"
        answers = fx.Record | fx.Deny | fx.ToolReply
        assert all(isinstance(e, answers) for e in effects), f"8: {effects}"

    @precondition(lambda self: self.drive.inc)
    @rule(code=st.sampled_from([1, -9]))
    def die(self, code: int) -> None:
        self.drive.die(code)

    # --- the end -------------------------------------------------------------------------

    @rule(often=st.integers(0, 9), how=st.sampled_from(["dispose", "down", "lease"]))
    def close(self, often: int, how: str) -> None:
        if often:
            return
        before = self.drive.session.ledger
        match how:
            case "dispose":
                self.drive.feed(ev.DisposeRequested(self.ref()))
            case "down":
                self.drive.feed(ev.ShutdownRequested(self.ref()))
            case _:
                self.drive.feed(ev.LeaseLost())
                assert self.drive.phase is Phase.closed
        if how == "down":
            assert self.drive.session.ledger.park == before.park, "35a: it parked"

    @rule(cut=st.integers(0, 100), often=st.integers(0, 5))
    def crash_and_reload(self, cut: int, often: int) -> None:
        """The log ends anywhere; what was lost is delivered again by nobody here."""
        if often:
            return
        kept = len(self.drive.log) - (cut % (len(self.drive.log) + 1)) // 4
        self.epoch += 1
        self.take(reloaded(self.drive, self.drive.log[:kept], self.epoch))
        self.drive.feed(ev.Loaded())

    @rule(often=st.integers(0, 7), manner=st.builds(Manner, outcome=OUTCOMES))
    def settles(self, often: int, manner: Manner) -> None:
        if not often:
            self.drive.settle(manner)

    # --- always --------------------------------------------------------------------------

    @invariant()
    def state_is_the_fold_of_the_log(self) -> None:
        if not hasattr(self, "drive") or self.names % 5:
            return
        assert _folded(self.drive.log) == self.drive.session.ledger, "31"

    @invariant()
    def a_wake_is_not_lost(self) -> None:
        """Probe by clone: settle a copy, and nothing that is due is left (26)."""
        if not hasattr(self, "drive") or self.names % 4:
            return
        self._settled(self.drive.clone(), Manner())

    def _settled(self, drive: Drive, manner: Manner) -> None:
        urgents = [
            i
            for i, view in drive.session.ledger.deliveries.items()
            if view.policy is not None
        ]
        drive.settle(manner)
        ledger, live = drive.session.ledger, drive.session.live
        rest = (Phase.idle, Phase.offline, Phase.closed)
        assert live.phase in rest, f"36: {live.phase} for ever"
        if live.closing is None:
            assert not ledger.runnable, "26: something due was forgotten"
            self._ended(drive, urgents)
        assert not live.idle_waiters, "37"
        assert drive.watch is not None
        silent = drive.watch.refs - set(drive.watch.replied)
        assert not silent, f"38: nobody answered {silent}"

    def _ended(self, drive: Drive, urgents: list[DeliveryId]) -> None:
        open_ = (DeliveryState.queued, DeliveryState.accepted)
        ledger = drive.session.ledger
        for delivery in urgents:
            view = ledger.deliveries[delivery]
            flight = ledger.in_flight.get(view.item.id)
            carried = flight is not None and flight.carried
            # A Stop came after it: it waits in sight until a person resumes.
            stopped = {i.id for i in ledger.lanes[Lane.urgent]} if ledger.parked else ()
            waits = carried or view.item.id in stopped
            assert waits or view.state not in open_, f"35: {delivery} {view.state}"

    def teardown(self) -> None:
        if not hasattr(self, "drive") or sys.exc_info()[0] is not None:
            return  # a rule has failed already: do not hide it
        self._settled(self.drive.clone(), Manner(deaf=True))
        stuck = Manner(deaf=True, killable=False)
        self._settled(self.drive.clone(), stuck)
        self._settled(self.drive.clone(), Manner(starts=False))
        assert _folded(self.drive.log) == self.drive.session.ledger, "31"
        self._settled(self.drive, Manner())
        self._next_wake_runs()
        for log, session, events in self.lives:
            real = _trace(session, events)
            noisy = evolve(session, ledger=_folded(_noise(log)))
            assert real == _trace(noisy, _noise(events)), "16: a body was read"

    def _next_wake_runs(self) -> None:
        """25: whatever was cancelled or stopped before."""
        if self.drive.session.live.closing is not None:
            return
        name = self.name()
        self.drive.send(followup(name))
        self.drive.settle()
        claimed = {
            item
            for record in self.drive.records(j.InboxSpliced)
            if isinstance(record, j.InboxSpliced)
            and record.reason is j.SpliceReason.claimed
            for item in record.removed
        }
        assert name in claimed, "25: a cut leaked into the next wake"


_BODY = re.compile(r"<b(\d+)>.*?</b>")


def _folded(log: Sequence[j.JournalEvent]) -> Ledger:
    ledger = empty(AGENT)
    for record in log:
        ledger = fold(ledger, record)
    return ledger


def _noise(value: Any) -> Any:
    """Replace every body, wherever it stands."""
    if isinstance(value, str):
        return _BODY.sub(r"<b\1>x</b>", value)
    if isinstance(value, tuple | list):
        return type(value)(_noise(v) for v in value)
    changes = {
        name: _noise(getattr(value, name))
        for name in ("item", "items", "added", "events", "body", "text")
        if isinstance(getattr(value, name, None), str | tuple | Item)
    }
    return evolve(value, **changes) if changes else value


def _trace(session: Session, events: list[ev.Event]) -> list[str]:
    """The whole trace, its bodies aside."""
    trace: list[str] = []
    for event in events:
        session, effects = step(session, event)
        trace += [_BODY.sub(r"<b\1>", repr(effect)) for effect in effects]
    return trace


TestSessions = Sessions.TestCase
TestSessions.settings = SETTINGS
