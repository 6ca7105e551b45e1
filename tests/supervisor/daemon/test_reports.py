"""What the server is told of each journal event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from attrs import evolve

from agentteam_protocol import journal as j
from agentteam_protocol.activity import ActivityKind as K
from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.control import CutCause
from agentteam_protocol.delivery import (
    Author,
    AuthorKind,
    DeliveryState,
    Diagnostic,
    Evidence,
    InterruptPolicy,
)
from agentteam_protocol.frames import (
    ActivityReported,
    ApprovalReported,
    DeliveryReported,
    FenceReported,
    Frame,
    FrontierReported,
    RunReported,
)
from agentteam_protocol.ids import (
    AgentId,
    ApprovalId,
    DeliveryId,
    Generation,
    ItemId,
    MessageId,
    RunId,
    TargetId,
)
from agentteam_protocol.inbox import Item, Lane
from agentteam_supervisor.daemon.reports import Reporting, begin, report, status
from agentteam_supervisor.session.fold import empty
from agentteam_supervisor.session.state import Live, Phase, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

A = AgentId("agt_a")
T = TargetId("tgt_1")
RUN = RunId("run_1")
G1, G2 = Generation(1, 1), Generation(1, 2)
AT = "2026-11-30T12:00:00Z"
U1, U2 = DeliveryId("dlv_u1"), DeliveryId("dlv_u2")
S = DeliveryState


def item(delivery: DeliveryId, urgent: bool = True, seq: int = 7) -> Item:
    return Item(
        ItemId(delivery),
        "body",
        Lane.urgent if urgent else Lane.next_step,
        delivery=delivery,
        message=MessageId("msg_1"),
        target=T,
        seq=seq,
        policy=InterruptPolicy.interrupt_current_run if urgent else None,
        author=Author(AuthorKind.user, "ann"),
        position=seq,
    )


def accepted(delivery: DeliveryId, urgent: bool = True) -> j.InboxSpliced:
    return j.InboxSpliced(j.SpliceReason.accepted, added=(item(delivery, urgent),))


def changed(delivery: DeliveryId, state: DeliveryState) -> j.DeliveryChanged:
    problem = Diagnostic("it would not stop", "end it by hand")
    diagnostic = problem if state in {S.failed, S.blocked} else None
    return j.DeliveryChanged(delivery, state, 1, G1, diagnostic=diagnostic)


STARTED: list[j.JournalEvent] = [j.TurnStart(1, RUN, G1)]
HELD: list[j.JournalEvent] = [
    j.InterruptRequested(G1, RUN, CutCause.urgent, U1, "ann"),
    j.FenceHeld(G1),
]
FENCED: list[j.JournalEvent] = [
    j.TurnEnd(1, j.TurnOutcome.aborted, CutCause.urgent),
    j.FenceClosed(G1, G2),
]
NEXT: list[j.JournalEvent] = [j.TurnStart(2, RunId("run_2"), G2)]


def play(
    events: Sequence[j.JournalEvent], state: Reporting | None = None
) -> tuple[Reporting, list[Frame]]:
    reporting = state or begin(A)
    frames: list[Frame] = []
    for event in events:
        reporting, more = report(reporting, event, AT)
        frames += more
    return reporting, frames


def lines(frames: Sequence[Frame], delivery: DeliveryId | None) -> list[K]:
    return [
        f.kind
        for f in frames
        if isinstance(f, ActivityReported) and f.delivery == delivery
    ]


@pytest.mark.req("R32")
@pytest.mark.inv(22)
@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([accepted(U1), *NEXT, changed(U1, S.surfaced)], [K.requested, K.started]),
        (
            [*STARTED, accepted(U1), *HELD, *FENCED, *NEXT, changed(U1, S.surfaced)],
            [K.requested, K.stopping, K.interrupted, K.started],
        ),
        (
            # The cut is journalled before the entry joins its lane.
            [*STARTED, *HELD, accepted(U1), *FENCED, *NEXT, changed(U1, S.surfaced)],
            [K.requested, K.stopping, K.interrupted, K.started],
        ),
        (
            [*STARTED, accepted(U1), *HELD, j.FenceReopened(G1), changed(U1, S.failed)],
            [K.requested, K.stopping, K.failed],
        ),
        (
            [*STARTED, accepted(U1), *HELD, *FENCED, changed(U1, S.unknown)],
            [K.requested, K.stopping, K.interrupted, K.failed],
        ),
        ([accepted(U1), changed(U1, S.blocked)], [K.requested, K.failed]),
        ([accepted(U1), changed(U1, S.cancelled)], [K.requested, K.failed]),
        (
            # After it started nothing can fail any more.
            [accepted(U1), changed(U1, S.surfaced), changed(U1, S.unknown)],
            [K.requested, K.started],
        ),
        (
            [accepted(U1), changed(U1, S.accepted), changed(U1, S.queued)],
            [K.requested],
        ),
        ([accepted(U1, urgent=False), changed(U1, S.surfaced)], []),
    ],
)
def test_the_lines_of_an_urgent_come_in_one_order(
    events: list[j.JournalEvent], expected: list[K]
) -> None:
    assert lines(play(events)[1], U1) == expected


@pytest.mark.req("R32")
@pytest.mark.inv(22)
def test_a_second_urgent_joins_the_stopping_that_is_under_way() -> None:
    events = [*STARTED, accepted(U1), *HELD, accepted(U2), *FENCED]
    frames = play(events)[1]
    for urgent in (U1, U2):
        assert lines(frames, urgent) == [K.requested, K.stopping, K.interrupted]


@pytest.mark.inv(22)
def test_an_open_urgent_goes_on_where_it_stopped_after_a_restart() -> None:
    first = [*STARTED, accepted(U1), *HELD]
    # A restart folds the same events, and tells nothing of them again.
    folded, _ = play(first)
    rest: list[j.JournalEvent] = [
        j.TurnEnd(1, j.TurnOutcome.interrupted),
        j.EpochBegun(Generation(2, 1)),
        j.TurnStart(2, RunId("run_2"), Generation(2, 1)),
        changed(U1, S.surfaced),
    ]
    assert lines(play(rest, folded)[1], U1) == [K.interrupted, K.started]


def test_a_process_that_dies_by_itself_interrupts_nobody() -> None:
    frames = play([*STARTED, accepted(U1), j.FenceClosed(G1, G2)])[1]
    assert lines(frames, U1) == [K.requested]
    assert lines(frames, None) == [K.run_started]


@pytest.mark.req("R124")
def test_a_stop_says_who_stopped_the_run() -> None:
    events: list[j.JournalEvent] = [
        *STARTED,
        j.InterruptRequested(G1, RUN, CutCause.stop, who="ann"),
        j.FenceHeld(G1),
        j.TurnEnd(1, j.TurnOutcome.aborted, CutCause.stop),
        j.FenceClosed(G1, G2),
    ]
    frames = play(events)[1]
    assert lines(frames, None) == [
        K.run_started,
        K.stopping,
        K.run_ended,
        K.interrupted,
    ]
    (end,) = [
        f for f in frames if isinstance(f, ActivityReported) and f.kind is K.run_ended
    ]
    assert end.words == {"outcome": "aborted", "stopped_by": "@ann"}


def test_stopping_twice_is_told_once() -> None:
    stop = j.InterruptRequested(G1, RUN, CutCause.stop, who="ann")
    frames = play([*STARTED, stop, j.FenceHeld(G1), stop])[1]
    assert lines(frames, None) == [K.run_started, K.stopping]


def test_the_lines_of_a_cut_belong_to_the_run_that_was_cut() -> None:
    frames = play([*STARTED, accepted(U1), *HELD, *FENCED, *NEXT])[1]
    runs = {f.kind: f.run_id for f in frames if isinstance(f, ActivityReported)}
    assert runs[K.interrupted] == runs[K.run_ended] == RUN
    assert runs[K.run_started] == "run_2"


@pytest.mark.req("R127")
def test_words_hold_no_stages_and_details_do() -> None:
    frames = play([accepted(U1), changed(U1, S.failed)])[1]
    failed = [f for f in frames if isinstance(f, ActivityReported)][-1]
    assert failed.words == {"who": "@ann", "problem": "it would not stop"}
    assert failed.detail == {"state": "failed", "whatToDo": "end it by hand"}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (j.FenceHeld(G1), [FenceReported(A, G1, "hold")]),
        (j.FenceReopened(G1), [FenceReported(A, G1, "open")]),
        (
            j.FenceClosed(G1, G2),
            [FenceReported(A, G1, "fenced"), FenceReported(A, G2, "open")],
        ),
        (j.EpochBegun(G2), [FenceReported(A, G2, "open")]),
        (j.FrontierMoved(T, (3, 4)), [FrontierReported(A, T, (3, 4), G1)]),
        (j.FrontierMoved(T, floor=9), []),
        (j.StepStart(1, 1), []),
        (j.AssistantMessage(1, "text"), []),
        (j.RunProblem(None), []),
    ],
)
def test_an_event_is_worth_these_frames(
    event: j.JournalEvent, expected: list[Frame]
) -> None:
    assert play([event])[1] == expected


@pytest.mark.req("R44")
def test_a_delivery_moves_its_frontier_by_its_own_report_alone() -> None:
    evidence = Evidence("recorded", detail="turn 1 has it")
    surfaced = j.DeliveryChanged(U1, S.surfaced, 1, G1, evidence)
    events: list[j.JournalEvent] = [
        accepted(U1, urgent=False),
        surfaced,
        j.FrontierMoved(T, (7,)),
        j.FrontierMoved(T, (8,)),
    ]
    frames = play(events)[1]
    assert frames == [
        DeliveryReported(U1, A, S.surfaced, 1, G1, evolve(evidence, at=AT)),
        FrontierReported(A, T, (8,), G1),
    ]


def test_a_run_is_told_when_it_opens_and_when_it_ends() -> None:
    events: list[j.JournalEvent] = [
        *STARTED,
        j.UserMessage(1, ItemId("i"), "x", U1),
        j.TurnEnd(1, j.TurnOutcome.completed, detail="done", usage={"tokens": 5}),
    ]
    runs = [f for f in play(events)[1] if isinstance(f, RunReported)]
    opened = RunReported(A, RUN, 1, G1, started_at=AT)
    closed = evolve(
        opened,
        ended_at=AT,
        outcome="completed",
        detail="done",
        deliveries=(U1,),
        usage={"tokens": 5},
    )
    assert runs == [opened, closed]


def test_a_held_auto_reply_stays_a_draft_of_its_run() -> None:
    end = j.TurnEnd(1, j.TurnOutcome.completed)
    held = j.SendDecided(G1, T, "held", text="my answer", auto_reply=True)
    runs = [f for f in play([*STARTED, end, held])[1] if isinstance(f, RunReported)]
    assert runs[-1] == evolve(runs[-2], draft="my answer")
    sent = evolve(held, verdict="forwarded", seq=3)
    assert not [f for f in play([sent])[1] if isinstance(f, RunReported)]


@pytest.mark.req("R116")
def test_an_approval_is_told_when_asked_and_when_decided() -> None:
    request = ApprovalRequest(ApprovalId("apr_1"), RUN, "shell", "{}", asked_at=AT)
    events: list[j.JournalEvent] = [
        *STARTED,
        j.ApprovalAsked(1, request),
        j.ApprovalDecided(1, request.id, ApprovalOutcome.rejected),
        j.ApprovalDecided(1, request.id, ApprovalOutcome.allowed_once),
    ]
    frames = play(events)[1]
    assert [f for f in frames if isinstance(f, ApprovalReported)] == [
        ApprovalReported(A, request, G1),
        ApprovalReported(A, request, G1, ApprovalOutcome.rejected),
    ]
    assert lines(frames, None) == [K.run_started, K.approval_asked, K.approval_decided]


def test_a_problem_and_a_notice_are_lines_for_people() -> None:
    events: list[j.JournalEvent] = [
        j.RunNotice("a process is still alive", "pid 5"),
        j.RunProblem(Diagnostic("no such program", "install it")),
    ]
    notice, problem = play(events)[1]
    assert isinstance(notice, ActivityReported)
    assert (notice.words, notice.detail) == (
        {"text": "a process is still alive"},
        {"detail": "pid 5"},
    )
    assert isinstance(problem, ActivityReported)
    assert problem.words == {"text": "no such program"}


@pytest.mark.req("R111")
def test_the_status_shows_idle_or_running_and_the_open_run() -> None:
    reporting, _ = play(STARTED)
    live = Live(phase=Phase.running)
    told = status(Session(reporting.ledger, live), AT, {"version": "1"})
    assert (told.running, told.phase, told.run_id, told.gen) == (
        True,
        "Running",
        RUN,
        G1,
    )
    assert (told.run_started_at, told.capabilities) == (AT, {"version": "1"})
    idle = status(Session(empty(A)), AT, {})
    assert (idle.running, idle.run_id, idle.run_started_at) == (False, None, None)
