"""The transition table, continued: maintenance, starts and ends."""

from __future__ import annotations

import pytest
from tests.kit.driving import (
    BROKEN,
    Drive,
    Manner,
    followup,
    ordinary,
    urgent,
)
from tests.kit.situations import (
    ANY,
    DEAF,
    UNSTOPPABLE,
    converging,
    ends,
    frontier,
    idle,
    lane,
    maintaining,
    offline,
    recovering,
    running,
    starting,
    state_of,
    submitted,
)

from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import DeliveryId
from agentteam_protocol.inbox import Lane
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import Phase

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
    (task,) = drive.wanted(fx.Maintain)
    drive.owed.clear()
    drive.feed(ev.MaintenanceEnded("v", problem, task.id))
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


def test_a_problem_goes_when_nothing_waits_for_it_or_a_person_resumes() -> None:
    drive = starting()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    drive.feed(ev.Dismissed(DeliveryId("dlv_x")))
    assert drive.session.ledger.problem == BROKEN, "another one still waits for it"
    drive.feed(ev.ResumeRequested(1))
    assert drive.session.ledger.problem is None
    alone = Drive()
    alone.deliver(ordinary("x", 1))
    alone.perform(alone.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    assert alone.session.ledger.problem == BROKEN
    alone.feed(ev.Dismissed(DeliveryId("dlv_x")))
    assert alone.session.ledger.problem is None


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
