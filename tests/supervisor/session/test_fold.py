"""The ledger is the fold of the journal, event by event."""

from __future__ import annotations

from typing import get_args

import pytest
from attrs import evolve
from tests.kit.driving import AGENT, ordinary

from agentteam_protocol import journal as j
from agentteam_protocol.approval import (
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalRequest,
)
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    DeliveryState,
    Diagnostic,
)
from agentteam_protocol.ids import (
    ApprovalId,
    DeliveryId,
    Generation,
    ItemId,
    RunId,
    TargetId,
)
from agentteam_protocol.inbox import Lane
from agentteam_supervisor.session import fold as folding
from agentteam_supervisor.session.fold import MAX_SETTLED, empty, fold
from agentteam_supervisor.session.state import Fence, Ledger

RUN = RunId("run_1")
FIRST = Generation(1, 1)


def folded(*events: j.JournalEvent) -> Ledger:
    ledger = empty(AGENT)
    for event in events:
        ledger = fold(ledger, event)
    return ledger


def accepted(*names: str) -> j.InboxSpliced:
    added = tuple(
        evolve(ordinary(name, n), position=n) for n, name in enumerate(names, 1)
    )
    return j.InboxSpliced(j.SpliceReason.accepted, added=added)


def asked(approval: str, call: str | None = "c1") -> j.ApprovalAsked:
    request = ApprovalRequest(ApprovalId(approval), RUN, "shell", call_id=call)
    return j.ApprovalAsked(1, request)


def decided(approval: str, outcome: ApprovalOutcome) -> j.ApprovalDecided:
    return j.ApprovalDecided(1, ApprovalId(approval), outcome)


START = j.TurnStart(1, RUN, FIRST)


@pytest.mark.req("R116", "R118")
def test_every_journal_event_has_its_rule() -> None:
    assert set(folding._RULES) == set(get_args(j.JournalEvent))


@pytest.mark.req("R121")
@pytest.mark.parametrize(
    "event",
    [
        j.StepStart(1, 1),
        j.StepEnd(1, 1),
        j.ToolCall(1, "c1", "shell"),
        j.ToolResult(1, "c1"),
        j.UserMessage(1, ItemId("x"), "b"),
        j.AssistantMessage(1, "text"),
        j.InterruptRequested(FIRST, RUN, CutCause.stop),
        asked("apr_1"),
        decided("apr_1", ApprovalOutcome.rejected),
        j.DeliveryChanged(DeliveryId("dlv_none"), DeliveryState.surfaced),
    ],
)
def test_a_bare_event_between_turns_changes_nothing(event: j.JournalEvent) -> None:
    assert fold(empty(AGENT), event) == empty(AGENT)


def test_a_turn_keeps_its_open_brackets() -> None:
    ledger = folded(START, j.StepStart(1, 1), j.ToolCall(1, "c1", "shell"))
    assert ledger.turn is not None
    assert (ledger.turn.steps, ledger.turn.step_open) == (1, True)
    assert ledger.turn.calls == ("c1",)
    closed = fold(fold(ledger, j.ToolResult(1, "c1")), j.StepEnd(1, 1))
    assert closed.turn is not None
    assert not closed.turn.step_open
    assert closed.turn.calls == ()
    assert fold(closed, j.TurnEnd(1, j.TurnOutcome.completed)).turn is None


@pytest.mark.inv(24)
def test_the_first_cause_of_a_cut_stays_until_it_is_taken_back() -> None:
    cuts = [
        j.InterruptRequested(FIRST, RUN, c) for c in (CutCause.stop, CutCause.urgent)
    ]
    ledger = folded(START, *cuts, j.FenceHeld(FIRST))
    assert ledger.turn is not None
    assert ledger.turn.cause is CutCause.stop
    assert ledger.fence is Fence.hold
    reopened = fold(ledger, j.FenceReopened(FIRST))
    assert reopened.turn is not None
    assert reopened.turn.cause is None
    assert reopened.fence is Fence.open


def test_a_fence_opens_the_next_generation() -> None:
    ledger = folded(j.FenceClosed(FIRST, FIRST.next()))
    assert (ledger.gen, ledger.fence) == (FIRST.next(), Fence.open)


@pytest.mark.inv(3)
def test_a_call_is_withheld_until_its_own_ask_is_allowed() -> None:
    ledger = folded(START, asked("apr_1"))
    assert ledger.turn is not None
    assert ledger.turn.withheld == {"c1"}
    no = fold(ledger, decided("apr_1", ApprovalOutcome.rejected))
    assert no.turn is not None
    assert no.turn.withheld == {"c1"}
    yes = fold(ledger, decided("apr_1", ApprovalOutcome.allowed_once))
    yes = fold(yes, asked("apr_2"))
    assert yes.turn is not None
    assert yes.turn.withheld == frozenset()
    assert yes.turn.asks == {"apr_2": "c1"}
    nameless = folded(START, asked("apr_1", None))
    nameless = fold(nameless, decided("apr_1", ApprovalOutcome.allowed_once))
    assert nameless.turn is not None
    assert nameless.turn.withheld == frozenset()


