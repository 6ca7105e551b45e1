"""The transition table of the session machine: a test of the same name for each row."""

from __future__ import annotations

import re

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    BROKEN,
    Drive,
    Manner,
    followup,
    injected,
    ordinary,
    steering,
    urgent,
)

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId, RunId, TargetId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev, machine
from agentteam_supervisor.session.sends import HELD, REJECTED
from agentteam_supervisor.session.state import Fence, Phase

DEAF = Manner(deaf=True)
UNSTOPPABLE = Manner(deaf=True, killable=False)
LOOP = evolve(ABLE, steps=True, steer=d.Steer.none)


def idle() -> Drive:
    return Drive().ready()


def running() -> Drive:
    drive = idle().running()
    drive.surface(ItemId("first"))
    return drive


def converging(*, soft: bool = False) -> Drive:
    """A Stop, or a cancel, whose interrupt nobody has answered."""
    drive = running()
    if soft:
        drive.feed(ev.CancelRequested(keep_inbox=True))
    else:
        drive.stop()
    assert drive.phase is Phase.converging
    return drive


def starting() -> Drive:
    drive = Drive()
    drive.send(followup("first"))
    assert drive.phase is Phase.starting
    return drive


def recovering() -> Drive:
    drive = running()
    drive.send(followup("second"))
    drive.die()
    assert drive.phase is Phase.recovering
    return drive


def maintaining() -> Drive:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 900))
    assert drive.phase is Phase.maintenance
    return drive


def offline() -> Drive:
    return Drive()


ANY = [idle, running, converging, starting, recovering, maintaining, offline]


def state_of(drive: Drive, delivery: str) -> DeliveryState:
    found = {str(d_): v for d_, v in drive.session.ledger.deliveries.items()}
    return found[delivery].state


def frontier(drive: Drive, target: str = "tgt_a") -> int:
    found = drive.session.ledger.frontiers.get(TargetId(target))
    return found.contiguous if found is not None else 0


def submitted(drive: Drive) -> list[list[str]]:
    submits = [e for e in drive.trace if isinstance(e, fx.Submit)]
    return [[str(i.id) for i in e.items] for e in submits]


def ends(drive: Drive) -> list[tuple[str, str]]:
    found = [e for e in drive.log if isinstance(e, j.TurnEnd)]
    return [(str(e.outcome), str(e.cause or "")) for e in found]


def lane(drive: Drive, which: Lane) -> list[str]:
    return [str(i.id) for i in drive.session.ledger.lanes[which]]


def kinds(drive: Drive) -> list[str]:
    return [j.KINDS[type(e)] for e in drive.log]


def count(drive: Drive, kind: type) -> int:
    return sum(isinstance(e, kind) for e in drive.trace)


# --- Idle -------------------------------------------------------------------------------


@pytest.mark.req("R93", "R94", "R108", "R116")
@pytest.mark.parametrize("item", [followup("x"), steering("x"), ordinary("x", 1)])
def test_t1_waking_input_in_idle_opens_a_turn_in_the_same_step(item: object) -> None:
    drive = idle()
    if getattr(item, "delivery", None):
        drive.deliver(item)  # type: ignore[arg-type]
    else:
        drive.send(item)  # type: ignore[arg-type]
    assert drive.phase is Phase.running
    told = [k for k in kinds(drive) if k != "delivery/frontier"]
    assert told[:3] == ["inbox/spliced", "turn/start", "inbox/spliced"]
    drive.answer_all()
    assert submitted(drive) == [[getattr(item, "id", "")]]


@pytest.mark.req("R95", "R96")
def test_t2_input_that_does_not_wake_is_spliced_and_nothing_else() -> None:
    drive = idle()
    drive.send(injected("x"))
    assert drive.phase is Phase.idle
    assert not drive.session.running
    assert kinds(drive) == ["inbox/spliced"]


@pytest.mark.req("R10", "R28")
def test_t3_urgent_in_idle_is_a_turn_of_the_same_generation_without_interrupt() -> None:
    drive = idle()
    gen = drive.session.ledger.gen
    drive.deliver(urgent("u", 1))
    drive.settle()
    assert submitted(drive) == [["dlv_u"]]
    assert drive.session.ledger.gen == gen
    assert count(drive, fx.Interrupt) == 0
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced


