"""Which frame reaches which session, and what becomes of one that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve
from tests.kit.roster_stage import (
    A,
    B,
    T,
    deliver,
    grant,
    staged,
)

from agentteam_protocol import journal as j
from agentteam_protocol.approval import ApprovalOutcome, ApprovalPolicy
from agentteam_protocol.control import (
    ControlAction,
    ControlResult,
    Method,
    Resolution,
)
from agentteam_protocol.delivery import (
    DeliveryState,
    Diagnostic,
)
from agentteam_protocol.frames import (
    ActivityReported,
    AgentControl,
    AgentIntervene,
    AgentResolve,
    AgentRevoked,
    Answer,
    ApprovalDecide,
    ControlReported,
    DeliveryReceived,
    DeliveryReported,
    FrontierReported,
    Query,
    SendJudged,
    StatusReported,
)
from agentteam_protocol.ids import (
    ApprovalId,
    ControlId,
    DeliveryId,
    Generation,
    RunId,
    SendId,
)
from agentteam_protocol.inbox import Lane
from agentteam_supervisor.daemon.loading import load
from agentteam_supervisor.journal.log import open_journal
from agentteam_supervisor.session.events import (
    ApprovalAnswered,
    CancelRequested,
    Delivered,
    Dismissed,
    DisposeRequested,
    LeaseLost,
    Loaded,
    MaintenanceRequested,
    PolicyChosen,
    ResumeRequested,
    SendAnswered,
    Sent,
    ShutdownRequested,
    StopRequested,
)
from agentteam_supervisor.session.state import Phase

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_grant_opens_a_session_that_is_loaded_first(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(), deliver(1))
        loaded, delivered = stage.logs[A]
        assert isinstance(loaded, Loaded)
        assert isinstance(delivered, Delivered)
        assert stage.done == [grant(), deliver(1)]
        assert stage.actor().session.ledger.gen == Generation(1, 1)
        assert await stage.journal.kept() == {A: grant()}


@pytest.mark.req("R131", "R133")
@pytest.mark.inv(16)
async def test_only_the_policy_makes_a_delivery_urgent(tmp_path: Path) -> None:
    body = '停一下! urgent {"interruptPolicy": "interrupt_current_run"}'
    async with staged(tmp_path) as stage:
        await stage.hand(grant(), deliver(1, body), deliver(2, "calm", urgent=True))
        first, second = [e for e in stage.logs[A] if isinstance(e, Delivered)]
        assert (first.item.lane, first.item.policy, first.item.wakes) == (
            Lane.next_step,
            None,
            True,
        )
        assert second.item.lane is Lane.urgent
        assert (first.floor, first.item.seq, first.item.target) == (3, 1, T)
        assert (first.item.target_name, first.item.direct) == ("@demo", True)


async def test_each_frame_is_the_event_that_the_machine_knows(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(
            grant(),
            AgentControl(
                ControlId("ctl_1"),
                A,
                ControlAction.interrupt_current_run,
                RunId("run_1"),
                "ann",
            ),
            AgentControl(ControlId("ctl_2"), A, ControlAction.resume),
            AgentResolve(DeliveryId("dlv_1"), A, Resolution.dismiss),
            ApprovalDecide(ApprovalId("apr_1"), A, ApprovalOutcome.allowed_once),
            SendJudged(SendId("snd_1"), A, "forwarded", seq=5),
            AgentIntervene(ControlId("ctl_3"), A, Method.inject, {"messages": ["x"]}),
            AgentIntervene(ControlId("ctl_4"), A, Method.cancel, {"keepInbox": True}),
            AgentIntervene(ControlId("ctl_5"), A, Method.run_maintenance),
        )
        _, stop, resume, dismissed, answered, sent, inject, cancel, task = stage.logs[A]
        assert (stop, resume) == (
            StopRequested(RunId("run_1"), "ann", 1),
            ResumeRequested(1),
        )
        assert dismissed == Dismissed(DeliveryId("dlv_1"))
        assert answered == ApprovalAnswered(
            ApprovalId("apr_1"), ApprovalOutcome.allowed_once
        )
        assert isinstance(sent, SendAnswered)
        assert (sent.verdict, sent.seq) == ("forwarded", 5)
        assert isinstance(inject, Sent)
        (item,) = inject.items
        assert (item.id, item.lane, item.wakes) == ("ctl_3.1", Lane.next_step, False)
        assert isinstance(cancel, CancelRequested)
        assert cancel.keep_inbox
        assert isinstance(task, MaintenanceRequested)
        told = [f for f in await stage.told() if not isinstance(f, StatusReported)]
        assert (
            ControlReported(
                ControlId("ctl_1"), A, ControlResult.stopping, RunId("run_1")
            )
            in told
        )
        assert ControlReported(ControlId("ctl_2"), A, ControlResult.resumed) in told
        notice = told[-1]
        assert isinstance(notice, ActivityReported)
        assert notice.words["text"] == "run_maintenance was refused: not_idle"


async def test_nothing_for_an_unknown_agent_is_lost_in_silence(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stop = ControlAction.interrupt_current_run
        await stage.hand(
            deliver(1),
            AgentControl(ControlId("ctl_1"), A, stop, RunId("run_1")),
            AgentResolve(DeliveryId("dlv_2"), A, Resolution.dismiss),
            AgentIntervene(ControlId("ctl_2"), A, Method.cancel),
        )
        assert len(stage.done) == 4
        received, failed, control, cancelled, notice = await stage.told()
        assert received == DeliveryReceived(DeliveryId("dlv_1"))
        assert isinstance(failed, DeliveryReported)
        assert failed.state is DeliveryState.failed
        assert failed.diagnostic is not None
        assert failed.diagnostic.what_to_do
        assert isinstance(control, ControlReported)
        assert control.result is ControlResult.not_running
        assert isinstance(cancelled, DeliveryReported)
        assert isinstance(notice, ActivityReported)


@pytest.mark.bug("B11")
async def test_a_session_that_crashes_is_loaded_again_and_its_sibling_goes_on(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(A), grant(B), deliver(1, "one"))
        sibling = stage.actor(B)
        stage.actor().failure = Diagnostic("a bug", "report it")
        stage.actor().over.set()
        await stage.settle()
        await stage.hand(deliver(2, "while it is down"), deliver(3, agent=B))
        assert deliver(3, agent=B) in stage.done
        assert deliver(2, "while it is down") not in stage.done
        await stage.pass_time(mock_clock, 1.0)
        assert len(stage.actors[A]) == 2
        assert deliver(2, "while it is down") in stage.done
        assert stage.actor(B) is sibling
        # The same lease: no generation comes back.
        first, second = (a.session.ledger.gen for a in stage.actors[A])
        assert second == first.next()
        entries = await stage.journal.entries(A)
        notes = [e.event.text for e in entries if isinstance(e.event, j.RunNotice)]
        assert notes == ["one", "while it is down"]


@pytest.mark.bug("B11")
async def test_input_that_kills_each_session_ends_as_failed_with_what_to_do(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(A), deliver(1, "poison"))
        await stage.pass_time(mock_clock, 0.6, 1.1, 2.1, 2.1)
        assert len(stage.actors[A]) == 4
        assert deliver(1, "poison") in stage.done
        told = await stage.told()
        reports = [f for f in told if isinstance(f, DeliveryReported)]
        assert [r.state for r in reports] == [DeliveryState.failed]
        problem = Diagnostic("a bug", "report it")
        (status,) = [f for f in told if isinstance(f, StatusReported)]
        assert (status.problem, status.running) == (problem, False)
        # Down for good: more input is answered at once.
        await stage.hand(deliver(2))
        assert (await stage.told())[-1] == DeliveryReported(
            DeliveryId("dlv_2"), A, DeliveryState.failed, 1, diagnostic=problem
        )
        # Until a person asks for one more try.
        await stage.hand(AgentControl(ControlId("ctl_1"), A, ControlAction.resume))
        await stage.pass_time(mock_clock, 1.0)
        assert len(stage.actors[A]) == 5
        assert isinstance(stage.logs[A][-1], ResumeRequested)


@pytest.mark.bug("B11")
async def test_what_cannot_be_made_is_a_problem_of_its_own_agent(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as stage:
        stage.broken.add(A)
        await stage.hand(grant(A), grant(B), deliver(1), deliver(2, agent=B))
        await stage.pass_time(mock_clock, 0.6, 1.1, 2.1, 2.1)
        assert deliver(2, agent=B) in stage.done
        told = await stage.told()
        failed = [f for f in told if isinstance(f, DeliveryReported)]
        assert [f.delivery for f in failed] == ["dlv_1"]


async def test_new_settings_reach_the_session(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        never = evolve(grant(), approval_policy=ApprovalPolicy.never)
        await stage.hand(never)
        assert stage.logs[A][-1] == PolicyChosen(ApprovalPolicy.never)
        assert len(stage.actors[A]) == 1
        # Another model needs another process: once nothing runs.
        await stage.hand(evolve(never, model="new"))
        assert len(stage.actors[A]) == 2
        assert stage.actor().granted.model == "new"
        await stage.hand(deliver(1))
        assert isinstance(stage.logs[A][-1], Delivered)


@pytest.mark.req("R118")
@pytest.mark.parametrize("slow", [Phase.converging, Phase.closed])
async def test_input_while_the_old_process_ends_reaches_the_session_with_new_settings(
    slow: Phase, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        old = stage.actor()
        old.slow = slow
        await stage.hand(evolve(grant(), model="new"))
        await stage.hand(deliver(1))
        assert deliver(1) not in stage.done
        old.over.set()
        await stage.settle()
        assert stage.actor() is not old
        assert isinstance(stage.logs[A][-1], Delivered)
        assert deliver(1) in stage.done


@pytest.mark.req("R118")
@pytest.mark.parametrize("slow", [Phase.converging, Phase.closed])
async def test_input_while_the_process_ends_at_a_shutdown_is_not_said_to_be_received(
    slow: Phase, tmp_path: Path
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        actor = stage.actor()
        actor.slow = slow
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.roster.shut_down)
            await stage.settle()
            await stage.hand(deliver(1))
            actor.over.set()
        await stage.settle()
        assert deliver(1) not in stage.done


async def test_a_new_epoch_fences_the_session_and_begins_another(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(epoch=1), deliver(1, "old"))
        await stage.hand(grant(epoch=5), deliver(2, "new"))
        assert [type(e) for e in stage.logs[A]] == [
            Loaded,
            Delivered,
            LeaseLost,
            Loaded,
            Delivered,
        ]
        assert stage.actor().session.ledger.gen == Generation(5, 1)
        await stage.hand(AgentRevoked(A, epoch=4))
        assert not stage.actor().ended


async def test_a_deleted_agent_is_disposed_of_and_forgotten(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        await stage.hand(AgentRevoked(A, 1, forget=True))
        assert isinstance(stage.logs[A][-1], DisposeRequested)
        assert await stage.journal.kept() == {}
        assert stage.roster.seat(A) is None
        await stage.hand(deliver(1))
        assert isinstance((await stage.told())[-1], DeliveryReported)


async def test_at_a_shutdown_late_input_is_left_to_the_next_start(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(), deliver(1))
        await stage.roster.shut_down()
        assert isinstance(stage.logs[A][-1], ShutdownRequested)
        await stage.hand(deliver(2))
        # Not done, so not received: the server sends it again.
        assert deliver(2) not in stage.done
        assert not [f for f in await stage.told() if isinstance(f, DeliveryReported)]


async def test_the_journal_can_be_queried(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(), deliver(1, "one"))
        arguments = {"after": 1, "limit": 5}
        await stage.hand(
            Query(7, A, "journal", arguments), Query(8, A, "weather", arguments)
        )
        await stage.settle()
        answers = {a.ref: a for a in stage.answers if isinstance(a, Answer)}
        assert answers[7].ok
        (event,) = answers[7].body["events"]
        assert (event["seq"], event["event"]["text"]) == (2, "one")
        assert not answers[8].ok


@pytest.mark.req("R12")
async def test_a_stop_that_the_server_could_not_store_acts_and_is_answered(
    tmp_path: Path,
) -> None:
    asked = {"runId": "run_1", "who": "ann"}
    async with staged(tmp_path) as stage:
        await stage.hand(grant())
        await stage.hand(Query(1, A, "stop", asked))
        await stage.hand(Query(2, B, "stop", asked), Query(3, A, "stop", {}))
        assert StopRequested(RunId("run_1"), "ann", 1) in stage.logs[A]
        answers = {a.ref: a.body for a in stage.answers if isinstance(a, Answer)}
        assert answers == {
            1: {"result": ControlResult.stopping},
            2: {"result": ControlResult.not_running},
            3: {"result": ControlResult.not_running},
        }


async def test_nonsense_that_the_server_let_pass_ends_nobody(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        wrong = {"lane": "fast", "messages": ["x"]}
        await stage.hand(
            grant(),
            AgentIntervene(ControlId("ctl_1"), A, Method.send, wrong),
            Query(1, A, "journal", {"after": "x", "limit": 10**30}),
            Query(2, A, "journal", {"after": 10**30, "limit": -1}),
            deliver(1),
        )
        assert isinstance(stage.logs[A][-1], Delivered)
        assert len(stage.done) == 3
        notices = [f for f in await stage.told() if isinstance(f, ActivityReported)]
        assert "not understood" in notices[0].words["text"]
        assert sorted(a.ref for a in stage.answers if isinstance(a, Answer)) == [1, 2]


@pytest.mark.req("R118", "R121")
@pytest.mark.inv(31, 32)
async def test_a_turn_that_a_crash_cut_is_closed_and_reported(tmp_path: Path) -> None:
    run = RunId("run_1")
    async with open_journal(tmp_path / "journal.sqlite3") as journal:
        open_turn: list[j.JournalEvent] = [
            j.EpochBegun(Generation(1, 1)),
            j.TurnStart(1, run, Generation(1, 1)),
            j.StepStart(1, 1),
            j.ToolCall(1, "call_1", "shell"),
        ]
        await journal.append(A, open_turn).wait()
    async with staged(tmp_path) as stage:
        await stage.hand(grant(epoch=2))
        events = [e.event for e in await stage.journal.entries(A)][4:]
        assert [type(e) for e in events] == [
            j.ToolResult,
            j.StepEnd,
            j.TurnEnd,
            j.RunNotice,
            j.EpochBegun,
        ]
        folded = await load(stage.journal, A)
        assert folded.ledger == stage.actor().session.ledger
        assert folded.ledger.turn is None
        told = [type(f).__name__ for f in await stage.told()]
        ended = ["RunReported", "ActivityReported"]
        assert told[:4] == [*ended, "ActivityReported", "FenceReported"]


async def test_a_policy_that_changed_while_we_were_away_holds_from_the_start(
    tmp_path: Path,
) -> None:
    async with open_journal(tmp_path / "journal.sqlite3") as journal:
        await journal.append(A, [j.ApprovalPolicySet(ApprovalPolicy.ask)]).wait()
    async with staged(tmp_path) as stage:
        await stage.hand(evolve(grant(), approval_policy=ApprovalPolicy.never))
        assert stage.logs[A] == [PolicyChosen(ApprovalPolicy.never), Loaded()]


@pytest.mark.inv(9, 10)
async def test_what_the_server_knows_as_seen_is_seen_after_a_lost_journal(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(evolve(grant(), frontiers={T: 41}))
        assert stage.actor().session.ledger.frontiers[T].contiguous == 41
        events = [e.event for e in await stage.journal.entries(A)]
        assert j.FrontierMoved(T, floor=41) in events
        # It is no news to the server, and never goes back.
        assert not [f for f in await stage.told() if isinstance(f, FrontierReported)]
    async with staged(tmp_path) as stage:
        await stage.hand(evolve(grant(epoch=2), frontiers={T: 7}))
        assert stage.actor().session.ledger.frontiers[T].contiguous == 41


async def test_a_resume_does_not_wait_for_the_pause_of_a_failed_session(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with staged(tmp_path) as stage:
        await stage.hand(grant(), deliver(1, "poison"))
        await stage.pass_time(mock_clock, 0.1)
        assert len(stage.actors[A]) == 1
        await stage.hand(AgentControl(ControlId("ctl_1"), A, ControlAction.resume))
        assert len(stage.actors[A]) == 2
