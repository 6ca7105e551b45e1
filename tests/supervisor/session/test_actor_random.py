"""Random scripts over the actor: whatever happens, it settles and answers everybody."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import define, evolve, field
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.kit.fake_driver import CAPABILITIES, FakeDriver
from tests.kit.session_bench import Bench, bench
from tests.kit.watching import Watched
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import TERMINAL, DeliveryState
from agentteam_protocol.errors import RuntimeRefused
from agentteam_protocol.ids import AgentId, DeliveryId
from agentteam_protocol.journal import FenceHeld, TurnEnd, TurnStart
from agentteam_runtimes.driver import (
    Asked,
    AskRef,
    CallRef,
    Capabilities,
    Interrupt,
    InterruptRefused,
    ItemOutcome,
    Output,
    ReadCalled,
    Said,
    SendCalled,
    Steer,
    SteerRefused,
    SubmitRefused,
    ToolEnded,
    ToolStarted,
    TurnRef,
    TurnStatus,
)
from agentteam_supervisor.approval.service import ApprovalService, wait_for_person
from agentteam_supervisor.session.actor import AskRefused
from agentteam_supervisor.session.deadlines import Limits
from agentteam_supervisor.session.events import (
    ApprovalAnswered,
    IdleAwaited,
    MaintenanceRequested,
    StopRequested,
)
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.state import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit.fake_driver import FakeRuntime

    from agentteam_supervisor.session.effects import Reply

GATES = ("open", "start_turn", "steer", "interrupt", "history", "sweep", "maintain")
FAULTS: dict[str, Callable[[], Exception]] = {
    "open": lambda: RuntimeRefused("not today"),
    "start_turn": lambda: SubmitRefused("busy", written=False),
    "steer": lambda: SteerRefused("no turn"),
    "interrupt": lambda: InterruptRefused("no turn", TurnRef("turn-1-1")),
    "history": lambda: RuntimeRefused("no history"),
    "maintain": lambda: RuntimeRefused("no such task"),
}


@define
class Script:
    """Plays steps against a bench and remembers who waits for an answer."""

    b: Bench
    names: count[int] = field(factory=lambda: count(1))
    urgents: list[DeliveryId] = field(factory=list)
    waiting: dict[int, str] = field(factory=dict)
    answered: list[int] = field(factory=list)
    held: set[str] = field(factory=set)
    journal_held: bool = False

    async def play(self, step: tuple[str, Any]) -> None:
        name, argument = step
        await getattr(self, f"do_{name}")(argument)
        ledger = self.b.session.ledger
        assert ledger == fold_all(self.b), "fold equality"

    def expect(self, what: str) -> int:
        def then(_: Reply) -> None:
            self.answered.append(ref)

        ref = self.b.actor.expect(then)
        self.waiting[ref] = what
        return ref

    @property
    def runtime(self) -> FakeRuntime | None:
        runtimes = self.b.driver.runtimes
        return runtimes[-1] if runtimes and runtimes[-1].alive else None

    # --- people and hosts -----------------------------------------------------

    async def do_deliver(self, target: str) -> None:
        self.b.deliver(f"m{next(self.names)}", target=target)

    async def do_urgent(self, target: str) -> None:
        name = f"u{next(self.names)}"
        self.urgents.append(self.b.deliver(name, urgent=True, target=target))

    async def do_host(self, method: str) -> None:
        match method:
            case "cancel":
                self.b.handle.cancel()
            case "keep":
                self.b.handle.cancel(keep_inbox=True)
            case _:
                getattr(self.b.handle, method)("input")

    async def do_stop(self, stale: bool) -> None:
        run_id = None if stale else self.b.handle.run_id
        ref = self.expect("stop")
        self.b.actor.feed(StopRequested(run_id, ref=ref))

    async def do_idle(self, _: None) -> None:
        self.b.actor.feed(IdleAwaited(self.expect("idle")))

    async def do_maintain(self, _: None) -> None:
        self.b.actor.feed(MaintenanceRequested("compact", self.expect("maintain")))

    async def do_answer(self, outcome: ApprovalOutcome) -> None:
        for approval in tuple(self.b.session.live.asks)[:1]:
            ref = self.expect("answer")
            self.b.actor.feed(ApprovalAnswered(approval, outcome, ref))

    # --- the runtime ------------------------------------------------------------

    async def do_say(self, what: str) -> None:
        if (runtime := self.runtime) is None:
            return
        turn = runtime.turn if runtime.batches else None
        n = str(next(self.names))
        match what:
            case "surface" if runtime.batches:
                runtime.surface(*runtime.batches[-1].items, *runtime.steered)
            case "output":
                runtime.emit(Output(turn, "text "))
            case "said":
                runtime.emit(Said(turn, "text"))
            case "call":
                runtime.emit(ToolStarted(turn, n, "shell"))
            case "result":
                runtime.emit(ToolEnded(turn, n, "out"))
            case "ask":
                runtime.emit(Asked(turn, AskRef(n), "shell"))
            case "send":
                runtime.emit(SendCalled(turn, CallRef(n), "tgt_1", "hello"))
            case "read":
                runtime.emit(ReadCalled(turn, CallRef(n), "tgt_1"))
            case _:
                pass

    async def do_finish(self, how: tuple[TurnStatus, ItemOutcome | None]) -> None:
        if (runtime := self.runtime) is None or not runtime.batches:
            return
        status, outcome = how
        flying = self.b.session.ledger.in_flight
        items = dict.fromkeys(flying, outcome) if outcome is not None else {}
        runtime.finish(status, items=items)

    async def do_exit(self, code: int) -> None:
        if (runtime := self.runtime) is not None:
            runtime.exit(code)

    async def do_process(self, habit: str) -> None:
        if (runtime := self.runtime) is not None and runtime.contained is not None:
            setattr(runtime.contained, habit, True)

    # --- time and faults ------------------------------------------------------------

    async def do_gate(self, name: str) -> None:
        if name in self.held:
            self.held.discard(name)
            self.b.driver.gates.let(name)
        else:
            self.held.add(name)
            self.b.driver.gates.hold(name)

    async def do_fault(self, name: str) -> None:
        self.b.driver.gates.fail(name, FAULTS[name]())

    async def do_journal(self, _: None) -> None:
        if self.journal_held:
            self.b.journal.release()
        else:
            self.b.journal.hold()
        self.journal_held = not self.journal_held

    async def do_wait(self, seconds: float) -> None:
        if seconds:
            await trio.sleep(seconds)
        else:
            await wait_all_tasks_blocked()

    # --- the end ----------------------------------------------------------------------

    async def settle(self) -> None:
        """Open every gate, fire every deadline, finish every turn."""
        for name in tuple(self.held):
            await self.do_gate(name)
        for failing in self.b.driver.gates.failing.values():
            failing.clear()
        if self.journal_held:
            await self.do_journal(None)
        for _ in range(60):
            await trio.sleep(20)
            if self.b.session.quiescent:
                return
            await self.do_answer(ApprovalOutcome.rejected)
            await self.do_say("surface")
            await self.do_finish((TurnStatus.completed, None))
        raise AssertionError(f"does not settle: {self.b.session.live}")


def fold_all(b: Bench) -> Any:
    ledger = empty(AgentId("agt_1"))
    for event in b.journal.events:
        ledger = fold(ledger, event)
    return ledger


Kind = tuple[Capabilities, bool]  # and whether it is a process
KINDS: st.SearchStrategy[Kind] = st.sampled_from(
    [
        (CAPABILITIES, True),
        (CAPABILITIES, False),
        (evolve(CAPABILITIES, steer=Steer.none, batch_input=False), True),
        (evolve(CAPABILITIES, interrupt=Interrupt.none), True),
        (evolve(CAPABILITIES, approval_cancel=False), True),
    ]
)
TARGETS = st.sampled_from(["tgt_1", "tgt_2"])
STEPS = st.one_of(
    st.tuples(st.just("deliver"), TARGETS),
    st.tuples(st.just("urgent"), TARGETS),
    st.tuples(
        st.just("host"),
        st.sampled_from(["followup", "steer", "inject", "cancel", "keep"]),
    ),
    st.tuples(st.just("stop"), st.booleans()),
    st.tuples(st.just("idle"), st.none()),
    st.tuples(st.just("maintain"), st.none()),
    st.tuples(st.just("answer"), st.sampled_from(ApprovalOutcome)),
    st.tuples(
        st.just("say"),
        st.sampled_from(
            ["surface", "output", "said", "call", "result", "ask", "send", "read"]
        ),
    ),
    st.tuples(
        st.just("finish"),
        st.tuples(
            st.sampled_from(TurnStatus),
            st.one_of(st.none(), st.sampled_from(ItemOutcome)),
        ),
    ),
    st.tuples(st.just("exit"), st.sampled_from([0, 1, -9])),
    st.tuples(st.just("process"), st.sampled_from(["deaf", "immortal"])),
    st.tuples(st.just("gate"), st.sampled_from(GATES)),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
    st.tuples(st.just("journal"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0, 0, 1, 6, 40])),
)


async def _play(
    driver: FakeDriver, steps: list[tuple[str, Any]], *, dispose: bool
) -> None:
    people = ApprovalService()
    people.add(wait_for_person)
    limits = Limits(silence=300)
    async with bench(
        driver=driver, consult=people.request, limits=limits, watched=Watched()
    ) as b:
        script = Script(b)
        for step in steps:
            await script.play(step)
            assert b.actor.failure is None, b.stopped or b.actor.failure
        if dispose:
            await _dispose(script)
        else:
            await script.settle()
        assert b.actor.failure is None, b.stopped or b.actor.failure
        _check(script)


async def _dispose(script: Script) -> None:
    """From wherever the script left it."""
    if script.journal_held:
        await script.do_journal(None)
    with trio.fail_after(60):
        await script.b.handle.dispose()
    await wait_all_tasks_blocked()
    assert script.b.actor.ended
    assert script.b.session.live.phase is Phase.closed
    with pytest.raises(AskRefused):
        await script.b.actor.ask(IdleAwaited)
    for view in script.b.session.ledger.deliveries.values():
        assert view.state in TERMINAL


def _check(script: Script) -> None:
    b = script.b
    assert sorted(script.answered) == sorted(script.waiting)
    starts, ends = b.journal.of(TurnStart), b.journal.of(TurnEnd)
    assert len(starts) == len(ends)
    lanes = b.session.ledger.lanes.values()
    waiting = {i.delivery for lane in lanes for i in lane if i.delivery is not None}
    for urgent in script.urgents:
        # A Stop that came after it parks it, in sight (35).
        stopped = b.session.ledger.parked and urgent in waiting
        assert stopped or b.state(urgent) in TERMINAL, b.state(urgent)
    for delivery, view in b.session.ledger.deliveries.items():
        flying = view.item.id in b.session.ledger.in_flight
        if view.state is DeliveryState.queued:
            assert delivery in waiting
        assert flying == (view.state is DeliveryState.accepted)
    # One interrupt per turn, and one retry of a refused one (invariant 20).
    held = len(b.journal.of(FenceHeld))
    assert len(b.driver.gates.named("interrupt")) <= 2 * held


def _run(kind: Kind, steps: list[tuple[str, Any]], *, dispose: bool) -> None:
    async def main() -> None:
        capabilities, process = kind
        driver = FakeDriver(capabilities, process=process)
        await _play(driver, steps, dispose=dispose)

    trio.run(main, clock=MockClock(autojump_threshold=0))


SETTINGS = settings(
    max_examples=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)


# Half of the scripts begin inside a turn, where most of what can go wrong is.
INSIDE = [("deliver", "tgt_1"), ("wait", 0), ("say", "surface")]
SCRIPTS = st.builds(
    lambda start, steps: [*start, *steps],
    st.sampled_from([[], INSIDE]),
    st.lists(STEPS, max_size=40),
)


# The oracle of the pure machine watches every step of the actor's.
@pytest.mark.inv(
    *(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 17, 18, 19, 20, 21, 24),
    *(28, 29, 30, 31, 35, 36, 37, 38),
)
@SETTINGS
@given(KINDS, SCRIPTS)
def test_every_script_settles_and_every_caller_is_answered(
    kind: Kind, steps: list[tuple[str, Any]]
) -> None:
    _run(kind, steps, dispose=False)


@pytest.mark.inv(34)
@SETTINGS
@given(KINDS, SCRIPTS)
def test_dispose_ends_every_script_in_bounded_time(
    kind: Kind, steps: list[tuple[str, Any]]
) -> None:
    _run(kind, steps, dispose=True)