@pytest.mark.req("R98", "R99")
@pytest.mark.inv(23)
def test_t4_cancel_in_idle_leaves_no_event_unless_something_waits() -> None:
    drive = idle()
    drive.feed(ev.CancelRequested(ref=1))
    assert drive.log == []
    drive.send(injected("x"))
    before = list(drive.log)
    drive.feed(ev.CancelRequested(keep_inbox=True, ref=2))
    assert drive.log == before
    drive.feed(ev.CancelRequested(ref=3))
    assert lane(drive, Lane.next_step) == []
    assert "turn/start" not in kinds(drive)
    assert set(drive.replies) >= {1, 2, 3}


@pytest.mark.req("R106", "R107")
def test_t5_maintenance_runs_from_idle_and_leaves_no_event() -> None:
    drive = maintaining()
    drive.answer_all()
    assert drive.log == []
    assert drive.phase is Phase.idle
    assert drive.replies[900][0].value == "done"


# --- Running ----------------------------------------------------------------------------


@pytest.mark.req("R20", "R21", "R22", "R23")
@pytest.mark.inv(19)
def test_t6_input_is_steered_if_the_runtime_can_else_it_waits_in_its_lane() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    assert state_of(drive, "dlv_x") is DeliveryState.accepted
    assert lane(drive, Lane.next_step) == []
    assert frontier(drive) == 0
    deaf = Drive(able=evolve(ABLE, steer=d.Steer.none)).running()
    deaf.deliver(ordinary("x", 1))
    assert lane(deaf, Lane.next_step) == ["dlv_x"]
    assert count(deaf, fx.Interrupt) == 0


def test_t6_a_steer_never_waits_behind_an_older_followup() -> None:
    drive = running()
    drive.send(followup("older"))
    drive.send(steering("x"))
    assert [e.item.id for e in drive.wanted(fx.SteerItem)] == ["x"]


def test_t6_an_entry_is_not_steered_past_another_of_its_target() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    (steer,) = drive.wanted(fx.SteerItem)
    drive.owed.clear()
    drive.feed(ev.SteerFailed(steer.item.id, written=False, problem="mismatch"))
    drive.deliver(ordinary("y", 2))
    assert drive.wanted(fx.SteerItem) == []
    assert lane(drive, Lane.next_step) == ["dlv_x", "dlv_y"]


@pytest.mark.req("R22", "R24")
@pytest.mark.inv(12, 14)
def test_t7_a_refused_steer_goes_back_to_its_place() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.deliver(ordinary("y", 1, "tgt_b"))
    drive.owed.clear()
    drive.feed(ev.SteerFailed(ItemId("dlv_y"), written=False, problem="mismatch"))
    drive.feed(ev.SteerFailed(ItemId("dlv_x"), written=False, problem="mismatch"))
    assert lane(drive, Lane.next_step) == ["dlv_x", "dlv_y"]
    drive.end()
    assert drive.phase is Phase.running


def test_t7_a_refused_steer_is_superseded_if_its_urgent_copy_waits() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1, message="msg_1"))
    drive.owed.clear()
    drive.deliver(urgent("u", 1, message="msg_1"))
    drive.feed(ev.SteerFailed(ItemId("dlv_x"), written=False, problem="mismatch"))
    assert state_of(drive, "dlv_x") is DeliveryState.superseded
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_u"]


@pytest.mark.req("R44", "R45", "R47", "R50")
@pytest.mark.inv(9)
@pytest.mark.parametrize("held", [False, True])
def test_t8_surfaced_evidence_alone_moves_the_frontier(held: bool) -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    assert frontier(drive) == 0
    if held:
        drive.stop()
    drive.surface(ItemId("dlv_x"))
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert frontier(drive) == 1
    assert frontier(drive, "tgt_b") == 0
    assert drive.session.ledger.in_flight == {}
    assert "user/message" in kinds(drive)


@pytest.mark.req("R95")
def test_t9_inject_into_a_run_waits_in_next_step_and_wakes_nothing() -> None:
    drive = running()
    drive.send(injected("x"))
    assert lane(drive, Lane.next_step) == ["x"]
    drive.end()
    assert drive.phase is Phase.idle
    assert lane(drive, Lane.next_step) == ["x"]


@pytest.mark.req("R93")
def test_t10_a_followup_into_a_run_is_a_turn_of_its_own_after_it() -> None:
    drive = running()
    drive.send(followup("x"))
    assert lane(drive, Lane.next_turn) == ["x"]
    assert drive.wanted(fx.SteerItem) == []
    drive.end()
    drive.answer_all()
    assert submitted(drive)[-1] == ["x"]


