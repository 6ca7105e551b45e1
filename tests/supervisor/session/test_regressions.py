"""Races and faults that once broke a machine like this one, each pinned by name."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    SEEN,
    Drive,
    Manner,
    followup,
    injected,
    ordinary,
    reloaded,
    steering,
    urgent,
)
from tests.kit.situations import (
    LOOP,
    count,
    ends,
    frontier,
    idle,
    kinds,
    lane,
    running,
    state_of,
    submitted,
)

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import Phase
from agentteam_supervisor.session.words import HELD

NO_STEER = evolve(ABLE, steer=d.Steer.none)

# --- the five that the reference's own tests let through ---------------------------------


@pytest.mark.req("R94")
def test_a_steer_inside_a_tool_callback_never_nests_a_turn() -> None:
    drive = Drive(able=LOOP).running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.send(steering("x"))
    assert kinds(drive).count("turn/start") == 1
    assert count(drive, fx.Submit) == 1
    drive.hear(d.ToolEnded(drive.turn, "c1", "out"))
    drive.boundary(more=True)
    drive.answer_all()
    assert kinds(drive).count("turn/start") == 1
    assert submitted(drive)[-1] == ["x"]


def test_a_steer_does_not_wait_behind_an_older_followup_at_a_boundary() -> None:
    drive = Drive(able=LOOP).running()
    drive.send(followup("older"))
    drive.send(steering("x"))
    drive.boundary(more=False)
    drive.answer_all()
    assert submitted(drive)[-1] == ["x"]
    assert lane(drive, Lane.next_turn) == ["older"]


def test_a_turn_that_ran_a_step_never_ends_blocked() -> None:
    drive = Drive(able=LOOP).running()
    drive.surface(ItemId("first"))
    drive.send(steering("x"))
    drive.boundary(more=False)
    (pre,) = drive.wanted(fx.PreStep)
    drive.owed.remove(pre)
    drive.feed(ev.PreStepDecided(pre.batch, None, "no"))
    drive.answer_all()
    drive.end()
    assert ends(drive) == [("completed", "")]


@pytest.mark.req("R106")
@pytest.mark.inv(28)
@pytest.mark.parametrize("item", [followup("x"), steering("x"), injected("x")])
def test_no_turn_opens_inside_maintenance(item: object) -> None:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    drive.send(item)  # type: ignore[arg-type]
    drive.deliver(ordinary("y", 1))
    assert "turn/start" not in kinds(drive)
    assert drive.phase is Phase.maintenance


@pytest.mark.req("R97")
def test_an_idle_inbox_is_not_cleared_without_an_event() -> None:
    drive = idle()
    drive.send(injected("x"))
    drive.feed(ev.CancelRequested())
    splices = [e for e in drive.log if isinstance(e, j.InboxSpliced)]
    assert splices[-1].reason is j.SpliceReason.cancelled
    assert splices[-1].removed == ("x",)


# --- races -------------------------------------------------------------------------------


@pytest.mark.inv(24)
def test_an_interrupt_that_races_completion_still_aborts_the_turn() -> None:
    drive = running()
    drive.deliver(urgent("u", 1))
    (interrupt,) = drive.wanted(fx.Interrupt)
    drive.owed.clear()
    drive.end()
    drive.answer_all()
    drive.feed(ev.InterruptFailed(interrupt.inc, "no active turn"))
    assert ends(drive)[0] == ("aborted", "urgent")
    drive.answer_all()
    assert submitted(drive)[-1] == ["dlv_u"]
    assert drive.phase is Phase.running
    assert count(drive, fx.Terminate) == 0


def test_a_late_refusal_of_an_old_interrupt_does_not_hurt_a_new_cut() -> None:
    drive = running()
    drive.stop()
    (old,) = drive.wanted(fx.Interrupt)
    drive.owed.clear()
    drive.end(d.TurnStatus.interrupted)
    drive.answer_all()
    drive.running(followup("second"))
    drive.stop()
    drive.feed(ev.InterruptFailed(old.inc, "no active turn"))
    assert count(drive, fx.Terminate) == 0
    drive.feed(ev.InterruptFailed(old.inc, "cannot"))
    assert count(drive, fx.Terminate) == 1


@pytest.mark.req("R38", "R39")
@pytest.mark.inv(8)
def test_a_late_line_of_the_same_process_is_kept_as_history() -> None:
    drive = running()
    old = drive.turn
    drive.deliver(urgent("u", 1))
    drive.answer_all()
    assert drive.phase is Phase.running
    effects = drive.hear(d.Said(old, "late"))
    assert [type(e) for e in effects] == [fx.Record]
    (late,) = [e for e in drive.log if isinstance(e, j.FenceLate)]
    assert late.gen is not None
    assert late.gen < drive.session.ledger.gen


@pytest.mark.req("R22", "R47")
@pytest.mark.inv(12)
@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (d.ItemOutcome.surfaced, DeliveryState.surfaced),
        (d.ItemOutcome.dropped, DeliveryState.queued),
        (d.ItemOutcome.carried, DeliveryState.accepted),
        (d.ItemOutcome.unknown, DeliveryState.unknown),
    ],
)
def test_an_accepted_steer_is_settled_when_its_run_is_cut(
    outcome: d.ItemOutcome, state: DeliveryState
) -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.stop()
    drive.answer_all(Manner(outcome=outcome))
    assert state_of(drive, "dlv_x") is state
    assert frontier(drive) == (1 if outcome is d.ItemOutcome.surfaced else 0)


@pytest.mark.inv(13)
def test_what_the_runtime_carries_is_never_sent_again() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.stop()
    drive.answer_all(Manner(outcome=d.ItemOutcome.carried))
    drive.send(followup("next"))
    drive.answer_all()
    assert submitted(drive)[-1] == ["next"]
    drive.hear(d.Surfaced(drive.turn or d.TurnRef(""), ItemId("dlv_x"), "any", SEEN))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


@pytest.mark.inv("26b", 4, 5)
def test_an_answer_that_comes_after_the_urgent_allows_nothing() -> None:
    drive = running()
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell", call_id="c1"))
    (consult,) = drive.wanted(fx.Consult)
    drive.deliver(urgent("u", 1))
    yes = ApprovalOutcome.allowed_once
    drive.feed(ev.ApprovalAnswered(consult.request.id, yes, 9))
    assert count(drive, fx.Allow) == 0
    assert drive.replies[9][0].error.startswith("already_decided")
    denied = [e.outcome for e in drive.trace if isinstance(e, fx.Deny)]
    assert denied == [ApprovalOutcome.cancelled]


@pytest.mark.inv(15, 20)
def test_two_urgents_are_one_cut_and_run_in_their_order() -> None:
    drive = running()
    drive.deliver(urgent("u", 1))
    drive.deliver(urgent("v", 1, "tgt_b"))
    drive.deliver(urgent("w", 2))
    assert count(drive, fx.Interrupt) == 1
    drive.settle()
    assert submitted(drive)[1:] == [["dlv_u", "dlv_w"], ["dlv_v"]]


@pytest.mark.inv(26, 27)
def test_a_followup_after_a_stop_runs_and_takes_what_was_parked_along() -> None:
    drive = running()
    drive.send(followup("older"))
    drive.stop()
    drive.send(followup("newer"))
    drive.settle()
    assert submitted(drive)[-2:] == [["older"], ["newer"]]


def test_stop_then_urgent_then_the_process_is_gone_reads_the_urgent() -> None:
    drive = running()
    drive.stop()
    drive.deliver(urgent("u", 1))
    drive.die(-9)
    drive.settle()
    assert ends(drive)[0] == ("aborted", "stop")
    assert submitted(drive)[-1] == ["dlv_u"]


@pytest.mark.req("R33", "R53")
@pytest.mark.inv(3)
def test_a_kill_with_a_started_tool_says_its_outcome_is_unknown() -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.hear(d.ToolStarted(drive.turn, "c2", "shell"))
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell", call_id="c2"))
    drive.deliver(urgent("u", 1))
    drive.settle(Manner(deaf=True))
    results = {e.call_id: e.error for e in drive.log if isinstance(e, j.ToolResult)}
    assert results == {"c1": "TOOL_OUTCOME_UNKNOWN", "c2": "ABORTED_BEFORE_DISPATCH"}
    assert submitted(drive)[-1] == ["dlv_u"]


@pytest.mark.inv(3)
def test_a_call_that_was_allowed_once_may_have_begun_even_if_asked_again() -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell", call_id="c1"))
    drive.answer_all(Manner(allows=True))
    drive.hear(d.Asked(drive.turn, d.AskRef("a2"), "network", call_id="c1"))
    drive.stop()
    drive.settle()
    (result,) = [e for e in drive.log if isinstance(e, j.ToolResult)]
    assert result.error == "TOOL_OUTCOME_UNKNOWN"


@pytest.mark.req("R40", "R49", "R57")
@pytest.mark.inv(11, 21)
def test_after_a_failed_ladder_a_send_is_judged_again_and_nothing_was_seen() -> None:
    drive = running()
    drive.deliver(urgent("u", 1))
    drive.hear(d.SendCalled(drive.turn, d.CallRef("c1"), "tgt_a", "stale"))
    assert [e.text for e in drive.wanted(fx.ToolReply)] == [HELD]
    for name in ("interrupt", "terminate", "kill"):
        drive.pass_deadline(name)
    drive.hear(d.SendCalled(drive.turn, d.CallRef("c2"), "tgt_a", "stale"))
    assert [e.text for e in drive.wanted(fx.JudgeSend)] == ["stale"]
    assert frontier(drive) == 0


@pytest.mark.req("R6", "R118", "R121")
@pytest.mark.inv(31, 32)
def test_a_restart_between_requested_and_started_goes_on_with_the_urgent() -> None:
    drive = running()
    drive.send(followup("older"))
    drive.deliver(urgent("u", 1))
    again = reloaded(drive, drive.log, 2)
    assert ends(again)[-1][0] == "interrupted"
    again.feed(ev.Loaded())
    again.settle()
    assert submitted(again)[:2] == [["dlv_u"], ["older"]]
    assert again.session.ledger.gen.epoch == 2
