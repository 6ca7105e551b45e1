"""When things go wrong: what is told of a message, and how it is brought on its way."""

from __future__ import annotations

import pytest
from attrs import evolve
from tests.kit.driving import (
    BROKEN,
    SEEN,
    Drive,
    Manner,
    followup,
    ordinary,
    reloaded,
    urgent,
)
from tests.kit.oracle import Oracle
from tests.kit.situations import (
    converging,
    ends,
    idle,
    lane,
    offline,
    recovering,
    starting,
    state_of,
    submitted,
)

from agentteam_protocol import journal as j
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.ids import DeliveryId, ItemId
from agentteam_protocol.inbox import Item, Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import effects as fx, events as ev
from agentteam_supervisor.session.setbacks import GO_ON, KEPT
from agentteam_supervisor.session.state import Phase

CARRIED = d.ItemOutcome.carried
KEEPS = Manner(outcome=CARRIED)


def failed(item: Item | None = None) -> Drive:
    """A run has ended in an error, and the runtime keeps what it was given."""
    drive = idle()
    drive.session = evolve(drive.session, runtime="claude")
    drive.deliver(item or ordinary("x", 1))
    drive.answer_all()
    assert drive.turn is not None
    drive.held.clear()
    turn, drive.turn = drive.turn, None
    drive.hear(
        d.TurnEnded(
            turn,
            d.TurnStatus.failed,
            "Not logged in",
            {ItemId("dlv_x"): CARRIED},
            advice="log in",
        )
    )
    return drive


def changes(drive: Drive, delivery: str = "dlv_x") -> list[j.DeliveryChanged]:
    found = [e for e in drive.log if isinstance(e, j.DeliveryChanged)]
    return [e for e in found if e.delivery == delivery]


# --- a run that ended in an error ---------------------------------------------------------


@pytest.mark.req("R55")
@pytest.mark.inv(21)
@pytest.mark.parametrize("item", [ordinary("x", 1), urgent("x", 1)])
def test_what_a_failed_run_left_unread_has_failed_in_the_runtimes_own_words(
    item: Item,
) -> None:
    drive = failed(item)
    told = changes(drive)[-1]
    assert told.state is DeliveryState.failed
    assert told.diagnostic is not None
    assert "claude: Not logged in" in told.diagnostic.problem
    assert told.diagnostic.what_to_do.startswith("log in, then resume")
    assert drive.session.ledger.problem == told.diagnostic
    assert drive.session.ledger.parked
    assert drive.session.ledger.waiting == 1


def test_a_resume_has_the_runtime_go_on_and_sends_nothing_again() -> None:
    drive = failed()
    drive.trace.clear()
    drive.feed(ev.ResumeRequested(1))
    drive.answer_all()
    assert drive.session.ledger.problem is None
    (given,) = [e.items for e in drive.trace if isinstance(e, fx.Submit)]
    assert [i.body for i in given] == [GO_ON]
    drive.hear(
        d.Surfaced(drive.turn or d.TurnRef(""), ItemId("dlv_x"), "dlv_x.1", SEEN)
    )
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced
    assert not drive.session.ledger.parked
    assert drive.session.ledger.turn is not None
    assert drive.session.ledger.turn.target == "tgt_a", (
        "its answer goes where it was asked"
    )


def test_a_person_who_delivers_it_again_has_the_runtime_go_on_with_it() -> None:
    drive = failed(urgent("x", 1))
    drive.trace.clear()
    drive.deliver(evolve(urgent("x", 1), attempt=2))
    drive.answer_all()
    assert submitted(drive) == [[i.id for i in _asked(drive)]]
    assert [i.body for i in _asked(drive)] == [GO_ON]
    drive.hear(
        d.Surfaced(drive.turn or d.TurnRef(""), ItemId("dlv_x"), "dlv_x.1", SEEN)
    )
    assert [(c.state, c.attempt) for c in changes(drive)[-2:]] == [
        (DeliveryState.accepted, 2),
        (DeliveryState.surfaced, 2),
    ]


def _asked(drive: Drive) -> tuple[Item, ...]:
    (submit,) = [e for e in drive.trace if isinstance(e, fx.Submit)]
    return submit.items