def test_an_entry_goes_from_its_lane_to_the_runtime_and_out() -> None:
    ledger = folded(accepted("x"))
    (item,) = ledger.lanes[Lane.next_step]
    claim = j.InboxSpliced(j.SpliceReason.claimed, (item.id,))
    ledger = fold(fold(ledger, claim), j.ItemsInFlight(added=(item,)))
    assert ledger.lanes[Lane.next_step] == ()
    carried = (item.id, ItemId("nobody"))
    ledger = fold(ledger, j.ItemsInFlight(carried=carried))
    assert [f.carried for f in ledger.in_flight.values()] == [True]
    assert fold(ledger, j.ItemsInFlight(removed=(item.id,))).in_flight == {}


@pytest.mark.req("R50", "R52")
@pytest.mark.inv(10)
def test_frontiers_are_per_target_and_never_go_back() -> None:
    a, b = TargetId("a"), TargetId("b")
    ledger = folded(
        j.FrontierMoved(a, floor=3), j.FrontierMoved(a, (5,)), j.FrontierMoved(b, (1,))
    )
    assert ledger.frontiers[a].contiguous == 3
    assert ledger.frontiers[a].extras == {5}
    ledger = fold(ledger, j.FrontierMoved(a, (4, 1)))
    assert ledger.frontiers[a].contiguous == 5
    assert ledger.frontiers[b].contiguous == 1


def test_an_own_send_is_seen_by_its_author_and_spares_the_auto_reply() -> None:
    target = TargetId("tgt_a")
    send = j.SendDecided(FIRST, target, "forwarded", seq=1)
    ledger = folded(START, send)
    assert ledger.turn is not None
    assert ledger.turn.sent_to == {target}
    assert ledger.frontiers[target].contiguous == 1
    for other in (
        evolve(send, seq=None, verdict="held"),
        evolve(send, auto_reply=True),
        evolve(send, gen=FIRST.next()),
    ):
        after = folded(START, other)
        assert after.turn is not None
        assert after.turn.sent_to == frozenset()


def test_a_turn_remembers_where_it_was_asked() -> None:
    told = j.UserMessage(1, ItemId("dlv_x"), "b", DeliveryId("dlv_x"))
    ledger = folded(accepted("x"), START, told)
    assert ledger.turn is not None
    assert ledger.turn.target == "tgt_a"
    host = folded(START, j.UserMessage(1, ItemId("f"), "b"))
    assert host.turn is not None
    assert host.turn.target is None


def test_a_turn_that_another_agent_asked_for_owes_no_automatic_reply() -> None:
    by_agent = evolve(ordinary("x", 1), author=Author(AuthorKind.agent, "a2"))
    asked = j.InboxSpliced(j.SpliceReason.accepted, added=(by_agent,))
    told = j.UserMessage(1, ItemId("dlv_x"), "b", DeliveryId("dlv_x"))
    ledger = folded(asked, START, told)
    assert ledger.turn is not None
    assert ledger.turn.target is None


@pytest.mark.req("R118")
def test_the_last_of_policy_park_process_session_and_problem_holds() -> None:
    broken = Diagnostic("p", "w")
    ledger = folded(
        j.ApprovalPolicySet(ApprovalPolicy.never),
        j.ApprovalPolicySet(ApprovalPolicy.ask),
        j.RunParked(4),
        j.RunProcess(2, alive=True, identity="id"),
        j.RunSession("s1"),
        j.RunProblem(broken),
        j.RunNotice("for people"),
        j.FenceLate(None, "output"),
        j.SessionClosed(CutCause.disposed),
    )
    assert ledger.policy is ApprovalPolicy.ask
    assert (ledger.park, ledger.inc, ledger.alive, ledger.identity) == (
        4,
        2,
        True,
        "id",
    )
    assert (ledger.resume, ledger.problem, ledger.closed) == ("s1", broken, True)
    ledger = fold(fold(ledger, j.RunSession("")), j.EpochBegun(Generation(2, 1)))
    assert (ledger.resume, ledger.alive) == (None, False)
    assert ledger.gen == Generation(2, 1)


def test_settled_deliveries_are_forgotten_before_open_ones() -> None:
    ledger = folded(accepted("open"))
    for n in range(2 * MAX_SETTLED + 1):
        item = ordinary(f"d{n}", n)
        ledger = fold(ledger, j.InboxSpliced(j.SpliceReason.accepted, added=(item,)))
        gone = j.DeliveryChanged(
            item.delivery or DeliveryId(""), DeliveryState.surfaced
        )
        ledger = fold(ledger, gone)
    assert len(ledger.deliveries) <= 2 * MAX_SETTLED
    assert "dlv_open" in ledger.deliveries
    assert f"dlv_d{2 * MAX_SETTLED}" in ledger.deliveries