@pytest.mark.req("R94", "R115")
def test_t11_a_step_boundary_claims_what_waits_else_the_turn_stops() -> None:
    drive = Drive(able=LOOP).running()
    drive.send(steering("x"))
    drive.boundary(more=False)
    drive.answer_all()
    assert submitted(drive)[-1] == ["x"]
    drive.boundary(more=True)
    drive.answer_all()
    assert submitted(drive)[-1] == []
    steps = [e.step for e in drive.log if isinstance(e, j.StepStart)]
    assert steps == [1, 2, 3]
    drive.boundary(more=False)
    drive.answer_all()
    for item in tuple(drive.held):
        drive.surface(item)
    drive.end()
    assert ends(drive)[-1] == ("completed", "")
    assert [e.step for e in drive.log if isinstance(e, j.StepStart)] == [1, 2, 3]


def test_t11_a_reject_at_a_boundary_does_not_end_the_turn_as_blocked() -> None:
    drive = Drive(able=LOOP).running()
    drive.send(steering("x"))
    drive.boundary(more=False)
    (pre,) = drive.wanted(fx.PreStep)
    drive.owed.clear()
    drive.feed(ev.PreStepDecided(pre.batch, None, "no"))
    drive.answer_all()
    drive.surface(ItemId("first"))
    drive.end()
    assert ends(drive)[-1] == ("completed", "")
    assert count(drive, fx.Submit) == 2


@pytest.mark.req("R117")
@pytest.mark.parametrize("status", ["completed", "max-tokens"])
def test_t12_a_done_turn_settles_ends_and_goes_on(status: str) -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.end(d.TurnStatus(status))
    assert drive.wanted(fx.Settle)
    drive.answer_all(Manner(outcome=d.ItemOutcome.surfaced))
    assert ends(drive)[-1] == (status, "")
    assert drive.phase is Phase.idle
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


@pytest.mark.inv(27)
def test_t13_a_failed_turn_parks_what_waits() -> None:
    drive = running()
    drive.send(followup("x"))
    drive.end(d.TurnStatus.failed)
    assert ends(drive)[-1] == ("error", "")
    assert drive.phase is Phase.idle
    assert lane(drive, Lane.next_turn) == ["x"]
    drive.send(followup("y"))
    drive.settle()
    assert submitted(drive)[-2:] == [["x"], ["y"]]


@pytest.mark.req("R109", "R110", "R122")
@pytest.mark.inv(30)
def test_t13_a_rejected_batch_is_blocked_and_swallows_nothing_behind_it() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.send(followup("behind"))
    (pre,) = drive.wanted(fx.PreStep)
    drive.owed.clear()
    drive.feed(ev.PreStepDecided(pre.batch, None, "no"))
    assert ends(drive)[-1] == ("blocked", "")
    assert state_of(drive, "dlv_x") is DeliveryState.blocked
    drive.settle()
    assert submitted(drive) == [["behind"]]


def test_t13_a_selective_listener_blocks_the_rest_alone() -> None:
    drive = Drive()
    drive.deliver(ordinary("x", 1))
    drive.deliver(ordinary("y", 2))
    drive.perform(drive.owed[0])
    (pre,) = drive.wanted(fx.PreStep)
    drive.owed.clear()
    drive.feed(ev.PreStepDecided(pre.batch, pre.items[:1], "no"))
    drive.settle()
    assert submitted(drive) == [["dlv_x"]]
    assert state_of(drive, "dlv_y") is DeliveryState.blocked


def _refuse(drive: Drive, *, written: bool) -> None:
    for effect in drive.wanted(fx.PreStep):
        drive.perform(effect)
    (submit,) = drive.wanted(fx.Submit)
    drive.owed.remove(submit)
    drive.feed(ev.SubmitFailed(submit.batch, written, "busy"))


@pytest.mark.req("R55", "R56", "R57")
@pytest.mark.inv(21)
def test_t13a_a_refused_submission_is_tried_three_times_then_it_has_failed() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    for attempt in (1, 2, 3):
        found = drive.session.ledger.in_flight[ItemId("dlv_x")]
        assert found.item.attempt == attempt
        _refuse(drive, written=False)
    assert state_of(drive, "dlv_x") is DeliveryState.failed
    assert frontier(drive) == 0
    assert drive.phase is Phase.idle


def test_t13a_attempts_that_a_cut_undid_do_not_count_as_refusals() -> None:
    drive = Drive(able=evolve(ABLE, steer=d.Steer.none)).ready()
    drive.deliver(ordinary("x", 1))
    for n in range(4):
        drive.answer_all()
        drive.deliver(urgent(f"u{n}", n + 2, "tgt_b"))
        drive.answer_all()
        drive.surface(ItemId(f"dlv_u{n}"))
        drive.end()
    _refuse(drive, written=False)
    assert state_of(drive, "dlv_x") is DeliveryState.queued