def test_the_next_message_takes_it_along() -> None:
    drive = failed()
    drive.trace.clear()
    drive.deliver(ordinary("y", 2))
    drive.answer_all()
    assert submitted(drive) == [["dlv_y"]]
    assert drive.session.ledger.problem is None
    drive.hear(
        d.Surfaced(drive.turn or d.TurnRef(""), ItemId("dlv_x"), "dlv_x.1", SEEN)
    )
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_a_person_can_let_go_of_what_the_runtime_keeps_and_is_told_so() -> None:
    drive = failed()
    drive.feed(ev.Dismissed(DeliveryId("dlv_x")))
    last = changes(drive)[-1]
    assert (last.state, last.note) == (DeliveryState.cancelled, KEPT)
    assert drive.session.ledger.in_flight == {}
    assert drive.session.ledger.problem is None
    assert not drive.session.ledger.parked


@pytest.mark.parametrize("outcome", [CARRIED, d.ItemOutcome.dropped])
def test_after_a_restart_a_resume_brings_it_on_its_way_once(
    outcome: d.ItemOutcome,
) -> None:
    before = failed()
    drive = reloaded(before, before.log, 2)
    drive.log.clear()
    drive.feed(ev.Loaded())
    assert drive.phase is Phase.offline
    assert drive.session.ledger.problem is not None
    assert drive.session.ledger.parked
    drive.feed(ev.ResumeRequested(1))
    (order,) = drive.wanted(fx.OpenRuntime)
    drive.perform(order, Manner(outcome=outcome))
    drive.answer_all()
    bodies = [i.body for i in _asked(drive)]
    assert bodies == ([GO_ON] if outcome is CARRIED else ["read"])
    drive.settle()
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


def test_a_fresh_session_gets_what_the_lost_one_had_kept() -> None:
    before = failed()
    drive = reloaded(before, before.log, 2)
    drive.feed(ev.ResumeRequested(1))
    (order,) = drive.wanted(fx.OpenRuntime)
    drive.owed.remove(order)
    drive.inc = order.inc
    drive.feed(ev.RuntimeReady(order.inc, drive.able, {}, history_lost=True))
    drive.answer_all()
    assert [i.body for i in _asked(drive)] == ["read"]


def test_what_a_failed_run_dropped_waits_and_the_agent_says_why() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.end(d.TurnStatus.failed, {ItemId("dlv_x"): d.ItemOutcome.dropped})
    assert state_of(drive, "dlv_x") is DeliveryState.queued
    assert drive.session.ledger.problem is not None
    drive.trace.clear()
    drive.feed(ev.ResumeRequested(1))
    drive.settle()
    assert submitted(drive) == [["dlv_x"]]


def test_a_resume_after_an_error_goes_on_although_all_was_read() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.surface(ItemId("dlv_x"))
    drive.end(d.TurnStatus.failed)
    assert drive.session.ledger.parked
    drive.trace.clear()
    drive.feed(ev.ResumeRequested(1))
    drive.settle()
    assert [i.body for i in _asked(drive)] == [GO_ON]
    assert not drive.session.ledger.parked


def test_what_a_stop_left_with_the_runtime_is_gone_on_with_by_a_resume() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    drive.answer_all()
    drive.stop()
    drive.answer_all(KEEPS)
    assert drive.phase is Phase.idle
    assert drive.session.ledger.parked
    assert drive.session.ledger.waiting == 1
    drive.trace.clear()
    drive.feed(ev.ResumeRequested(1))
    drive.answer_all()
    assert [i.body for i in _asked(drive)] == [GO_ON]


# --- a Stop that came after an urgent ------------------------------------------------------


@pytest.mark.inv(27, 35)
@pytest.mark.parametrize("begin", [starting, recovering, converging])
def test_a_stop_parks_the_urgent_that_came_before_it(begin: object) -> None:
    assert callable(begin)
    drive = begin()
    drive.deliver(urgent("u", 1))
    drive.trace.clear()
    drive.stop(7)
    drive.settle()
    assert submitted(drive) == []
    assert not [e for e in drive.trace if isinstance(e, fx.OpenRuntime)]
    assert state_of(drive, "dlv_u") is DeliveryState.queued
    assert lane(drive, Lane.urgent) == ["dlv_u"]
    assert drive.session.ledger.parked
    assert ends(drive)[-1][0] == "aborted"
    drive.feed(ev.ResumeRequested(8))
    drive.settle()
    assert submitted(drive)[0] == ["dlv_u"]
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced


