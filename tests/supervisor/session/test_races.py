"""Races of cuts, submissions and answers that once broke this machine."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    SEEN,
    Drive,
    Manner,
    followup,
    ordinary,
    steering,
    urgent,
)
from tests.kit.situations import (
    LOOP,
    UNSTOPPABLE,
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
from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.errors import UnexpectedEvent
from agentteam_protocol.ids import ItemId, TargetId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.machine import step
from agentteam_supervisor.session.state import Phase
from agentteam_supervisor.session.words import REJECTED

NO_STEER = evolve(ABLE, steer=d.Steer.none)


def _unnamed() -> tuple[Drive, fx.Submit]:
    drive = Drive(able=NO_STEER).ready()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.deliver(urgent("u", 1, "tgt_b"))
    return drive, submit


def test_an_urgent_during_pre_step_converges_at_once() -> None:
    drive = Drive(able=NO_STEER).ready()
    drive.deliver(ordinary("x", 1))
    (pre,) = drive.wanted(fx.PreStep)
    drive.deliver(urgent("u", 1, "tgt_b"))
    drive.feed(ev.PreStepDecided(pre.batch, pre.items))
    assert ends(drive) == [("aborted", "urgent")]
    assert count(drive, fx.Interrupt) == 0
    drive.settle()
    assert submitted(drive) == [["dlv_u"], ["dlv_x"]]


def test_an_urgent_during_a_submission_that_never_left_interrupts_nothing() -> None:
    drive, submit = _unnamed()
    assert count(drive, fx.Interrupt) == 0
    drive.perform(submit)  # the gate: the run is not open any more
    assert ends(drive) == [("aborted", "urgent")]
    drive.settle()
    assert count(drive, fx.Interrupt) == 0
    assert submitted(drive)[-2:] == [["dlv_u"], ["dlv_x"]]


@pytest.mark.parametrize("answered", [False, True])
def test_a_turn_is_interrupted_as_soon_as_it_has_a_name(answered: bool) -> None:
    drive, submit = _unnamed()
    drive.owed.clear()
    drive.turn = d.TurnRef("turn8")
    if answered:
        drive.feed(ev.SubmitAccepted(submit.batch, drive.turn))
    else:
        drive.hear(d.TurnStarted(drive.turn, submit.batch))
    assert [e.turn for e in drive.wanted(fx.Interrupt)] == [drive.turn]
    drive.feed(ev.SubmitAccepted(submit.batch, drive.turn))
    assert count(drive, fx.Interrupt) == 1


def test_a_submission_of_unknown_fate_is_looked_for_by_the_driver() -> None:
    drive, submit = _unnamed()
    drive.owed.clear()
    drive.feed(ev.SubmitFailed(submit.batch, True, "no answer"))
    assert [e.turn for e in drive.wanted(fx.Interrupt)] == [None]
    for name in ("interrupt", "terminate", "kill"):
        drive.pass_deadline(name)
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    drive.settle()
    assert drive.phase is Phase.idle


def test_a_submission_that_fails_during_the_kill_waits_for_the_process() -> None:
    drive, submit = _unnamed()
    drive.owed.clear()
    drive.pass_deadline("interrupt")
    drive.feed(ev.SubmitFailed(submit.batch, False, "gone"))
    assert drive.phase is Phase.converging
    drive.die(-15)
    drive.settle()
    assert submitted(drive)[-2:] == [["dlv_u"], ["dlv_x"]]
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_a_turn_whose_process_cannot_be_killed_has_ended_all_the_same() -> None:
    drive = running()
    drive.deliver(urgent("u", 1))
    drive.owed.clear()
    drive.pass_deadline("interrupt")
    drive.end(d.TurnStatus.interrupted)
    drive.pass_deadline("terminate")
    drive.pass_deadline("kill")
    drive.owed.clear()
    assert ends(drive) == [("aborted", "urgent")]
    assert drive.phase is Phase.running


def test_a_cut_at_a_boundary_whose_ladder_fails_goes_on_from_there() -> None:
    drive = Drive(able=LOOP, in_process=True).running()
    drive.surface(ItemId("first"))
    drive.send(steering("x"))
    drive.boundary(more=False)
    drive.deliver(urgent("u", 1))
    drive.pass_deadline("interrupt")
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    drive.owed = [e for e in drive.owed if not isinstance(e, fx.Interrupt)]
    drive.settle()
    assert submitted(drive)[1] == ["x"]
    assert drive.phase is Phase.idle


def test_a_boundary_batch_that_the_gate_stopped_does_not_end_the_cut() -> None:
    drive = Drive(able=LOOP).running()
    drive.surface(ItemId("first"))
    drive.send(steering("x"))
    drive.boundary(more=False)
    drive.perform(drive.wanted(fx.PreStep)[0])
    submit = drive.wanted(fx.Submit)[-1]
    drive.deliver(urgent("u", 1))
    drive.perform(submit)
    assert drive.phase is Phase.converging, "the runtime's turn is still there"
    drive.settle()
    ran = [batch for batch in submitted(drive) if batch]
    assert ran[-2:] == [["dlv_u"], ["x"]]


def test_a_settle_that_is_answered_after_its_deadline_decides_nothing_new() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.end()
    (old,) = drive.wanted(fx.Settle)
    drive.owed.clear()
    drive.pass_deadline("settle")
    assert state_of(drive, "dlv_x") is DeliveryState.unknown
    drive.running(followup("second"))
    drive.end()
    (new,) = drive.wanted(fx.Settle)
    drive.feed(ev.Settled(old.inc, {ItemId("dlv_x"): d.ItemOutcome.dropped}))
    assert drive.session.ledger.turn is not None, "the answer was not for this turn"
    drive.feed(ev.Settled(new.inc, {ItemId("second"): d.ItemOutcome.surfaced}))
    assert drive.phase is Phase.idle


def test_a_steer_without_an_answer_is_waited_for_when_its_turn_ends() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    (steer,) = drive.wanted(fx.SteerItem)
    drive.end()
    drive.owed = [e for e in drive.owed if isinstance(e, fx.Settle)]
    drive.feed(ev.Settled(drive.inc, {}))
    assert drive.session.ledger.turn is not None
    drive.feed(ev.SteerFailed(steer.item.id, False, "no active turn"))
    assert drive.phase is Phase.running
    drive.owed = [e for e in drive.owed if not isinstance(e, fx.Settle)]
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


@pytest.mark.parametrize("answer", ["settled", "accepted"])
def test_an_accepted_steer_of_an_ended_turn_is_looked_up_again(answer: str) -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.end()
    drive.owed.clear()
    if answer == "settled":
        drive.feed(ev.Settled(drive.inc, {}))
    drive.feed(ev.SteerAccepted(ItemId("dlv_x")))
    assert len(drive.wanted(fx.Settle)) == (1 if answer == "settled" else 0)
    seen = {ItemId("dlv_x"): d.ItemOutcome.surfaced}
    drive.feed(ev.Settled(drive.inc, seen))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert drive.phase is Phase.idle


def test_evidence_counts_while_the_end_of_its_turn_is_settled() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    turn, key = drive.turn, drive.held[ItemId("dlv_x")]
    assert turn is not None
    drive.end()
    drive.hear(d.Surfaced(turn, ItemId("dlv_x"), key, SEEN))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_a_process_gone_while_a_cut_is_swept_or_settled_converges() -> None:
    for stage in (fx.Sweep, fx.Settle):
        drive = running()
        if stage is fx.Settle:
            drive.deliver(ordinary("x", 1))
            drive.answer_all()
        drive.deliver(urgent("u", 1, "tgt_b"))
        drive.owed.clear()
        drive.end(d.TurnStatus.interrupted)
        assert drive.wanted(stage)
        drive.die()
        assert drive.phase is Phase.recovering
        assert not {"sweep", "settle", "interrupt"} & set(drive.armed)
        drive.settle()
        assert state_of(drive, "dlv_u") is DeliveryState.surfaced


def test_a_followup_behind_an_urgent_runs_after_it() -> None:
    drive = running()
    drive.deliver(urgent("u", 1))
    drive.send(followup("behind"))
    drive.settle()
    assert submitted(drive)[-2:] == [["dlv_u"], ["behind"]]


@pytest.mark.req("R8", "R9")
@pytest.mark.inv(18)
def test_an_urgent_for_a_message_that_was_read_is_a_new_delivery() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1, message="msg_1"))
    drive.settle()
    assert frontier(drive) == 1
    drive.deliver(urgent("u", 1, message="msg_1"))
    drive.settle()
    told = [e for e in drive.log if isinstance(e, j.UserMessage)]
    assert [e.delivery for e in told] == ["dlv_x", "dlv_u"]
    assert frontier(drive) == 1


@pytest.mark.req("R1", "R3", "R20")
@pytest.mark.parametrize("body", ["stop", "URGENT!!", "停一下", "/interrupt"])
def test_no_body_ever_cuts(body: str) -> None:
    drive = running()
    drive.deliver(ordinary("x", 1, body=body))
    drive.send(steering("y", body))
    drive.settle()
    assert count(drive, fx.Interrupt) == 0
    assert "interrupt/requested" not in kinds(drive)


def test_a_carried_copy_does_not_stand_beside_its_urgent_copy() -> None:
    for when in ("before", "after"):
        drive = running()
        drive.deliver(ordinary("x", 1, message="msg_1"))
        drive.answer_all()
        if when == "before":
            drive.stop()
            drive.answer_all(Manner(outcome=d.ItemOutcome.carried))
        drive.deliver(urgent("u", 1, message="msg_1"))
        drive.answer_all(Manner(outcome=d.ItemOutcome.carried))
        assert state_of(drive, "dlv_x") is DeliveryState.superseded
        drive.settle()
        assert state_of(drive, "dlv_u") is DeliveryState.surfaced


def test_a_late_read_of_a_dead_process_answers_no_call_of_the_next() -> None:
    drive = running()
    gen = drive.session.ledger.gen
    drive.hear(d.ReadCalled(drive.turn, d.CallRef("0"), "tgt_a"))
    old = drive.inc
    drive.die()
    drive.running(followup("second"))
    drive.feed(ev.HistoryRead(d.CallRef("0"), gen, TargetId("tgt_a"), (1,), "text"))
    replies = [e for e in drive.trace if isinstance(e, fx.ToolReply)]
    assert [(e.inc, e.text) for e in replies] == [(old, REJECTED)]
    assert frontier(drive) == 0


@pytest.mark.req("R112", "R105")
@pytest.mark.inv(29, 37)
def test_when_idle_waits_for_maintenance_and_for_what_is_queued() -> None:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    drive.feed(ev.IdleAwaited(2))
    drive.send(followup("x"))
    assert not drive.session.quiescent
    assert 2 not in drive.replies
    drive.settle()
    assert len(drive.replies[2]) == 1


@pytest.mark.req("R53")
@pytest.mark.inv(36)
def test_a_stop_of_a_deaf_and_unkillable_run_ends_by_failing() -> None:
    drive = running()
    drive.stop(1)
    drive.settle(UNSTOPPABLE)
    assert drive.phase is Phase.idle
    assert ends(drive) == [("completed", "")]


def test_a_soft_cancel_of_a_loop_waits_for_its_boundary() -> None:
    drive = Drive(able=LOOP, in_process=True).running()
    drive.feed(ev.CancelRequested())
    drive.pass_deadline("interrupt_soft")
    assert drive.phase is Phase.converging
    drive.end(d.TurnStatus.interrupted)
    drive.settle()
    assert ends(drive) == [("aborted", "cancel")]


@pytest.mark.req("R100", "R101")
def test_cancel_from_a_tool_callback_lets_the_step_end_and_starts_no_other() -> None:
    drive = Drive(able=LOOP, in_process=True).running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.feed(ev.CancelRequested())
    drive.hear(d.ToolEnded(drive.turn, "c1", "ran"))
    drive.settle()
    assert kinds(drive).count("step/start") == 1
    assert ends(drive) == [("aborted", "cancel")]
    assert [e.output for e in drive.log if isinstance(e, j.ToolResult)] == ["ran"]


def test_a_loop_that_was_not_cut_in_time_is_cut_at_a_later_boundary() -> None:
    drive = Drive(able=LOOP, in_process=True).running()
    drive.deliver(urgent("u", 1))
    drive.owed.clear()
    drive.pass_deadline("interrupt")
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    drive.feed(ev.CancelRequested())
    assert drive.phase is Phase.converging
    assert count(drive, fx.Interrupt) == 1
    drive.end(d.TurnStatus.interrupted)
    drive.settle()
    assert ends(drive) == [("aborted", "cancel")]


@pytest.mark.req("R76", "R80")
@pytest.mark.inv(5)
def test_never_decides_before_anybody_is_asked() -> None:
    drive = running()
    drive.feed(ev.PolicyChosen(ApprovalPolicy.never))
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell"))
    assert count(drive, fx.Consult) == 0
    assert [e.outcome for e in drive.wanted(fx.Deny)] == [ApprovalOutcome.rejected]
    assert kinds(drive)[-2:] == ["approval/asked", "approval/decided"]


@pytest.mark.inv(38)
def test_after_the_end_every_caller_is_told_so() -> None:
    drive = idle()
    drive.feed(ev.LeaseLost())
    before = len(drive.log)
    drive.send(followup("x"), ref=1)
    drive.feed(ev.CancelRequested(ref=2))
    drive.feed(ev.IdleAwaited(3))
    drive.feed(ev.DisposeRequested(4))
    drive.feed(ev.ProcessGone(1))
    drive.hear(d.Said(None, "late"))
    assert len(drive.log) == before
    assert [bool(drive.replies[n][0].error) for n in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]


def test_the_machine_refuses_an_event_that_is_not_ours() -> None:
    with pytest.raises(UnexpectedEvent):
        step(Drive().session, object())  # type: ignore[arg-type]


def test_a_steer_without_an_answer_is_not_steered_again() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.owed.clear()
    drive.held[ItemId("dlv_x")] = "dlv_x.1"
    drive.deliver(urgent("u", 1, "tgt_b"))
    drive.owed.clear()
    drive.end(d.TurnStatus.interrupted, {ItemId("dlv_x"): d.ItemOutcome.dropped})
    drive.answer_all()
    assert lane(drive, Lane.next_step) == ["dlv_x"]
    drive.feed(ev.SteerFailed(ItemId("dlv_x"), False, "late"))
    assert lane(drive, Lane.next_step) == ["dlv_x"]
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


@pytest.mark.inv(8)
def test_an_old_process_is_refused_and_kept_as_history() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    turn, key, old = drive.turn, drive.held[ItemId("dlv_x")], drive.inc
    assert turn is not None
    drive.die()
    drive.running(followup("second"))
    before = drive.session.ledger
    effects = drive.hear(
        d.Asked(turn, d.AskRef("a1"), "shell"),
        d.SendCalled(turn, d.CallRef("c1"), "tgt_a", "stale"),
        d.Surfaced(turn, ItemId("dlv_x"), key, SEEN),
        d.TurnEnded(turn, d.TurnStatus.completed),
        d.SessionNamed("old"),
        inc=old,
    )
    answers = [e for e in effects if isinstance(e, fx.Deny | fx.ToolReply)]
    assert [e.inc for e in answers] == [old, old]
    assert drive.session.ledger.turn == before.turn
    assert drive.session.ledger.resume == before.resume
    assert frontier(drive) == 0


def test_a_lost_submission_is_put_back_while_the_next_run_is_cut() -> None:
    drive = Drive(able=NO_STEER).ready()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.die()
    drive.send(followup("f"))
    drive.stop()
    assert drive.phase is Phase.converging
    drive.feed(ev.SubmitFailed(submit.batch, False, "gone"))
    assert drive.session.ledger.in_flight == {}
    assert state_of(drive, "dlv_x") is DeliveryState.queued