def test_t13a_a_written_submission_is_settled_by_the_history() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    _refuse(drive, written=True)
    (settle,) = drive.wanted(fx.Settle)
    drive.owed.clear()
    drive.feed(ev.Settled(settle.inc, {}))
    assert state_of(drive, "dlv_x") is DeliveryState.unknown
    assert ends(drive)[-1] == ("error", "")


def test_t13b_silence_cuts_the_run_and_parks_nothing() -> None:
    drive = running()
    drive.send(followup("x"))
    drive.feed(ev.DeadlinePassed("silence"))
    assert drive.phase is Phase.converging
    drive.settle()
    assert ends(drive)[0] == ("aborted", "silent")
    assert submitted(drive)[-1] == ["x"]


def test_t13b_a_run_that_waits_for_its_tool_is_not_silent() -> None:
    drive = running()
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.feed(ev.DeadlinePassed("silence"))
    assert drive.phase is Phase.running


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
    assert [i.id for i in order.unsettled] == ["dlv_x"]
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


# --- maintenance ------------------------------------------------------------------------


@pytest.mark.inv(28)
def test_t31_an_urgent_aborts_maintenance_and_runs_after_it() -> None:
    drive = maintaining()
    drive.deliver(urgent("u", 1))
    assert drive.wanted(fx.AbortMaintenance)
    assert lane(drive, Lane.urgent) == ["dlv_u"]
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_u"]


@pytest.mark.parametrize("in_process", [False, True])
def test_t31_maintenance_that_does_not_end_is_killed_or_fails_the_urgent(
    in_process: bool,
) -> None:
    drive = Drive(in_process=in_process).ready()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    for n in (1, 2):
        drive.deliver(urgent(f"u{n}", n))
        drive.owed = [e for e in drive.owed if not isinstance(e, fx.Maintain)]
        drive.pass_deadline("maintenance")
        if not in_process:
            drive.answer_all()
            assert drive.replies[1][0].error
            return
        assert state_of(drive, f"dlv_u{n}") is DeliveryState.failed


def test_t32_cancel_aborts_maintenance_and_clears_the_lanes() -> None:
    drive = maintaining()
    drive.send(followup("x"))
    drive.feed(ev.CancelRequested())
    assert drive.wanted(fx.AbortMaintenance)
    assert lane(drive, Lane.next_turn) == []
    kept = maintaining()
    kept.send(followup("x"))
    kept.feed(ev.CancelRequested(keep_inbox=True))
    assert lane(kept, Lane.next_turn) == ["x"]


@pytest.mark.req("R107")
@pytest.mark.parametrize("problem", ["", "it raised"])
def test_t33_after_maintenance_what_waits_runs(problem: str) -> None:
    drive = maintaining()
    drive.send(followup("x"))
    drive.owed.clear()
    drive.feed(ev.MaintenanceEnded("v", problem))
    assert drive.replies[900][0].error == problem
    drive.answer_all()
    assert submitted(drive)[-1] == ["x"]


