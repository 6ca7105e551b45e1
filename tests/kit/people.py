"""
People and hosts as hypothesis rules: half of the driver of random sessions.

The other half, runtimes, services and clocks, stands beside the invariants in
tests/supervisor/session/test_invariants.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)
from tests.kit.driving import (
    ABLE,
    AGENT,
    Drive,
    followup,
    injected,
    ordinary,
    steering,
    urgent,
)
from tests.kit.oracle import Oracle

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import RunId
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import events as ev
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from agentteam_protocol.inbox import Item

TARGETS = st.sampled_from(["tgt_a", "tgt_b"])
CAPABILITIES = st.builds(
    evolve,
    st.just(ABLE),
    steer=st.sampled_from(list(d.Steer)),
    interrupt=st.sampled_from([d.Interrupt.turn, d.Interrupt.turn, d.Interrupt.none]),
    batch_input=st.booleans(),
    steps=st.booleans(),
    approval_cancel=st.booleans(),
)
# Commands hide in bodies; nothing may read them (3, 16).
WORDS = st.sampled_from(["stop", "URGENT", "停一下", "cancel everything", "hello"])


class People(RuleBasedStateMachine):
    """What people and hosts do to a session, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.names = 0
        self.seqs: dict[str, int] = {"tgt_a": 0, "tgt_b": 0}
        self.sent: list[Item] = []  # ordinary deliveries, to be marked urgent
        self.epoch = 1
        self.runs: list[str] = []
        # Each life of the session: the log it began with, and what it was told.
        self.lives: list[tuple[list[j.JournalEvent], Session, list[ev.Event]]] = []

    @initialize(
        able=CAPABILITIES,
        in_process=st.booleans(),
        auto=st.booleans(),
        warm=st.booleans(),
    )
    def begin(
        self, able: d.Capabilities, in_process: bool, auto: bool, warm: bool
    ) -> None:
        if in_process:
            able = evolve(able, interrupt=d.Interrupt.turn)
        session = Session(empty(AGENT), auto_reply=auto)
        self.take(Drive(session, able, in_process))
        if warm:
            self.drive.running(followup(self.name()))

    def take(self, drive: Drive) -> None:
        """Go on with this session; the oracle reads what its log says so far."""
        watch = Oracle()
        watch._opens(empty(AGENT).gen)
        for record in drive.log:
            if isinstance(record, j.FrontierMoved):
                watch.shown |= {(record.target, seq) for seq in record.seqs}
            if isinstance(record, j.SendDecided) and record.seq is not None:
                watch.shown.add((record.target, record.seq))
            if isinstance(record, j.DeliveryChanged):
                watch.proof.add((record.delivery, "before"))
            watch.record(record)
        drive.watch = watch
        self.drive = drive
        drive.told = []
        self.lives.append((list(drive.log), drive.session, drive.told))

    def name(self) -> str:
        self.names += 1
        return f"i{self.names}"

    def body(self, words: str) -> str:
        return f"<b{self.names}>{words}</b>"

    # --- people and hosts ------------------------------------------------------------

    @rule(where=TARGETS, words=WORDS, again=st.booleans())
    def deliver_ordinary(self, where: str, words: str, again: bool) -> None:
        self.seqs[where] += 1
        item = ordinary(self.name(), self.seqs[where], where, body=self.body(words))
        self.sent.append(item)
        self.drive.deliver(item, floor=0)
        if again:
            before = len(self.drive.log)
            self.drive.deliver(item, floor=0)
            assert len(self.drive.log) == before, "a repeat changed something"

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 50), retry=st.booleans(), other=st.booleans())
    def mark_urgent(self, pick: int, retry: bool, other: bool) -> None:
        item = self.sent[pick % len(self.sent)]
        if self._has_live_urgent(item):
            return
        marked = urgent(
            self.name(), item.seq or 0, str(item.target), str(item.message), item.body
        )
        self.drive.deliver(marked)
        if retry:
            before = len(self.drive.log)
            self.drive.deliver(evolve(marked, policy=None) if other else marked)
            assert len(self.drive.log) == before, "6: a retry changed something"

    def _has_live_urgent(self, item: Item) -> bool:
        """The server answers with the live one instead of making another."""
        live = (DeliveryState.queued, DeliveryState.accepted, DeliveryState.unknown)
        return any(
            view.message == item.message and view.policy and view.state in live
            for view in self.drive.session.ledger.deliveries.values()
        )

    @rule(kind=st.sampled_from([followup, steering, injected]), words=WORDS)
    def host_input(self, kind: Any, words: str) -> None:
        name = self.name()
        self.drive.send(kind(name, self.body(words)), ref=self.ref())

    @rule(words=WORDS)
    def inject_and_followup(self, words: str) -> None:
        first, second = self.name(), self.name()
        self.drive.send(injected(first), followup(second, words), ref=self.ref())

    @rule()
    def duplicate_is_refused(self) -> None:
        waiting = [i for v in self.drive.session.ledger.lanes.values() for i in v]
        if not waiting or self.drive.session.live.closing:
            return
        before = len(self.drive.log)
        self.drive.send(evolve(waiting[0], body="other"), ref=self.ref())
        assert len(self.drive.log) == before, "33: a mistake changed the log"

    @rule(stale=st.sampled_from(["current", "stale", "none"]))
    def stop(self, stale: str) -> None:
        turn = self.drive.session.ledger.turn
        if stale == "current":
            self.drive.stop(self.ref())
            return
        before = len(self.drive.log)
        run = RunId("run_old") if stale == "stale" else None
        self.drive.feed(ev.StopRequested(run, ref=self.ref()))
        assert len(self.drive.log) == before, "15: a stale Stop changed something"
        assert self.drive.session.ledger.turn == turn

    @rule(keep=st.booleans())
    def cancel(self, keep: bool) -> None:
        ledger, phase = self.drive.session.ledger, self.drive.phase
        empty_inbox = not any(ledger.lanes.values())
        before = len(self.drive.log)
        lanes = ledger.lanes
        self.drive.feed(ev.CancelRequested("why", keep, self.ref()))
        if phase in (Phase.idle, Phase.offline) and (empty_inbox or keep):
            assert len(self.drive.log) == before, "23: an idle cancel left something"
        if keep and phase in (Phase.idle, Phase.running):
            # A batch that was claimed and not sent comes back; nothing leaves.
            now = self.drive.session.ledger
            kept = {i.id for v in now.lanes.values() for i in v} | set(now.in_flight)
            assert {i.id for v in lanes.values() for i in v} <= kept, "23"

    @rule(task=st.just("compact"))
    def maintain(self, task: str) -> None:
        idle = self.drive.phase is Phase.idle
        before = len(self.drive.log)
        ref = self.ref()
        self.drive.feed(ev.MaintenanceRequested(task, ref))
        assert len(self.drive.log) == before, "28: maintenance left a record"
        if not idle:
            assert self.drive.replies[ref][0].error, "28: maintenance while busy"

    @rule(policy=st.sampled_from(list(ApprovalPolicy)))
    def choose_policy(self, policy: ApprovalPolicy) -> None:
        self.drive.feed(ev.PolicyChosen(policy))

    @rule()
    def resume(self) -> None:
        self.drive.feed(ev.ResumeRequested(self.ref()))

    @rule()
    def await_idle(self) -> None:
        self.drive.feed(ev.IdleAwaited(self.ref()))

    @rule(pick=st.integers(0, 50))
    def dismiss(self, pick: int) -> None:
        deliveries = list(self.drive.session.ledger.deliveries)
        if deliveries:
            self.drive.feed(ev.Dismissed(deliveries[pick % len(deliveries)]))

    @rule(pick=st.integers(0, 50))
    def redeliver(self, pick: int) -> None:
        """A person decides about one that is not going anywhere."""
        stuck = (DeliveryState.unknown, DeliveryState.failed, DeliveryState.blocked)
        views = self.drive.session.ledger.deliveries.values()
        found = [v for v in views if v.state in stuck]
        if found:
            view = found[pick % len(found)]
            if view.policy is None or not self._has_live_urgent(view.item):
                self.oracle.at_risk.add(str(view.message))
                self.drive.deliver(evolve(view.item, attempt=view.attempt + 1))

    def ref(self) -> int:
        self.names += 1
        return self.names

    @property
    def oracle(self) -> Oracle:
        assert self.drive.watch is not None
        return self.drive.watch
