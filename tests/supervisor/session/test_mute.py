"""A runtime that answers nothing any more is replaced, and its message is read."""

from __future__ import annotations

import pytest
from tests.kit.driving import Drive, ordinary, urgent
from tests.kit.situations import ends, idle, state_of, submitted

from agentteam_protocol.delivery import DeliveryState
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.state import Phase


def mute() -> Drive:
    """Submit to a runtime that answers neither that nor what became of it."""
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.owed.clear()
    drive.feed(ev.SubmitFailed(submit.batch, True, "too slow"))
    assert drive.wanted(fx.Settle)
    drive.owed.clear()
    drive.pass_deadline("settle")
    return drive


@pytest.mark.bug("B02", "B05", "B11")
@pytest.mark.inv(13)
def test_t13a_a_mute_runtime_is_ended_and_the_next_one_reads_the_message() -> None:
    drive = mute()
    assert drive.phase is Phase.converging
    assert drive.wanted(fx.Terminate)
    drive.feed(ev.Settled(drive.inc, {}))  # its history, given up as it dies
    assert state_of(drive, "dlv_x") is DeliveryState.queued
    drive.die(-15)
    # So a message that mutes its runtime each time ends with the restart budget.
    assert [o.paced for o in drive.wanted(fx.OpenRuntime)] == [True]
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_x"]
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert ends(drive) == [("aborted", "silent"), ("completed", "")]


def test_t13a_of_a_mute_runtime_that_lives_on_a_later_process_may_know() -> None:
    drive = mute()
    drive.pass_deadline("terminate")
    drive.pass_deadline("kill")
    assert state_of(drive, "dlv_x") is DeliveryState.unknown
    drive.deliver(urgent("u", 2))
    drive.settle()
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced
    assert state_of(drive, "dlv_x") is DeliveryState.failed  # it was never read


def test_t13a_a_turn_that_is_named_in_time_is_no_mute_runtime() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.perform(drive.wanted(fx.PreStep)[0])
    (submit,) = drive.wanted(fx.Submit)
    drive.owed.clear()
    drive.feed(ev.SubmitFailed(submit.batch, True, "too slow"))
    drive.turn = d.TurnRef("turn5")
    drive.hear(d.TurnStarted(drive.turn, submit.batch))
    drive.owed.clear()
    drive.pass_deadline("settle")
    assert drive.phase is not Phase.converging