@pytest.mark.req("R106")
@pytest.mark.parametrize(
    "begin", [running, converging, starting, recovering, maintaining]
)
def test_t34_maintenance_is_refused_outside_idle(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    before = drive.session
    drive.feed(ev.MaintenanceRequested("compact", 1))
    assert drive.replies[1][0].error.startswith("not_idle")
    assert drive.session == before


# --- the end ----------------------------------------------------------------------------


@pytest.mark.inv(34)
@pytest.mark.parametrize("begin", ANY)
@pytest.mark.parametrize("manner", [Manner(), DEAF, UNSTOPPABLE])
def test_t35_dispose_ends_everything_and_cancels_what_waits(
    begin: object, manner: Manner
) -> None:
    assert callable(begin)
    drive = begin()
    drive.deliver(ordinary("x", 1))
    drive.feed(ev.DisposeRequested(1))
    if manner.deaf:
        drive.owed = [e for e in drive.owed if not isinstance(e, fx.Maintain)]
    drive.settle(manner)
    assert drive.phase is Phase.closed
    assert drive.replies[1][0].error == ""
    assert state_of(drive, "dlv_x") is DeliveryState.cancelled
    assert drive.session.ledger.turn is None
    assert drive.session.ledger.closed


@pytest.mark.parametrize("in_process", [False, True])
@pytest.mark.parametrize("killable", [False, True])
def test_t35_dispose_does_not_wait_for_maintenance_that_hangs(
    in_process: bool, killable: bool
) -> None:
    drive = Drive(in_process=in_process).ready()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    drive.feed(ev.DisposeRequested(2))
    drive.owed.clear()
    drive.settle(Manner(deaf=True, killable=killable))
    assert drive.phase is Phase.closed
    assert drive.replies[1][0].error
    assert drive.replies[2][0].error == ""


@pytest.mark.parametrize("begin", ANY)
def test_t35a_shutdown_leaves_lanes_and_park_as_they_were(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.deliver(urgent("u", 1))
    park = drive.session.ledger.park
    flying = drive.session.ledger.in_flight
    drive.feed(ev.ShutdownRequested(1))
    drive.settle()
    assert drive.phase is Phase.closed
    assert drive.session.ledger.park == park
    assert lane(drive, Lane.urgent) == ["dlv_u"] or flying
    assert state_of(drive, "dlv_u") is DeliveryState.queued
    assert not drive.session.ledger.closed


@pytest.mark.parametrize("begin", ANY)
def test_t35b_a_lost_lease_fences_at_once_and_kills_the_tree(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.deliver(urgent("u", 1))
    drive.feed(ev.IdleAwaited(1))
    gen = drive.session.ledger.gen
    drive.feed(ev.LeaseLost())
    assert drive.phase is Phase.closed
    assert drive.session.ledger.gen > gen
    assert drive.session.ledger.turn is None
    assert drive.wanted(fx.Kill)
    assert drive.replies[1]
    before = len(drive.log)
    drive.settle()
    assert len(drive.log) == before


# --- Offline and Starting ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["followup", "ordinary", "urgent"])
def test_t36_a_wake_in_offline_mints_the_run_and_starts(kind: str) -> None:
    drive = offline()
    if kind == "followup":
        drive.send(followup("x"))
    else:
        drive.deliver(ordinary("x", 1) if kind == "ordinary" else urgent("x", 1))
    assert drive.phase is Phase.starting
    assert drive.session.ledger.turn is not None
    assert drive.wanted(fx.OpenRuntime)


@pytest.mark.req("R29")
@pytest.mark.parametrize("begin", [starting, recovering])
def test_t37_an_urgent_is_the_first_input_of_the_next_process(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.deliver(urgent("u", 1))
    drive.trace.clear()
    drive.settle()
    assert submitted(drive)[0] == ["dlv_u"]


@pytest.mark.parametrize("begin", [starting, recovering])
@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_t38_a_cut_of_a_start_submits_nothing(begin: object, how: str) -> None:
    assert callable(begin)
    drive = begin()
    drive.trace.clear()
    if how == "stop":
        drive.stop()
    else:
        drive.feed(ev.CancelRequested())
    assert drive.wanted(fx.Terminate)
    drive.settle()
    assert submitted(drive) == []
    assert ends(drive)[-1] == ("aborted", how)


def test_t38_a_start_that_cannot_be_ended_leaves_the_session_offline() -> None:
    drive = starting()
    drive.stop()
    (order,) = drive.wanted(fx.OpenRuntime)
    drive.perform(order)  # the handshake came in after the ladder began
    drive.settle(UNSTOPPABLE)
    assert drive.phase is Phase.offline
    assert drive.session.ledger.problem is not None


@pytest.mark.req("R49", "R55")
def test_t39_a_failed_start_keeps_entries_fails_urgents_and_shows_why() -> None:
    drive = starting()
    drive.deliver(urgent("u", 1))
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    assert drive.phase is Phase.offline
    assert drive.session.ledger.problem == BROKEN
    assert lane(drive, Lane.next_turn) == ["first"]
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    assert frontier(drive) == 0


@pytest.mark.parametrize("begin", [idle, offline])
def test_t40_resume_clears_the_park_and_runs_what_waited(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.send(followup("x"))
    drive.stop()
    drive.settle()
    drive.trace.clear()
    drive.feed(ev.ResumeRequested(1))
    drive.settle()
    assert submitted(drive) == [["x"]]
    assert drive.replies[1][0].value is ControlResult.resumed


def test_every_row_of_the_table_has_its_test() -> None:
    rows = re.findall(r"^\| (t\d+[ab]?) \|", machine.__doc__ or "", re.MULTILINE)
    tests = {name.split("_")[1] for name in globals() if name.startswith("test_t")}
    assert len(rows) == 45
    assert set(rows) <= tests
