"""What a crash left open is closed at the restart, before anything else."""

from __future__ import annotations

import pytest
from tests.kit.driving import AGENT, Drive, followup, ordinary, reloaded, urgent
from tests.kit.oracle import Oracle
from tests.kit.situations import idle, lane, running, state_of, submitted

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome
from agentteam_protocol.ids import Generation, ItemId
from agentteam_protocol.inbox import Lane
from agentteam_runtimes import driver as d
from agentteam_supervisor.session import events as ev
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.repair import repair
from agentteam_supervisor.session.state import Phase


@pytest.mark.req("R121")
@pytest.mark.inv(1, 2, 4, 32)
def test_an_open_turn_is_balanced_and_ended_as_interrupted() -> None:
    drive = running()
    drive.hear(
        d.ToolStarted(drive.turn, "c1", "shell"),
        d.ToolStarted(drive.turn, "c2", "shell"),
        d.Asked(drive.turn, d.AskRef("a1"), "shell", call_id="c2"),
    )
    records = repair(drive.session.ledger, 2, damaged=3)
    told = [j.KINDS[type(r)] for r in records]
    assert told == [
        "approval/decided",
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
        "run/notice",
        "run/process",
        "run/epoch",
    ]
    results = {r.call_id: r.error for r in records if isinstance(r, j.ToolResult)}
    assert results == {"c1": "TOOL_OUTCOME_UNKNOWN", "c2": "ABORTED_BEFORE_DISPATCH"}
    outcomes = [r.outcome for r in records if isinstance(r, j.ApprovalDecided)]
    assert outcomes == [ApprovalOutcome.cancelled]
    assert records[-1] == j.EpochBegun(Generation(2, 1), 3)


def test_what_cut_the_turn_is_said() -> None:
    ledger = running().session.ledger

    def notice(why: str | None) -> str:
        records = repair(ledger, 2) if why is None else repair(ledger, 2, why=why)
        (told,) = [r.text for r in records if isinstance(r, j.RunNotice)]
        return told

    assert "when its supervisor ended" in notice(None)
    assert "when its session failed: disk full, and" in notice(
        "its session failed: disk full"
    )


def test_a_session_that_was_idle_only_begins_an_epoch() -> None:
    assert repair(empty(AGENT), 5) == [j.EpochBegun(Generation(5, 1))]


@pytest.mark.inv(12)
def test_a_delivery_whose_last_record_left_it_nowhere_goes_back() -> None:
    drive = idle()
    drive.deliver(ordinary("x", 1))
    claimed = next(
        n
        for n, e in enumerate(drive.log)
        if isinstance(e, j.InboxSpliced) and e.reason is j.SpliceReason.claimed
    )
    again = reloaded(drive, drive.log[: claimed + 1], 2)
    assert lane(again, Lane.next_step) == ["dlv_x"]
    again.feed(ev.Loaded())
    again.settle()
    assert submitted(again) == [["dlv_x"]]


@pytest.mark.inv(12)
def test_a_torn_step_leaves_no_ordinary_copy_beside_its_urgent_copy() -> None:
    drive = running()
    drive.deliver(ordinary("y", 1, "tgt_b"))
    drive.stop()
    drive.deliver(ordinary("x", 2, message="m"))
    before = len(drive.log)
    drive.deliver(urgent("u", 2, message="m"))
    again = reloaded(drive, drive.log[: before + 1], 2)
    assert lane(again, Lane.urgent) == ["dlv_u"]
    assert lane(again, Lane.next_step) == []
    assert state_of(again, "dlv_x").value == "superseded"


def _busy() -> Drive:
    """A session with much open: a steer in flight, a cut, an urgent, a followup."""
    drive = Drive().running()
    drive.surface(ItemId("first"))
    drive.hear(d.ToolStarted(drive.turn, "c1", "shell"))
    drive.deliver(ordinary("x", 1, message="m"), 0)
    drive.answer_all()
    drive.send(followup("later"))
    drive.deliver(urgent("u", 1, message="m"))
    drive.settle()
    drive.stop()
    drive.deliver(ordinary("y", 2))
    drive.die()
    return drive


@pytest.mark.req("R117", "R118", "R121")
@pytest.mark.inv(1, 2, 4, 12, 31, 32)
def test_a_log_cut_anywhere_is_repaired_and_goes_on() -> None:
    drive = _busy()
    for kept in range(len(drive.log) + 1):
        again = reloaded(drive, drive.log[:kept], 2)
        watch = Oracle()
        watch._opens(empty(AGENT).gen)
        for record in again.log:
            if isinstance(record, j.FrontierMoved):
                watch.shown |= {(record.target, seq) for seq in record.seqs}
            if isinstance(record, j.DeliveryChanged):
                watch.proof.add((record.delivery, "before"))
            watch.record(record)
        again.watch = watch
        again.feed(ev.Loaded())
        again.settle()
        assert again.phase in (Phase.idle, Phase.offline)
        assert not again.session.ledger.runnable
        ledger = empty(AGENT)
        for record in again.log:
            ledger = fold(ledger, record)
        assert ledger == again.session.ledger
