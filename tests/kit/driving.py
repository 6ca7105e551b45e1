"""Drives the pure session machine: a log, deadlines, callers and a fake runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from attrs import define, evolve, field
from tests.kit.oracle import Oracle

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import Diagnostic, Evidence, InterruptPolicy
from agentteam_protocol.ids import AgentId, DeliveryId, ItemId, MessageId, TargetId
from agentteam_protocol.inbox import Item, Lane
from agentteam_protocol.journal import JournalEvent
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.repair import repair
from agentteam_supervisor.session.state import Phase, Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


E = TypeVar("E")

AGENT = AgentId("agt_test")
ABLE = d.Capabilities(
    version="1",
    steer=d.Steer.ack,
    interrupt=d.Interrupt.turn,
    evidence=d.EvidenceLevel.recorded,
    approval_cancel=True,
    resume=True,
    batch_input=True,
    tools=True,
)
URGENT = InterruptPolicy.interrupt_current_run
SEEN = Evidence("test")
BROKEN = Diagnostic("it does not start", "mend it")


def followup(name: str, body: str = "do") -> Item:
    return Item(ItemId(name), body, Lane.next_turn)


def steering(name: str, body: str = "do") -> Item:
    return Item(ItemId(name), body, Lane.next_step)


def injected(name: str, body: str = "know") -> Item:
    return Item(ItemId(name), body, Lane.next_step, wakes=False)


def ordinary(
    name: str, seq: int, target: str = "tgt_a", message: str = "", body: str = "read"
) -> Item:
    return Item(
        ItemId(f"dlv_{name}"),
        body,
        Lane.next_step,
        delivery=DeliveryId(f"dlv_{name}"),
        message=MessageId(message or f"msg_{target}_{seq}"),
        target=TargetId(target),
        seq=seq,
    )


def urgent(
    name: str, seq: int, target: str = "tgt_a", message: str = "", body: str = "read"
) -> Item:
    return evolve(ordinary(name, seq, target, message, body), policy=URGENT)


@define
class Manner:
    """How the fake runtime and its services take what is asked of them."""

    deaf: bool = False  # interrupt and terminate are ignored
    killable: bool = True
    starts: bool = True
    outcome: d.ItemOutcome = d.ItemOutcome.dropped  # of what a cut found unsurfaced
    surfaces: bool = True
    allows: bool = False


@define
class Drive:
    session: Session = field(factory=lambda: Session(empty(AGENT)))
    able: d.Capabilities = ABLE
    in_process: bool = False
    watch: Oracle | None = None
    log: list[JournalEvent] = field(factory=list)
    told: list[ev.Event] = field(factory=list)
    trace: list[fx.Effect] = field(factory=list)
    owed: list[fx.Effect] = field(factory=list)
    armed: dict[str, None] = field(factory=dict)
    replies: dict[int, list[fx.Reply]] = field(factory=dict)
    # The runtime: its live incarnation, its active turn, what it took and did not show.
    inc: int = 0
    turn: d.TurnRef | None = None
    held: dict[ItemId, str] = field(factory=dict)
    turns: int = 0
    at_boundary: bool = False
    stopping: bool = False

    def clone(self) -> Drive:
        """Copy what changes; sessions, events and effects are values."""
        return evolve(
            self,
            watch=self.watch.clone() if self.watch is not None else None,
            log=list(self.log),
            told=[],
            trace=[],
            owed=list(self.owed),
            armed=dict(self.armed),
            replies=dict(self.replies),
            held=dict(self.held),
        )

    # --- the machine ----------------------------------------------------------------

    def feed(self, event: ev.Event) -> list[fx.Effect]:
        if self.watch is not None:
            self.watch.told(event, self.session)
        self.told.append(event)
        self.session, effects = step(self.session, event)
        for effect in effects:
            self._keep(effect)
        if self.watch is not None:
            self.watch.stepped(self.session, self)
        return effects

    def _keep(self, effect: fx.Effect) -> None:
        if self.watch is not None:
            self.watch.saw(effect)
        self.trace.append(effect)
        match effect:
            case fx.Record(event):
                self.log.append(event)
            case fx.SetDeadline(name):
                self.armed[name] = None
            case fx.ClearDeadline(name):
                self.armed.pop(name, None)
            case fx.Reply(ref):
                self.replies.setdefault(ref, []).append(effect)
            case fx.Progress() | fx.Received() | fx.Finish():
                pass
            case _:
                self.owed.append(effect)

    @property
    def phase(self) -> Phase:
        return self.session.live.phase

    def records(self, kind: type) -> list[JournalEvent]:
        return [event for event in self.log if isinstance(event, kind)]

    def wanted(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.owed if isinstance(effect, kind)]

    # --- input ----------------------------------------------------------------------

    def deliver(self, item: Item, floor: int | None = None) -> list[fx.Effect]:
        return self.feed(ev.Delivered(item, floor))

    def send(self, *items: Item, ref: int | None = None) -> list[fx.Effect]:
        return self.feed(ev.Sent(items, ref))

    def stop(self, ref: int | None = None) -> list[fx.Effect]:
        turn = self.session.ledger.turn
        run = turn.run_id if turn is not None else None
        return self.feed(ev.StopRequested(run, "ann", ref))

    # --- the runtime ----------------------------------------------------------------

    def hear(self, *events: d.RuntimeEvent, inc: int = 0) -> list[fx.Effect]:
        return self.feed(ev.FromRuntime(inc or self.inc, events))

    def surface(self, item: ItemId) -> None:
        key = self.held.pop(item)
        assert self.turn is not None
        self.hear(d.Surfaced(self.turn, item, key, SEEN))

    def end(
        self,
        status: d.TurnStatus = d.TurnStatus.completed,
        items: Mapping[ItemId, d.ItemOutcome] | None = None,
        text: str = "",
    ) -> None:
        """End the runtime's turn; what it holds and does not name stays unnamed."""
        turn = self.turn
        assert turn is not None
        named = dict(items or {})
        self.held = {
            item: key
            for item, key in self.held.items()
            if named.get(item) is d.ItemOutcome.carried
        }
        self.turn, self.at_boundary, self.stopping = None, False, False
        self.hear(d.TurnEnded(turn, status, "", named, text))

    def boundary(self, *, more: bool) -> None:
        assert self.turn is not None
        self.at_boundary = True
        self.stopping = not more
        self.hear(d.StepEnded(self.turn, more))

    def die(self, code: int = 1) -> None:
        inc, self.inc, self.turn = self.inc, 0, None
        self.held, self.at_boundary = {}, False
        for effect in tuple(self.owed):
            if isinstance(effect, fx.Interrupt | fx.Settle | fx.Sweep | fx.Terminate):
                self.owed.remove(effect)
        self.feed(ev.ProcessGone(inc, code))

    # --- what the machine wants -----------------------------------------------------

    def perform(self, effect: fx.Effect, manner: Manner | None = None) -> None:
        """Do one thing that is owed."""
        if effect in self.owed:
            self.owed.remove(effect)
        manner = manner or Manner()
        match effect:
            case fx.OpenRuntime():
                self.open(effect, manner)
            case fx.PreStep(batch, items):
                self.feed(ev.PreStepDecided(batch, items))
            case fx.Submit():
                self.submit(effect)
            case fx.SteerItem():
                self.steer(effect)
            case fx.Interrupt():
                self.interrupt(effect, manner)
            case fx.Terminate() | fx.Kill() | fx.CloseRuntime():
                self._end_process(effect, manner)
            case fx.Sweep(inc):
                if not manner.deaf:
                    self.feed(ev.Swept(inc))
            case fx.Settle(inc, items):
                if not manner.deaf:
                    self.feed(ev.Settled(inc, {i.id: manner.outcome for i in items}))
            case _:
                self._serve(effect, manner)

    def _serve(self, effect: fx.Effect, manner: Manner) -> None:
        match effect:
            case fx.Consult(request):
                yes, no = ApprovalOutcome.allowed_once, ApprovalOutcome.rejected
                answer = yes if manner.allows else no
                self.feed(ev.ApprovalAnswered(request.id, answer))
            case fx.JudgeSend(send, gen):
                verdict = "forwarded" if self.session.is_open(gen) else "rejected"
                self.feed(ev.SendAnswered(send, verdict, text=verdict))
            case fx.ReadTarget(call, gen):
                self.feed(ev.HistoryRead(call, gen, None, (), "nothing", error=True))
            case fx.Maintain():
                self.feed(ev.MaintenanceEnded("done", id=effect.id))
            case _:
                pass  # a denial, an answer: nothing comes back

    def open(self, effect: fx.OpenRuntime, manner: Manner) -> None:
        if not manner.starts:
            self.feed(ev.StartFailed(effect.inc, BROKEN))
            return
        self.inc = effect.inc
        settled = {item.id: manner.outcome for item in effect.unsettled}
        self.held = {
            item.id: item.key
            for item in effect.unsettled
            if manner.outcome is d.ItemOutcome.carried
        }
        self.feed(ev.RuntimeReady(effect.inc, self.able, settled, self.in_process))

    def submit(self, effect: fx.Submit, *, started_first: bool = True) -> None:
        if not self.session.is_open(effect.gen):
            self.feed(ev.SubmitFailed(effect.batch, False, "the run was interrupted"))
        elif effect.inc != self.inc:
            self.feed(ev.SubmitFailed(effect.batch, False, "it is not running"))
        elif effect.turn is not None:
            self._next_step(effect)
        else:
            self._start_turn(effect, started_first=started_first)

    def _next_step(self, effect: fx.Submit) -> None:
        if effect.turn != self.turn or not self.at_boundary or effect.turn is None:
            self.feed(ev.SubmitFailed(effect.batch, False, "that turn is over"))
            return
        self.at_boundary = False
        self.held |= {item.id: item.key for item in effect.items}
        if effect.items:
            self.stopping = False
        self.feed(ev.SubmitAccepted(effect.batch, effect.turn))

    def _start_turn(self, effect: fx.Submit, *, started_first: bool) -> None:
        assert self.turn is None, "6: a run began while another is alive"
        self.turns += 1
        turn = self.turn = d.TurnRef(f"turn{self.turns}")
        self.held |= {item.id: item.key for item in effect.items}
        both: list[ev.Event] = [
            ev.FromRuntime(self.inc, (d.TurnStarted(turn, effect.batch),)),
            ev.SubmitAccepted(effect.batch, turn),
        ]
        for event in both if started_first else reversed(both):
            self.feed(event)

    def steer(self, effect: fx.SteerItem) -> None:
        open_ = self.session.is_open(effect.gen)
        if open_ and effect.inc == self.inc and effect.turn == self.turn:
            self.held[effect.item.id] = effect.item.key
            self.feed(ev.SteerAccepted(effect.item.id))
        else:
            self.feed(ev.SteerFailed(effect.item.id, False, "no such turn"))

    def interrupt(self, effect: fx.Interrupt, manner: Manner) -> None:
        if effect.inc != self.inc or manner.deaf:
            return
        if self.turn is None or effect.turn not in (None, self.turn):
            self.feed(ev.InterruptFailed(effect.inc, "not active", self.turn))
            return
        self.feed(ev.InterruptTaken(effect.inc))
        held = dict.fromkeys(self.held, manner.outcome)
        self.end(d.TurnStatus.interrupted, held)

    def _end_process(
        self, effect: fx.Terminate | fx.Kill | fx.CloseRuntime, manner: Manner
    ) -> None:
        gone_before = effect.inc not in (self.inc, *self._opening())
        if gone_before or (manner.deaf and not isinstance(effect, fx.Kill)):
            return
        if isinstance(effect, fx.Kill) and not manner.killable:
            self.feed(ev.KillFailed(effect.inc, (d.Survivor(7, 7, "stuck"),)))
            return
        self.owed = [
            e
            for e in self.owed
            if not isinstance(e, fx.OpenRuntime) or e.inc != effect.inc
        ]
        if effect.inc == self.inc:
            self.die(-15)
        else:
            self.feed(ev.ProcessGone(effect.inc, -15))

    def _opening(self) -> list[int]:
        return [e.inc for e in self.owed if isinstance(e, fx.OpenRuntime)]

    # --- all of it ------------------------------------------------------------------

    def pass_deadline(self, name: str) -> None:
        self.armed.pop(name, None)
        self.feed(ev.DeadlinePassed(name))

    def answer_all(self, manner: Manner | None = None) -> None:
        """Perform what is owed until nothing is."""
        for _ in range(200):
            if not self.owed:
                return
            self.perform(self.owed[0], manner)
        raise AssertionError("the machine wants something for ever")

    def settle(self, manner: Manner | None = None) -> None:
        """Deliver every event of the runtime and fire every deadline."""
        manner = manner or Manner()
        for _ in range(1000):
            if self.owed:
                self.perform(self.owed[0], manner)
            elif self.turn is not None and self.phase is Phase.running:
                self._finish_turn(manner)
            elif self.armed:
                self.pass_deadline(next(iter(self.armed)))
            elif self.turn is not None and self.phase is Phase.converging:
                self.end(d.TurnStatus.interrupted)  # at its next boundary
            else:
                return
        raise AssertionError("the session does not settle")

    def _finish_turn(self, manner: Manner) -> None:
        for item in tuple(self.held) if manner.surfaces else ():
            if self.turn is not None:
                self.surface(item)
        if self.turn is not None and not self.owed:
            if self.able.steps and not self.stopping:
                self.boundary(more=False)
            else:
                self.end(items=dict.fromkeys(self.held, manner.outcome))

    def ready(self) -> Drive:
        """Bring a process up and leave the session Idle."""
        self.send(followup("warm-up"))
        self.settle()
        self.log.clear()
        self.trace.clear()
        return self

    def running(self, item: Item | None = None) -> Drive:
        """Have a turn that the runtime has begun."""
        self.send(item or followup("first"))
        self.answer_all()
        assert self.phase is Phase.running
        return self


def reloaded(drive: Drive, log: Sequence[JournalEvent], epoch: int) -> Drive:
    """Crash: a new session from this part of the log, repaired, in a new epoch."""
    ledger = empty(AGENT)
    for event in log:
        ledger = fold(ledger, event)
    closing = repair(ledger, epoch)
    for event in closing:
        ledger = fold(ledger, event)
    return Drive(
        Session(ledger),
        drive.able,
        drive.in_process,
        log=[*log, *closing],
        turns=drive.turns,
    )
