"""The transition table: a test of the same name for each row, Idle and Running."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    Drive,
    Manner,
    followup,
    injected,
    ordinary,
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
    maintaining,
    running,
    state_of,
    submitted,
)

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import ItemId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev, machine
from agentteam_supervisor.session.state import Phase

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


def test_every_row_of_the_table_has_its_test() -> None:
    rows = re.findall(r"^\| (t\d+[ab]?) \|", machine.__doc__ or "", re.MULTILINE)
    here = Path(__file__).parent
    source = "".join(f.read_text() for f in here.glob("test_table*.py"))
    tests = set(re.findall(r"^def test_(t\d+[ab]?)_", source, re.MULTILINE))
    assert len(rows) == 45
    assert set(rows) <= tests
