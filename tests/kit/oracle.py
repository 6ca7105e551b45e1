"""
What must hold of a session, told from its records and effects alone.

A dict model, not a copy of the reducer: where each entry is, what each target has
shown, how each generation stands. The number before a complaint is the invariant's.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Protocol

from attrs import define, evolve, field, fields

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import DeliveryState, InterruptPolicy
from agentteam_protocol.ids import Generation
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.repair import ABORTED_BEFORE_DISPATCH
from agentteam_supervisor.session.state import Phase, Session

_PROBLEMS = (DeliveryState.failed, DeliveryState.blocked)
_LADDER = {"interrupt", "interrupt_soft", "sweep", "terminate"}


class Armed(Protocol):
    """Whoever keeps the machine's deadlines."""

    armed: dict[str, None]


@define
class Oracle:
    place: dict[str, str] = field(factory=dict)  # entry -> lane, flight or done
    items: dict[str, Item] = field(factory=dict)
    state: dict[str, DeliveryState] = field(factory=dict)
    policy: dict[str, InterruptPolicy | None] = field(factory=dict)
    fence: dict[Generation, str] = field(factory=dict)
    gen: Generation | None = None
    proof: set[tuple[str, str]] = field(factory=set)  # (entry, why) that was told
    shown: set[tuple[str, int]] = field(factory=set)  # (target, seq) that was told
    surfaced: dict[str, list[str]] = field(factory=dict)  # message -> its deliveries
    at_risk: set[str] = field(factory=set)  # messages in flight when a run was cut
    turn: int | None = None
    turns: int = 0
    step: int | None = None
    steps: int = 0
    calls: set[str] = field(factory=set)
    begun: set[str] = field(factory=set)  # calls whose body may have run
    asks: dict[str, str | None] = field(factory=dict)
    decided: dict[str, ApprovalOutcome] = field(factory=dict)
    cause: object = None
    cuts: int = 0
    asking: ApprovalPolicy = ApprovalPolicy.ask
    interrupts: Counter[tuple[int, str]] = field(factory=Counter)
    excused: set[str] = field(factory=set)  # turns that a refusal named
    replied: Counter[int] = field(factory=Counter)
    refs: set[int] = field(factory=set)
    maintaining: bool = False
    finished: bool = False

    def clone(self) -> Oracle:
        copies = {
            a.name: copy(getattr(self, a.name))
            for a in fields(Oracle)
            if not isinstance(getattr(self, a.name), str)
        }
        copies["surfaced"] = {m: list(s) for m, s in self.surfaced.items()}
        return evolve(self, **copies)

    # --- what the session is told ------------------------------------------------------

    def told(self, event: ev.Event, before: Session) -> None:
        if isinstance(ref := getattr(event, "ref", None), int):
            self.refs.add(ref)
        match event:
            case ev.FromRuntime(_, events):
                for heard in events:
                    self._heard(heard)
            case ev.Settled(_, items) | ev.RuntimeReady(_, _, items):
                self._outcomes(items)
            case ev.HistoryRead(_, gen, target, seqs, _, error):
                if not error and before.is_open(gen):
                    self.shown |= {(str(target), seq) for seq in seqs}
            case ev.SendAnswered(_, _, seq, target, _, shown):
                if seq is not None:
                    self.shown.add((str(target), seq))
                for where, seqs in shown.items():
                    self.shown |= {(where, s) for s in seqs}
            case ev.InterruptFailed(_, _, named) if named is not None:
                self.excused.add(named.id)
            case ev.MaintenanceEnded() | ev.ProcessGone():
                self.maintaining = False
            case _:
                pass

    def _heard(self, e: d.RuntimeEvent) -> None:
        match e:
            case d.Surfaced(_, item, key):
                self.proof |= {(item, key)}
            case d.TurnEnded(_, _, _, items):
                self._outcomes(items)
            case d.ToolEnded(_, call) if call in self.calls:
                self.begun.add(call)
            case _:
                pass

    def _outcomes(self, items: object) -> None:
        assert hasattr(items, "items")
        for item, outcome in items.items():
            if outcome is d.ItemOutcome.surfaced:
                self.proof.add((item, "history"))

    # --- what it wants done ----------------------------------------------------------

    def saw(self, effect: fx.Effect) -> None:
        answer = isinstance(effect, fx.Reply)
        assert answer or not self.finished, f"34: {effect} after the end"
        match effect:
            case fx.Record(event):
                self.record(event)
            case fx.Submit(_, gen, _, items):
                self._at_open(effect, gen)
                self._submits(items, first=effect.turn is None)
            case fx.SteerItem(_, gen, _, item):
                self._at_open(effect, gen)
                assert item.policy is None, "15: an urgent entry was steered"
            case fx.Allow(_, gen) | fx.JudgeSend(_, gen) | fx.ReadTarget(_, gen):
                self._at_open(effect, gen)
            case fx.Progress(_, gen):
                self._at_open(effect, gen)
            case fx.Consult(request):
                assert self.asking is not ApprovalPolicy.never, "5: never asks nobody"
                assert request.id in self.asks, "5: an ask without its record"
            case fx.Interrupt(inc, turn):
                self._interrupts(inc, turn)
            case fx.Reply(ref):
                self.replied[ref] += 1
                assert self.replied[ref] == 1, f"38: caller {ref} answered twice"
                assert ref in self.refs, "38: an answer to nobody"
            case fx.Maintain():
                assert self.turn is None, "28: maintenance during a turn"
                self.maintaining = True
            case fx.Finish():
                self.finished = True
            case _:
                pass

    def _at_open(self, effect: object, gen: Generation) -> None:
        assert gen == self.gen, f"7: {effect} of an old generation"
        assert self.fence[gen] == "open", f"7: {effect} under {self.fence[gen]}"

    def _submits(self, items: tuple[Item, ...], *, first: bool) -> None:
        urgent = [i for i, where in self.place.items() if where == Lane.urgent]
        urgent += [i.id for i in items if i.policy is not None]
        if urgent and first:
            mine = {i.id for i in items} & set(urgent)
            assert mine, "15: something went before an urgent entry"
            target = self.items[min(mine)].target
            others = [i for i in items if i.target not in (None, target)]
            assert not others, "15: another target in the urgent batch"
        for item in items:
            assert self.place.get(item.id) == "flight", f"12: {item.id} not in flight"
            blocked = self.state.get(item.id) is DeliveryState.blocked
            assert not blocked, f"30: {item.id} was rejected"

    def _interrupts(self, inc: int, turn: d.TurnRef | None) -> None:
        assert self.cause is not None, "19: an interrupt without a cut"
        name = turn.id if turn is not None else f"of turn {self.turn}"
        self.interrupts[inc, name] += 1
        allowed = 2 if name in self.excused else 1
        assert self.interrupts[inc, name] <= allowed, f"20: {name} interrupted again"

    # --- what it records ---------------------------------------------------------------

    def record(self, e: j.JournalEvent) -> None:
        match e:
            case j.InboxSpliced():
                self._spliced(e)
            case j.ItemsInFlight(added, removed, _):
                for entry in removed:
                    assert self.place[entry] == "flight", f"12: {entry} not in flight"
                    self.place[entry] = "done"
                for item in added:
                    waits = self.place.get(item.id) in set(Lane)
                    assert not waits, f"12: {item.id} waits and flies"
                    self.items[item.id], self.place[item.id] = item, "flight"
            case j.DeliveryChanged():
                self._delivery(e)
            case j.FrontierMoved(target, seqs, _):
                for seq in seqs:
                    assert (target, seq) in self.shown, f"9: {target} {seq} moved"
            case j.ApprovalPolicySet(policy):
                self.asking = policy
            case j.EpochBegun(gen, _):
                self._opens(gen)
            case j.FenceHeld() | j.FenceReopened() | j.FenceClosed():
                self._fence(e)
            case j.InterruptRequested(_, _, cause):
                assert self.turn is not None, "14: a cut of nothing"
                self.cause = self.cause or cause
                self.cuts += 1
            case j.SendDecided(_, target, _, _, seq):
                if seq is not None:
                    assert (target, seq) in self.shown, "9: a send nobody forwarded"
            case _:
                self._in_turn(e)

    def _spliced(self, e: j.InboxSpliced) -> None:
        for entry in e.removed:
            assert self.place[entry] in set(Lane), f"12: {entry} is in no lane"
        if e.reason is j.SpliceReason.claimed:
            self._fifo(e)
        for entry in e.removed:
            self.place[entry] = "done"
        for item in e.added:
            where = self.place.get(item.id, "done")
            assert where == "done", f"12: {item.id} is {where} already"
            self.items[item.id], self.place[item.id] = item, item.lane
            if item.delivery is not None:
                known = self.policy.setdefault(item.delivery, item.policy)
                assert known == item.policy, f"17: {item.delivery} changed its policy"
        if e.reason is j.SpliceReason.accepted:
            for item in e.added:
                if item.delivery is not None:
                    self.state[item.delivery] = DeliveryState.queued

    def _fifo(self, e: j.InboxSpliced) -> None:
        """Nothing of the same lane and target that is older stays behind."""
        taken = [self.items[i] for i in e.removed]
        if any(i.policy is not None for i in taken):
            return  # takes lower sequences along, in their own order
        left = [self.items[i] for i, w in self.place.items() if w in set(Lane)]
        for item in taken:
            for other in left:
                older = other.position < item.position and other.id not in e.removed
                same = (other.lane, other.target) == (item.lane, item.target)
                assert not (older and same), f"14: {item.id} overtook {other.id}"

    def _delivery(self, e: j.DeliveryChanged) -> None:
        before = self.state.get(e.delivery)
        if e.state in _PROBLEMS and not e.note:
            told = e.diagnostic is not None and e.diagnostic.problem
            assert told, f"21: {e.delivery} {e.state} without a word"
        if e.state is DeliveryState.surfaced and not e.note:
            item = self.items[e.delivery]
            how = e.evidence.kind if e.evidence else ""
            seen = (item.target, item.seq) in self.shown
            proven = any(entry == item.id for entry, _ in self.proof)
            assert seen or proven, f"9: {e.delivery} surfaced by {how} unproven"
            assert before is not DeliveryState.surfaced, f"13: {e.delivery} twice"
            self.shown.add((str(item.target), item.seq or 0))
            self._once(item)
        self.state[e.delivery] = e.state

    def _once(self, item: Item) -> None:
        message = str(item.message)
        earlier = self.surfaced.setdefault(message, [])
        replay = item.policy is not None  # marked urgent again: a new identity (18)
        ambiguous = message in self.at_risk
        assert not earlier or replay or ambiguous, f"13: {message} surfaced twice"
        earlier.append(item.id)

    def _opens(self, gen: Generation) -> None:
        assert self.gen is None or gen > self.gen, "6: a generation came back"
        if self.gen is not None:
            self.fence[self.gen] = "fenced"
        self.gen, self.fence[gen] = gen, "open"

    def _fence(self, e: j.FenceHeld | j.FenceReopened | j.FenceClosed) -> None:
        assert e.gen == self.gen, "6: a fence of another generation"
        flying = [self.items[i] for i, w in self.place.items() if w == "flight"]
        self.at_risk |= {str(i.message) for i in flying if i.message}
        match e:
            case j.FenceHeld():
                assert self.fence[e.gen] == "open", "6: held twice"
                assert self.turn is not None, "7: held without a turn"
                self.fence[e.gen] = "hold"
            case j.FenceReopened():
                assert self.fence[e.gen] == "hold", "7: reopened what was not held"
                self.fence[e.gen], self.cause = "open", None
            case j.FenceClosed():
                assert self.turn is None, "8: fenced before its turn ended"
                self._opens(e.opened)

    def _in_turn(self, e: j.JournalEvent) -> None:
        match e:
            case j.TurnStart(turn, _, gen):
                assert self.turn is None, "1: a turn inside a turn"
                assert not self.maintaining, "28: a turn inside maintenance"
                assert turn == self.turns + 1, "1: a turn's number"
                assert gen == self.gen, "6: a turn of an old generation"
                self.turn, self.turns, self.steps, self.cause = turn, turn, 0, None
            case j.StepStart(turn, step):
                self._mine(turn)
                assert self.step is None, "1: a step inside a step"
                assert step == self.steps + 1, "1: a step's number"
                self.step = self.steps = step
            case j.StepEnd(turn, step):
                self._mine(turn)
                assert self.step == step, "1: the end of no step"
                assert not self.calls, "2: a step ended before its calls"
                self.step = None
            case j.ToolCall(turn, call):
                self._mine(turn)
                assert call not in self.calls, "2: a call twice"
                self.calls.add(call)
            case j.ToolResult(turn, call, _, error):
                self._mine(turn)
                assert call in self.calls, "2: a result without its call"
                if error == ABORTED_BEFORE_DISPATCH:
                    assert call not in self.begun, "3: its body had begun"
                self.calls.discard(call)
            case j.ApprovalAsked(turn, request):
                self._mine(turn)
                fresh = request.id not in {*self.asks, *self.decided}
                assert fresh, "4: an ask's id again"
                self.asks[request.id] = request.call_id
            case j.ApprovalDecided(turn, id_, outcome):
                self._mine(turn)
                assert id_ in self.asks, "4: decided without an ask, or twice"
                gated = self.asks.pop(id_)
                self.decided[id_] = outcome
                if outcome is ApprovalOutcome.allowed_once and gated is not None:
                    self.begun.add(gated)
            case j.UserMessage(turn) | j.AssistantMessage(turn):
                self._mine(turn)
            case j.TurnEnd():
                self._turn_end(e)
            case _:
                pass

    def _mine(self, turn: int) -> None:
        assert turn == self.turn, f"1: a record of turn {turn} in turn {self.turn}"

    def _turn_end(self, e: j.TurnEnd) -> None:
        self._mine(e.turn)
        assert self.step is None, "1: a turn ended before its step"
        assert not self.asks, "4: a turn ended before its asks"
        if e.cause is not None:
            first = self.cause or CutCause.lease_lost
            assert e.cause == first, "24: not the first cause"
        if self.fence[self.gen or e] == "hold":  # type: ignore[index]
            aborted = e.outcome in (j.TurnOutcome.aborted, j.TurnOutcome.interrupted)
            assert aborted, f"18: a held run ended {e.outcome}"
        self.turn = None

    # --- after each step -----------------------------------------------------------------

    def stepped(self, session: Session, drive: Armed) -> None:
        ledger, live = session.ledger, session.live
        lanes = {i.id for items in ledger.lanes.values() for i in items}
        flights = set(ledger.in_flight)
        assert lanes == {i for i, w in self.place.items() if w in set(Lane)}, "12"
        assert flights == {i for i, w in self.place.items() if w == "flight"}, "12"
        assert (ledger.turn is None) == (self.turn is None), "31: the open turn"
        if ledger.fence.value == "hold":
            assert not live.asks, "26b: an approval pending under HOLD"
        for name, frontier in ledger.frontiers.items():
            for seq in frontier.extras:
                assert (name, seq) in self.shown, f"9: {name} {seq} never shown"
                assert seq > frontier.contiguous + 1, "10: a gap left open"
        self._copies(session)
        if live.phase is not Phase.converging:
            left = _LADDER & set(drive.armed)
            assert not left, f"19: deadlines {left} outlive their cut"
        if session.quiescent:
            busy = self.turn is not None or live.maintenance is not None
            assert not busy, "29: quiescent while something runs"

    def _copies(self, session: Session) -> None:
        """Of a message at most one entry waits."""
        waiting = [i for items in session.ledger.lanes.values() for i in items]
        counts = Counter(i.message for i in waiting if i.message is not None)
        twice = [m for m, n in counts.items() if n > 1]
        assert not twice, f"12: two entries of {twice} wait"
