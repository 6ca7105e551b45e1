"""Corners of the session machine that the table's rows pass by."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import (
    ABLE,
    BROKEN,
    SEEN,
    URGENT,
    Drive,
    Manner,
    followup,
    ordinary,
    steering,
    urgent,
)
from tests.kit.situations import (
    LOOP,
    converging,
    count,
    ends,
    frontier,
    idle,
    kinds,
    lane,
    running,
    starting,
    state_of,
    submitted,
)

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.control import ControlResult, CutCause
from agentteam_protocol.delivery import DeliveryState, Evidence, InterruptPolicy
from agentteam_protocol.ids import DeliveryId, ItemId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import Phase

CARRIED = Manner(outcome=d.ItemOutcome.carried)


# --- deliveries --------------------------------------------------------------------------


@pytest.mark.req("R6")
@pytest.mark.inv(17)
@pytest.mark.parametrize("policy", [None, URGENT])
def test_a_retry_of_a_delivery_gets_its_receipt_and_changes_nothing(
    policy: InterruptPolicy | None,
) -> None:
    drive = running()
    item = ordinary("x", 1)
    drive.deliver(item)
    before = drive.session
    for attempt in (1, 2):
        retry = evolve(item, attempt=attempt, policy=policy)
        effects = drive.deliver(retry)
        assert effects == [fx.Received(item.id, attempt)]
    assert drive.session == before


@pytest.mark.req("R6")
@pytest.mark.inv(17)
def test_a_redelivery_keeps_the_policy_it_was_made_with() -> None:
    drive = starting()
    drive.deliver(urgent("u", 1))
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    drive.deliver(evolve(ordinary("u", 1), attempt=2))
    assert lane(drive, Lane.urgent) == ["dlv_u"]


def test_an_entry_without_a_delivery_is_no_delivery() -> None:
    drive = idle()
    assert drive.deliver(followup("x")) == []


def test_a_session_that_closes_takes_no_input() -> None:
    drive = running()
    drive.feed(ev.ShutdownRequested(1))
    drive.feed(ev.ShutdownRequested(2))
    assert drive.deliver(ordinary("x", 1)) == []
    drive.send(followup("f"), ref=3)
    assert drive.replies[3][0].error.startswith("closed")
    drive.settle()
    assert {1, 2} <= set(drive.replies)
    assert ends(drive)[-1] == ("aborted", "shutdown")


@pytest.mark.inv(33)
def test_an_id_that_is_pending_already_is_refused_whole() -> None:
    drive = running()
    drive.send(followup("x"))
    before = drive.session
    drive.send(followup("y"), followup("x"), ref=1)
    drive.send(followup("z"), followup("z"), ref=2)
    assert drive.session == before
    for ref in (1, 2):
        assert drive.replies[ref][0].error.startswith("duplicate_id")


def test_an_ordinary_copy_after_its_urgent_copy_is_superseded() -> None:
    drive = converging()
    drive.deliver(urgent("u", 1, message="m"))
    drive.deliver(ordinary("x", 1, message="m"))
    assert state_of(drive, "dlv_x") is DeliveryState.superseded


def test_an_urgent_without_a_message_supersedes_nothing() -> None:
    drive = running()
    drive.deliver(evolve(ordinary("x", 1), message=None))
    drive.deliver(evolve(urgent("u", 1), message=None))
    drive.answer_all()
    assert state_of(drive, "dlv_x") is not DeliveryState.superseded


def test_a_person_withdraws_what_waits_or_went_nowhere() -> None:
    drive = converging()
    drive.deliver(urgent("u", 1))
    drive.feed(ev.Dismissed(DeliveryId("dlv_u")))
    assert state_of(drive, "dlv_u") is DeliveryState.cancelled
    drive.feed(ev.Dismissed(DeliveryId("dlv_none")))
    other = running()
    other.deliver(ordinary("x", 1))
    other.answer_all()
    other.feed(ev.Dismissed(DeliveryId("dlv_x")))
    assert state_of(other, "dlv_x") is DeliveryState.accepted
    other.end()
    other.answer_all(Manner(outcome=d.ItemOutcome.unknown))
    other.feed(ev.Dismissed(DeliveryId("dlv_x")))
    assert state_of(other, "dlv_x") is DeliveryState.cancelled


def test_a_withdrawal_that_comes_too_late_says_so() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    before = state_of(drive, "dlv_x")
    drive.feed(ev.Dismissed(DeliveryId("dlv_x")))
    last = drive.log[-1]
    assert isinstance(last, j.DeliveryChanged)
    assert (last.state, last.note[:8]) == (before, "too late")


def test_a_turn_whose_input_was_withdrawn_before_the_start_ends_unused() -> None:
    drive = Drive()
    drive.deliver(ordinary("x", 1))
    drive.feed(ev.Dismissed(DeliveryId("dlv_x")))
    drive.settle()
    assert ends(drive) == [("completed", "")]
    assert submitted(drive) == []


def test_a_host_entry_that_the_runtime_never_takes_is_told_to_people() -> None:
    drive = idle()
    drive.send(followup("x"))
    for _ in range(3):
        drive.perform(drive.wanted(fx.PreStep)[0])
        (submit,) = drive.wanted(fx.Submit)
        drive.owed.clear()
        drive.feed(ev.SubmitFailed(submit.batch, False, "busy"))
    (notice,) = [e for e in drive.log if isinstance(e, j.RunNotice)]
    assert notice.detail == "x"
    assert drive.phase is Phase.idle


@pytest.mark.inv(8, 9)
def test_evidence_of_an_attempt_that_was_given_up_is_told_and_moves_nothing() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    old, key = drive.turn, drive.held[ItemId("dlv_x")]
    assert old is not None
    drive.deliver(urgent("u", 1, "tgt_b"))
    drive.answer_all(Manner(outcome=d.ItemOutcome.dropped))
    drive.hear(d.Surfaced(old, ItemId("dlv_x"), key, SEEN))
    drive.hear(d.Surfaced(old, ItemId("dlv_none"), key, SEEN))
    notes = [e.note for e in drive.log if isinstance(e, j.DeliveryChanged) and e.note]
    assert len(notes) == 1
    assert "seen twice" in notes[0]
    assert frontier(drive) == 0


# --- asks --------------------------------------------------------------------------------


@pytest.mark.inv(4)
def test_an_ask_that_the_runtime_takes_back_is_cancelled() -> None:
    drive = running()
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell"))
    drive.hear(d.AskClosed(d.AskRef("other")), d.AskClosed(d.AskRef("a1")))
    decided = [e.outcome for e in drive.log if isinstance(e, j.ApprovalDecided)]
    assert decided == [ApprovalOutcome.cancelled]
    assert count(drive, fx.WithdrawAsk) == 1


@pytest.mark.inv(4)
def test_a_no_is_told_to_the_runtime() -> None:
    drive = running()
    drive.hear(d.Asked(drive.turn, d.AskRef("a1"), "shell"))
    (consult,) = drive.wanted(fx.Consult)
    no = ApprovalOutcome.unavailable
    drive.feed(ev.ApprovalAnswered(consult.request.id, no, 1))
    assert [e.outcome for e in drive.wanted(fx.Deny)] == [no]
    assert drive.replies[1][0].value is no


# --- the runtime ---------------------------------------------------------------------------


def test_notices_and_turns_nobody_asked_for_are_history() -> None:
    drive = running()
    drive.hear(
        d.Noticed("retry", "1"),
        d.Noticed("it works on", "k", told=True),
        d.TurnStarted(d.TurnRef("other"), "bat_other"),
        d.SessionNamed("s1"),
        d.SessionNamed("s1"),
        d.Exited(0),
    )
    late = [e.what for e in drive.log if isinstance(e, j.FenceLate)]
    assert late == ["retry", "a turn nobody asked for"]
    told = [e for e in drive.log if isinstance(e, j.RunNotice)]
    assert told == [j.RunNotice("it works on", "k")]
    assert kinds(drive).count("run/session") == 1


def test_a_flood_of_late_events_is_kept_up_to_a_number() -> None:
    drive = running()
    old = drive.turn
    drive.end()
    for _ in range(100):
        drive.hear(d.Said(old, "late"))
    assert kinds(drive).count("fence/late") == 20


def test_a_call_or_a_result_told_twice_is_recorded_once() -> None:
    drive = running()
    call = d.ToolStarted(drive.turn, "c1", "shell")
    drive.hear(call, call, d.ToolEnded(drive.turn, "c1"), d.ToolEnded(drive.turn, "c1"))
    assert kinds(drive).count("tool/call") == 1
    assert kinds(drive).count("tool/result") == 1


def test_a_loop_that_repeats_its_boundary_loses_nothing() -> None:
    drive = Drive(able=LOOP).running()
    drive.surface(ItemId("first"))
    drive.send(steering("x"))
    turn = drive.turn
    assert turn is not None
    drive.boundary(more=False)
    drive.hear(d.StepEnded(turn, more=False))
    assert len(drive.wanted(fx.PreStep)) == 1
    drive.perform(drive.wanted(fx.PreStep)[0])
    drive.owed.clear()  # the step was taken, and its answer is still on its way
    drive.hear(d.Surfaced(turn, ItemId("x"), "x.1", SEEN))
    drive.hear(d.StepEnded(turn, more=True))
    drive.settle()
    assert ends(drive) == [("completed", "")]


def test_a_turn_that_shows_up_after_its_submission_failed_is_the_turn() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.owed.clear()
    drive.feed(ev.SubmitFailed(submit.batch, True, "too slow"))
    drive.turn = d.TurnRef("turn5")
    drive.held = {ItemId("dlv_x"): "dlv_x.1"}
    drive.hear(d.TurnStarted(drive.turn, submit.batch))
    drive.feed(ev.Settled(drive.inc, {}))
    assert drive.session.ledger.turn is not None
    drive.surface(ItemId("dlv_x"))
    drive.end()
    assert ends(drive) == [("completed", "")]


def test_many_turns_are_remembered_and_the_oldest_forgotten() -> None:
    drive = idle()
    for n in range(70):
        drive.send(followup(f"f{n}"))
        drive.settle()
    assert len(drive.session.live.turns) == 64


# --- cuts and the process ---------------------------------------------------------------------


def test_a_cut_while_the_end_is_settled_waits_for_the_history() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.end()
    drive.deliver(urgent("u", 2))
    assert count(drive, fx.Interrupt) == 0
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_x", "dlv_u"]


def test_a_runtime_that_cannot_be_interrupted_is_ended() -> None:
    drive = Drive(able=evolve(ABLE, interrupt=d.Interrupt.none)).running()
    drive.deliver(urgent("u", 1))
    assert count(drive, fx.Interrupt) == 0
    assert drive.wanted(fx.Terminate)
    drive.settle()
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced


def test_a_sweep_that_does_not_end_goes_on_to_terminate() -> None:
    drive = converging()
    drive.owed.clear()
    drive.end(d.TurnStatus.interrupted)
    drive.owed.clear()
    drive.pass_deadline("sweep")
    assert drive.wanted(fx.Terminate)


def test_survivors_are_named() -> None:
    drive = converging()
    drive.owed.clear()
    drive.end(d.TurnStatus.interrupted)
    drive.feed(ev.Swept(drive.inc, (d.Survivor(7, 7, "server"),)))
    drive.feed(ev.Swept(drive.inc, (d.Survivor(8, 8, "late"),)))
    drive.inc, inc = 0, drive.inc
    drive.feed(ev.ProcessGone(inc, None, "", "", (d.Survivor(9, 9, "deaf"),)))
    details = [e.detail for e in drive.log if isinstance(e, j.RunNotice)]
    assert details == ["pid 7: server", "pid 9: deaf"]


def test_a_late_word_of_the_ladder_after_its_cut_is_nothing() -> None:
    drive = idle()
    late: list[ev.Event] = [
        ev.InterruptFailed(drive.inc, "late"),
        ev.InterruptTaken(99),
        ev.KillFailed(drive.inc),
        ev.Swept(drive.inc),
        ev.Settled(99, {}),
        ev.SubmitFailed("bat_old", False, "late"),
        ev.SteerFailed(ItemId("old"), False, "late"),
        ev.SteerAccepted(ItemId("old")),
        ev.StartFailed(99, BROKEN),
        ev.ProcessGone(99),
        ev.RuntimeReady(99, ABLE),
        ev.MaintenanceEnded("late"),
        *(ev.DeadlinePassed(n) for n in ("kill", "terminate", "sweep", "settle")),
        *(ev.DeadlinePassed(n) for n in ("interrupt", "maintenance", "silence")),
    ]
    for event in late:
        assert drive.feed(event) == []
    assert drive.phase is Phase.idle


@pytest.mark.inv(35)
def test_a_restart_that_fails_leaves_an_urgent_in_flight_unknown() -> None:
    drive = idle()
    drive.deliver(urgent("u", 1))
    drive.answer_all()
    drive.die()
    drive.settle(Manner(starts=False))
    assert state_of(drive, "dlv_u") is DeliveryState.unknown
    assert frontier(drive) == 0


@pytest.mark.inv(13)
@pytest.mark.inv(21)
@pytest.mark.parametrize(
    ("history", "state", "moved"),
    [
        (d.ItemOutcome.surfaced, DeliveryState.surfaced, 1),
        (d.ItemOutcome.dropped, DeliveryState.failed, 0),
        (d.ItemOutcome.unknown, DeliveryState.unknown, 0),
    ],
)
def test_what_was_unknown_is_answered_by_the_history_of_a_later_process(
    history: d.ItemOutcome, state: DeliveryState, moved: int
) -> None:
    drive = idle()
    drive.deliver(urgent("u", 1))
    drive.answer_all()
    drive.die()
    drive.settle(Manner(starts=False))
    drive.deliver(ordinary("v", 2))
    drive.answer_all(Manner(outcome=history))
    assert state_of(drive, "dlv_u") is state
    assert frontier(drive) == moved
    assert sum("dlv_u" in batch for batch in submitted(drive)) == 1


@pytest.mark.req("R44")
def test_resume_after_a_failed_start_asks_the_history_about_what_is_unknown() -> None:
    drive = idle()
    drive.deliver(urgent("u", 1))
    drive.answer_all()
    drive.die()
    drive.settle(Manner(starts=False))
    drive.feed(ev.ResumeRequested())
    drive.answer_all(Manner(outcome=d.ItemOutcome.surfaced))
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced
    assert drive.phase is Phase.idle


def test_a_process_that_ends_while_it_starts_says_why() -> None:
    drive = starting()
    drive.owed.clear()
    drive.feed(ev.ProcessGone(1, 3, "no licence"))
    problem = drive.session.ledger.problem
    assert problem is not None
    assert "exit code 3; no licence" in problem.problem


def _only_settling() -> Drive:
    """A process comes up for nothing but to tell what became of an entry."""
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.stop()
    drive.die()
    assert drive.phase is Phase.recovering
    assert drive.session.ledger.turn is None
    return drive


@pytest.mark.parametrize("starts", [False, True])
def test_a_shutdown_while_a_process_comes_up_parks_and_fails_nothing(
    starts: bool,
) -> None:
    drive = _only_settling()
    park = drive.session.ledger.park
    drive.feed(ev.ShutdownRequested(1))
    (order,) = drive.wanted(fx.OpenRuntime)
    assert [e.inc for e in drive.wanted(fx.Kill)] == [order.inc]
    drive.perform(order if starts else drive.wanted(fx.Kill)[0])
    drive.settle()
    assert drive.phase is Phase.closed
    assert drive.session.ledger.park == park
    assert drive.session.ledger.problem is None
    assert drive.replies[1]


def test_a_settling_process_that_does_not_start_keeps_the_entry() -> None:
    drive = _only_settling()
    drive.settle(Manner(starts=False))
    assert drive.phase is Phase.offline
    assert [str(i) for i in drive.session.ledger.in_flight] == ["dlv_x"]
    drive.feed(ev.ResumeRequested())
    drive.settle()


def test_a_process_that_does_not_end_is_left_behind_at_the_end() -> None:
    drive = idle()
    drive.feed(ev.DisposeRequested(1))
    drive.owed.clear()
    drive.pass_deadline("kill")
    assert drive.wanted(fx.Kill)
    drive.feed(ev.KillFailed(drive.inc))
    assert drive.phase is Phase.closed
    assert [e.cause for e in drive.log if isinstance(e, j.SessionClosed)] == [
        CutCause.disposed
    ]


def test_dispose_cancels_what_the_runtime_still_has() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.stop()
    drive.answer_all(CARRIED)
    drive.feed(ev.DisposeRequested(1))
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.cancelled
    assert drive.session.ledger.in_flight == {}


def test_a_process_that_dies_in_maintenance_is_replaced_with_its_pace() -> None:
    for aborted in (False, True):
        drive = idle()
        drive.feed(ev.MaintenanceRequested("compact", 1))
        drive.send(followup("x"))
        if aborted:
            drive.feed(ev.CancelRequested(keep_inbox=True))
        drive.die()
        (order,) = drive.wanted(fx.OpenRuntime)
        assert order.paced is not aborted
        assert drive.replies[1][0].error.startswith("maintenance_failed")


def test_maintenance_whose_process_cannot_be_killed_fails_the_urgent() -> None:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    drive.deliver(urgent("u", 1))
    drive.owed.clear()
    drive.pass_deadline("maintenance")
    drive.feed(ev.KillFailed(drive.inc))
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    assert drive.phase is Phase.maintenance


@pytest.mark.inv(28)
def test_an_old_task_that_ends_late_does_not_end_the_maintenance_after_it() -> None:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    (old,) = drive.wanted(fx.Maintain)
    drive.owed.clear()
    drive.die()
    drive.send(followup("x"))
    drive.settle()
    drive.feed(ev.MaintenanceRequested("compact", 2))
    (new,) = drive.wanted(fx.Maintain)
    drive.feed(ev.MaintenanceEnded("late", id=old.id))
    assert drive.phase is Phase.maintenance
    assert 2 not in drive.replies
    drive.feed(ev.MaintenanceEnded("done", id=new.id))
    assert drive.replies[2][0].value == "done"
    assert drive.session.quiescent


@pytest.mark.bug("B31")
def test_a_run_that_could_not_be_stopped_is_watched_for_silence_again() -> None:
    drive = running()
    drive.pass_deadline("silence")
    for _ in range(20):
        if drive.phase is not Phase.converging:
            break
        for effect in tuple(drive.owed):
            drive.perform(effect, Manner(deaf=True, killable=False))
        if drive.armed and drive.phase is Phase.converging:
            drive.pass_deadline(next(iter(drive.armed)))
    assert drive.phase is Phase.running
    assert drive.records(j.FenceReopened)
    assert "silence" in drive.armed


def test_a_process_that_will_not_start_or_end_is_killed_by_its_own_number() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.die()
    assert (drive.phase, drive.session.ledger.turn) == (Phase.recovering, None)
    drive.feed(ev.ShutdownRequested(1))
    (first,) = drive.wanted(fx.Kill)
    drive.pass_deadline("kill")
    assert {e.inc for e in drive.wanted(fx.Kill)} == {first.inc}


@pytest.mark.inv(35)
def test_a_resume_while_it_comes_back_runs_what_a_stop_has_parked() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.send(followup("y"))
    drive.stop()
    drive.die()
    assert (drive.phase, drive.session.ledger.turn) == (Phase.recovering, None)
    assert drive.session.ledger.parked
    drive.feed(ev.ResumeRequested(1))
    assert drive.replies[1][0].value is ControlResult.resumed
    drive.settle()
    assert not drive.session.ledger.parked


def test_a_lost_lease_during_a_start_kills_what_starts() -> None:
    drive = starting()
    drive.feed(ev.LeaseLost())
    assert [e.inc for e in drive.wanted(fx.Kill)] == [1]


@pytest.mark.inv(38)
def test_a_lost_lease_answers_whoever_waits_for_maintenance() -> None:
    drive = idle()
    drive.feed(ev.MaintenanceRequested("compact", 1))
    drive.feed(ev.LeaseLost())
    assert drive.replies[1][0].error
    assert drive.armed == {}


def test_history_as_evidence_names_itself() -> None:
    drive = running()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.end(items={ItemId("dlv_x"): d.ItemOutcome.surfaced, ItemId("no"): _ANY})
    told = [e.evidence for e in drive.log if isinstance(e, j.DeliveryChanged)]
    assert told[-1] == Evidence("history")


_ANY = d.ItemOutcome.unknown
