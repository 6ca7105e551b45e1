"""The transition table, continued: the cuts, their ladder and the fence."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    Drive,
    Manner,
    followup,
    ordinary,
    urgent,
)
from tests.kit.situations import (
    ANY,
    UNSTOPPABLE,
    converging,
    count,
    ends,
    frontier,
    idle,
    kinds,
    lane,
    maintaining,
    recovering,
    running,
    starting,
    state_of,
    submitted,
)

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId, RunId, TargetId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.prompt import FORGOTTEN
from agentteam_supervisor.session.state import Fence, Phase
from agentteam_supervisor.session.words import HELD, REJECTED

# --- cuts -------------------------------------------------------------------------------


@pytest.mark.req("R11", "R27", "R37", "R97")
@pytest.mark.inv("26b", 7)
@pytest.mark.parametrize("how", ["cancel", "stop", "urgent"])
def test_t14_a_cut_holds_cancels_asks_and_interrupts_in_one_step(how: str) -> None:
    drive = running()
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell"))
    drive.owed.clear()
    match how:
        case "cancel":
            drive.feed(ev.CancelRequested("why"))
        case "stop":
            drive.stop(7)
            assert drive.replies[7][0].value is ControlResult.stopping
        case _:
            drive.deliver(urgent("u", 1))
            assert lane(drive, Lane.urgent) == ["dlv_u"]
    assert drive.session.ledger.fence is Fence.hold
    assert drive.phase is Phase.converging
    assert [e.ask.id for e in drive.wanted(fx.Deny)] == ["a1"]
    assert [e.turn for e in drive.wanted(fx.Interrupt)] == [drive.turn]
    limit = "interrupt_soft" if how == "cancel" else "interrupt"
    assert set(drive.armed) - {"silence"} == {limit}
    decided = [e.outcome for e in drive.log if isinstance(e, j.ApprovalDecided)]
    assert decided == [ApprovalOutcome.cancelled]


@pytest.mark.req("R97", "R103")
def test_t14_cancel_clears_the_lanes_and_what_it_found_in_flight() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.send(followup("cleared"))
    drive.feed(ev.CancelRequested())
    drive.send(followup("later"))
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.cancelled
    assert submitted(drive)[-1] == ["later"]


def test_t14_cancel_takes_a_claimed_batch_along() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.feed(ev.CancelRequested())
    drive.settle()
    assert submitted(drive) == []
    assert state_of(drive, "dlv_x") is DeliveryState.cancelled
    assert drive.phase is Phase.idle


@pytest.mark.req("R15")
@pytest.mark.parametrize("begin", ANY)
def test_t15_stop_of_another_run_or_of_none_changes_nothing(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    before = drive.session.ledger
    drive.feed(ev.StopRequested(RunId("run_other"), ref=1))
    drive.feed(ev.StopRequested(None, ref=2))
    assert drive.session.ledger == before
    turn = before.turn is not None
    expected = ControlResult.stale_run if turn else ControlResult.not_running
    assert drive.replies[1][0].value is expected
    assert drive.replies[2][0].value is ControlResult.not_running


@pytest.mark.inv(20, 24)
def test_t16_a_second_cut_joins_with_the_first_cause_and_one_interrupt() -> None:
    drive = converging(soft=True)
    assert "interrupt" not in drive.armed
    drive.stop()
    drive.deliver(urgent("u", 1))
    assert "interrupt" in drive.armed
    assert count(drive, fx.Interrupt) == 1
    drive.settle()
    assert ends(drive)[0] == ("aborted", "cancel")
    assert submitted(drive)[-1] == ["dlv_u"]


def test_t16_cancel_clears_an_urgent_that_joined() -> None:
    drive = converging()
    drive.deliver(urgent("u", 1))
    drive.feed(ev.CancelRequested())
    assert state_of(drive, "dlv_u") is DeliveryState.cancelled
    drive.settle()
    assert drive.phase is Phase.idle


@pytest.mark.inv(20)
def test_t16_a_refused_interrupt_that_names_the_turn_is_sent_once_more() -> None:
    drive = converging()
    drive.owed.clear()
    named = d.TurnRef("turn9")
    drive.feed(ev.InterruptFailed(drive.inc, "mismatch", named))
    assert [e.turn for e in drive.wanted(fx.Interrupt)] == [named]
    drive.feed(ev.InterruptFailed(drive.inc, "mismatch", named))
    assert len(drive.wanted(fx.Interrupt)) == 1
    assert drive.wanted(fx.Terminate)


@pytest.mark.parametrize("begin", [converging, recovering, maintaining])
@pytest.mark.inv(26)
def test_t17_input_waits_in_its_lane_and_runs_afterwards(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.send(followup("x"))
    drive.deliver(ordinary("y", 1))
    assert lane(drive, Lane.next_turn)[-1] == "x"
    assert lane(drive, Lane.next_step) == ["dlv_y"]
    drive.settle()
    ran = [i for batch in submitted(drive) for i in batch]
    assert {"x", "dlv_y"} <= set(ran)


@pytest.mark.req("R30", "R117")
@pytest.mark.inv(6, 24)
@pytest.mark.parametrize("status", list(d.TurnStatus))
def test_t18_a_held_run_ends_aborted_in_whatever_status(status: d.TurnStatus) -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    gen = drive.session.ledger.gen
    drive.deliver(urgent("u", 1))
    drive.owed.clear()
    drive.end(status)
    assert drive.wanted(fx.Sweep)
    assert drive.session.ledger.turn is not None
    drive.answer_all()
    assert ends(drive)[0] == ("aborted", "urgent")
    assert drive.session.ledger.gen == gen.next()
    assert submitted(drive)[-1] == ["dlv_u"]
    told = [k for k in kinds(drive) if k.startswith(("tool", "step", "turn", "fence"))]
    expected = ["tool/result", "step/end", "turn/end", "fence/closed", "turn/start"]
    assert told[-6:-1] == expected


@pytest.mark.req("R33", "R53")
def test_t19_deadlines_climb_the_ladder_stage_by_stage() -> None:
    drive = converging()
    drive.owed.clear()
    drive.pass_deadline("interrupt")
    assert drive.wanted(fx.Terminate)
    assert not drive.wanted(fx.Kill)
    drive.pass_deadline("terminate")
    assert drive.wanted(fx.Kill)
    drive.answer_all()
    assert drive.phase is Phase.offline


def test_t19_a_refused_interrupt_goes_on_to_terminate() -> None:
    drive = converging()
    drive.owed.clear()
    drive.feed(ev.InterruptFailed(drive.inc, "cannot"))
    assert drive.wanted(fx.Terminate)


@pytest.mark.inv(3)
def test_t20_a_process_gone_under_a_cut_recovers_with_the_urgent_first() -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.send(followup("older"))
    drive.deliver(urgent("u", 1))
    drive.die(-9)
    assert drive.phase is Phase.recovering
    assert ends(drive)[0] == ("aborted", "urgent")
    errors = [e.error for e in drive.log if isinstance(e, j.ToolResult)]
    assert errors == ["TOOL_OUTCOME_UNKNOWN"]
    (order,) = drive.wanted(fx.OpenRuntime)
    assert not order.paced
    drive.settle()
    assert submitted(drive)[-2:] == [["dlv_u"], ["older"]]


@pytest.mark.req("R29", "R48")
@pytest.mark.inv(15)
def test_t21_the_urgent_batch_takes_lower_sequences_of_its_target_in_front() -> None:
    drive = Drive(able=evolve(ABLE, steer=d.Steer.none)).running()
    drive.deliver(ordinary("b", 1, "tgt_b"))
    drive.deliver(ordinary("x", 1))
    drive.deliver(ordinary("later", 3))
    drive.send(followup("f"))
    drive.deliver(urgent("u", 2))
    drive.settle()
    assert submitted(drive)[1] == ["dlv_x", "dlv_u"]


def test_t22_after_a_cancel_what_was_sent_later_runs() -> None:
    drive = converging(soft=True)
    drive.send(followup("x"))
    drive.settle()
    assert submitted(drive)[-1] == ["x"]


@pytest.mark.req("R102")
@pytest.mark.inv(25, 27)
def test_t23_after_a_stop_what_waited_stays_parked() -> None:
    drive = running()
    drive.send(followup("x"))
    drive.stop()
    drive.settle()
    assert drive.phase is Phase.idle
    assert lane(drive, Lane.next_turn) == ["x"]
    assert drive.session.ledger.parked


@pytest.mark.parametrize("begin", [starting, recovering])
def test_t24_a_ready_process_gets_what_is_due(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    (order,) = drive.wanted(fx.OpenRuntime)
    drive.perform(order)
    assert drive.phase is Phase.running
    drive.answer_all()
    assert len(submitted(drive)[-1]) == 1


def test_t24_a_session_named_during_the_handshake_is_resumed_later() -> None:
    drive = starting()
    drive.hear(d.SessionNamed("s1"), inc=1)
    drive.answer_all()
    assert drive.session.ledger.resume == "s1"
    drive.end()
    drive.die()
    drive.send(followup("next"))
    assert [e.resume for e in drive.wanted(fx.OpenRuntime)] == ["s1"]


def test_t25_a_lost_history_is_told_and_its_session_forgotten() -> None:
    drive = running()
    drive.hear(d.SessionNamed("s1"))
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.die()
    (order,) = drive.wanted(fx.OpenRuntime)
    drive.owed.clear()
    drive.inc = order.inc
    drive.hear(d.SessionNamed("s2"), inc=order.inc)
    drive.feed(ev.RuntimeReady(order.inc, ABLE, history_lost=True))
    assert drive.session.ledger.resume == "s2"
    assert state_of(drive, "dlv_x") is DeliveryState.unknown
    notices = [e.text for e in drive.log if isinstance(e, j.RunNotice)]
    assert any("history not available" in text for text in notices)


@pytest.mark.req("R49", "R53", "R54", "R55", "R56", "R57")
@pytest.mark.inv(21)
def test_t26_when_every_stage_failed_the_run_goes_on_and_the_urgent_failed() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.deliver(urgent("u", 2))
    park = drive.session.ledger.park
    drive.settle(evolve(UNSTOPPABLE))
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    assert drive.session.ledger.park == park
    assert frontier(drive) == 1  # the run went on and read the ordinary one
    told = [e for e in drive.log if isinstance(e, j.FenceReopened)]
    assert len(told) == 1
    diagnostics = [
        e.diagnostic
        for e in drive.log
        if isinstance(e, j.DeliveryChanged) and e.delivery == "dlv_u" and e.diagnostic
    ]
    assert diagnostics[0].what_to_do


@pytest.mark.inv(20)
def test_t26_a_later_cut_starts_at_terminate_and_the_park_is_as_before() -> None:
    drive = running()
    drive.send(followup("x"))
    drive.stop()
    for name in ("interrupt", "terminate", "kill"):
        drive.pass_deadline(name)
    assert drive.phase is Phase.running
    assert drive.session.ledger.fence is Fence.open
    assert drive.session.ledger.park == 0
    drive.owed.clear()
    drive.stop()
    assert drive.wanted(fx.Terminate)
    assert not drive.wanted(fx.Interrupt)


@pytest.mark.req("R71")
def test_t26_an_ask_that_cannot_be_taken_back_blocks_the_urgent() -> None:
    drive = Drive(able=evolve(ABLE, approval_cancel=False)).running()
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell"))
    drive.deliver(urgent("u", 1))
    for name in ("interrupt", "terminate", "kill"):
        drive.pass_deadline(name)
    assert state_of(drive, "dlv_u") is DeliveryState.blocked


@pytest.mark.req("R117")
def test_t27_a_process_that_died_ends_the_turn_with_an_error_and_recovers() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    gen = drive.session.ledger.gen
    drive.die()
    assert ends(drive)[0] == ("error", "")
    assert drive.session.ledger.gen == gen.next()
    (order,) = drive.wanted(fx.OpenRuntime)
    assert order.paced
    assert [i.id for i in order.unsettled] == ["dlv_x", "first"]
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_t27_a_batch_that_was_never_submitted_is_not_in_doubt() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.die()
    assert drive.session.ledger.in_flight == {}
    drive.settle(Manner(outcome=d.ItemOutcome.unknown))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_t27_a_submission_that_never_left_a_dead_process_is_sent_again() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.die()
    drive.perform(submit)
    drive.settle(Manner(outcome=d.ItemOutcome.unknown))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_t27a_a_process_that_died_in_idle_leaves_the_session_offline() -> None:
    drive = idle()
    drive.die()
    assert drive.phase is Phase.offline
    assert drive.session.quiescent
    drive.send(followup("x"))
    drive.settle()
    assert submitted(drive)[-1] == ["x"]


# --- the fence --------------------------------------------------------------------------


@pytest.mark.req("R38", "R39", "R42")
@pytest.mark.inv(8)
def test_t28_what_is_late_is_kept_refused_and_never_shown() -> None:
    drive = running()
    old = drive.turn
    drive.deliver(urgent("u", 1))
    drive.settle()
    before = len(drive.log)
    for late in (
        d.Output(old, "late"),
        d.Said(old, "late"),
        d.ToolStarted(old, "c9", "shell"),
        d.ToolEnded(old, "c9"),
    ):
        drive.hear(late)
    assert set(kinds(drive)[before:]) == {"fence/late"}
    effects = drive.hear(d.Asked(old, d.AskRef("a9"), "shell"))
    assert [type(e) for e in effects] == [fx.Deny, fx.Record]
    effects = drive.hear(d.ReadCalled(old, d.CallRef("r9"), "tgt_a"))
    assert [e.text for e in effects if isinstance(e, fx.ToolReply)] == [REJECTED]
    assert count(drive, fx.Progress) == 0


def test_t28_a_result_under_hold_balances_its_own_turn() -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.hear(d.Output(drive.turn, "half a sent"))
    drive.stop()
    drive.hear(d.ToolEnded(drive.turn, "c1", "out"))
    drive.hear(d.ToolStarted(drive.turn, "c2", "shell"))
    results = [(e.call_id, e.error) for e in drive.log if isinstance(e, j.ToolResult)]
    assert results == [("c1", None)]
    said = [e for e in drive.log if isinstance(e, j.AssistantMessage)]
    assert [(e.text, e.partial) for e in said] == [("half a sent", True)]
    assert [e.call_id for e in drive.log if isinstance(e, j.ToolCall)] == ["c1"]


def test_t28_what_the_sweep_ended_has_its_result_in_its_own_turn() -> None:
    drive = running()
    turn = drive.turn
    drive.hear(d.ToolStarted(turn, "c1", "shell"))
    assert turn is not None
    drive.stop()
    drive.hear(d.TurnEnded(turn, d.TurnStatus.interrupted))
    assert drive.wanted(fx.Sweep)
    drive.hear(d.ToolEnded(turn, "c1", "", error="killed"))
    drive.settle()
    results = [(e.call_id, e.error) for e in drive.log if isinstance(e, j.ToolResult)]
    assert results == [("c1", "killed")]
    late = [e.what for e in drive.log if isinstance(e, j.FenceLate)]
    assert "tool result" not in late


@pytest.mark.req("R40", "R41", "R43")
@pytest.mark.inv(7, 11)
def test_t29_a_visible_send_is_judged_held_or_rejected_by_its_fence() -> None:
    drive = running()
    turn = drive.turn
    drive.hear(d.SendCalled(turn, d.CallRef("c1"), "tgt_a", "hi"))
    assert [e.text for e in drive.wanted(fx.JudgeSend)] == ["hi"]
    drive.owed.clear()
    drive.deliver(urgent("u", 1))
    drive.hear(d.SendCalled(turn, d.CallRef("c2"), "tgt_a", "stale"))
    assert [e.text for e in drive.wanted(fx.ToolReply)] == [HELD]
    drive.settle()
    drive.hear(d.SendCalled(turn, d.CallRef("c3"), "tgt_a", "stale"))
    assert [e.text for e in drive.wanted(fx.ToolReply)] == [REJECTED]


@pytest.mark.req("R45")
@pytest.mark.inv(9)
def test_t30_a_read_surfaces_exactly_its_range_to_an_open_run() -> None:
    drive = Drive(able=evolve(ABLE, steer=d.Steer.none)).running()
    drive.deliver(ordinary("x", 1), 0)
    drive.deliver(ordinary("y", 2))
    call = d.CallRef("r1")
    drive.hear(d.ReadCalled(drive.turn, call, "tgt_a"))
    gen = drive.session.ledger.gen
    drive.feed(ev.HistoryRead(call, gen, TargetId("tgt_a"), (1,), "text"))
    assert frontier(drive) == 1
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert lane(drive, Lane.next_step) == ["dlv_y"]


def test_t30_a_read_that_comes_back_to_a_cut_run_surfaces_nothing() -> None:
    drive = running()
    call, gen = d.CallRef("r1"), drive.session.ledger.gen
    drive.hear(d.ReadCalled(drive.turn, call, "tgt_a"))
    drive.stop()
    drive.owed.clear()
    drive.feed(ev.HistoryRead(call, gen, TargetId("tgt_a"), (1,), "text"))
    assert frontier(drive) == 0
    assert [e.text for e in drive.wanted(fx.ToolReply)] == [HELD]


@pytest.mark.req("R44")
@pytest.mark.inv(13)
def test_t27_what_was_read_and_not_recorded_is_told_again_with_the_next_input() -> None:
    """A kill may come before the runtime has written down what its model just read."""
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.surface(ItemId("dlv_x"))
    drive.die()
    drive.deliver(ordinary("y", 2))
    drive.answer_all()  # the history of the new process has nothing of it
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert len(drive.records(j.InputForgotten)) == 1
    note = f"{FORGOTTEN}\n> read"
    assert drive.session.ledger.notes.given == (note,)
    drive.surface(ItemId("dlv_y"))
    assert not drive.session.ledger.notes.due
    assert [i.id for i in drive.session.ledger.just_read] == ["dlv_y"]


@pytest.mark.req("R44")
def test_t27_what_the_history_has_is_not_told_again() -> None:
    drive = running()
    drive.die()
    drive.deliver(ordinary("y", 2))
    drive.answer_all(Manner(outcome=d.ItemOutcome.surfaced))
    assert drive.records(j.InputForgotten) == []
    assert drive.session.ledger.notes.due == ()