@pytest.mark.inv(35)
def test_an_urgent_that_came_after_the_stop_is_not_parked() -> None:
    drive = converging()
    drive.deliver(urgent("u", 1))
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_u"]


def test_a_stop_that_failed_takes_its_park_of_urgents_back() -> None:
    drive = converging()
    drive.deliver(urgent("u", 1))
    drive.stop()
    drive.settle(Manner(deaf=True, killable=False))
    assert drive.session.ledger.urgent_park == 0
    drive.deliver(urgent("v", 2))
    drive.settle()
    assert submitted(drive)[-1] == ["dlv_v"]


def test_a_newer_message_takes_a_parked_urgent_along_first() -> None:
    drive = starting()
    drive.deliver(urgent("u", 1))
    drive.stop()
    drive.settle()
    drive.trace.clear()
    drive.send(followup("later"))
    drive.settle()
    assert submitted(drive)[0] == ["dlv_u"]


# --- an urgent that was not delivered -------------------------------------------------------


@pytest.mark.req("R49")
@pytest.mark.inv(12)
def test_the_ordinary_copy_waits_again_when_its_urgent_copy_has_failed() -> None:
    drive = offline()
    drive.watch = Oracle()
    drive.watch._opens(drive.session.ledger.gen)
    drive.deliver(ordinary("x", 1, message="msg_1"))
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    drive.deliver(urgent("u", 1, message="msg_1"))
    assert state_of(drive, "dlv_x") is DeliveryState.superseded
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    told = changes(drive, "dlv_u")[-1]
    assert told.state is DeliveryState.failed
    assert told.diagnostic is not None
    assert told.diagnostic.problem == BROKEN.problem
    assert "agentteam resolve dlv_u --as redeliver" in told.diagnostic.what_to_do
    assert state_of(drive, "dlv_x") is DeliveryState.queued
    assert changes(drive)[-1].attempt == 2
    drive.feed(ev.ResumeRequested(1))
    drive.settle()
    assert submitted(drive) == [["dlv_x"]]
    assert state_of(drive, "dlv_x") is DeliveryState.surfaced


@pytest.mark.inv(12)
def test_an_urgent_that_is_delivered_again_replaces_its_ordinary_copy_again() -> None:
    drive = offline()
    drive.deliver(ordinary("x", 1, message="msg_1"))
    drive.deliver(urgent("u", 1, message="msg_1"))
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    drive.deliver(evolve(urgent("u", 1, message="msg_1"), attempt=2))
    drive.settle()
    assert submitted(drive) == [["dlv_u"]]
    assert state_of(drive, "dlv_x") is DeliveryState.superseded
    assert state_of(drive, "dlv_u") is DeliveryState.surfaced


def test_a_copy_that_the_runtime_kept_does_not_wait_again() -> None:
    """It is in the runtime's record, and is read there."""
    drive = failed(ordinary("x", 1, message="msg_1"))
    drive.die()
    drive.deliver(urgent("u", 1, message="msg_1"))
    assert state_of(drive, "dlv_x") is DeliveryState.superseded
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    assert state_of(drive, "dlv_u") is DeliveryState.failed
    assert state_of(drive, "dlv_x") is DeliveryState.superseded
    assert lane(drive, Lane.next_step) == []


@pytest.mark.inv(12, 32)
def test_no_part_of_the_journal_has_lost_the_message() -> None:
    drive = offline()
    drive.deliver(ordinary("x", 1, message="msg_1"))
    drive.deliver(urgent("u", 1, message="msg_1"))
    start = len(drive.log)
    drive.perform(drive.wanted(fx.OpenRuntime)[0], Manner(starts=False))
    for end in range(start, len(drive.log) + 1):
        ledger = reloaded(drive, drive.log[:end], 2).session.ledger
        waits = [i.message for items in ledger.lanes.values() for i in items]
        assert waits == ["msg_1"], end
