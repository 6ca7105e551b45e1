"""What leaves for the server: receipts, reports, status, and the agent's own sends."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio
from tests.kit.session_bench import Bench, bench
from trio.testing import MockClock, wait_all_tasks_blocked

from agentteam_protocol.frames import DeliveryReceived, Frame, StatusReported
from agentteam_protocol.ids import AgentId, TargetId
from agentteam_protocol.journal import DeliveryChanged, FrontierMoved, SendDecided
from agentteam_runtimes.driver import (
    CallRef,
    Output,
    ReadCalled,
    SendCalled,
    TurnStatus,
)
from agentteam_supervisor.session.events import HistoryRead, Loaded, SendAnswered
from agentteam_supervisor.session.fold import empty, fold
from agentteam_supervisor.session.repair import repair
from agentteam_supervisor.session.state import Session

F = TypeVar("F", bound=Frame)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.journal import JournalEvent
    from agentteam_supervisor.session.effects import JudgeSend, ReadTarget


def _status(session: Session, since: str | None) -> StatusReported:
    ledger = session.ledger
    return StatusReported(
        agent=ledger.agent,
        epoch=ledger.gen.epoch,
        running=session.running,
        phase=session.live.phase,
        parked=ledger.parked,
        run_started_at=since,
    )


def _of_kind(b: Bench, kind: type[F]) -> list[F]:
    return [frame for frame in b.journal.frames if isinstance(frame, kind)]


async def test_receipt_is_as_durable_as_the_acceptance_and_given_again_for_a_repeat(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        one = b.deliver("a1")
        assert _of_kind(b, DeliveryReceived) == [DeliveryReceived(one, 1)]
        records = len(b.journal.events)
        b.deliver("a1")
        assert len(b.journal.events) == records
        assert _of_kind(b, DeliveryReceived) == 2 * [DeliveryReceived(one, 1)]


async def test_status_is_told_when_it_changed_and_only_then(
    autojump_clock: MockClock,
) -> None:
    clock = iter(str(n) for n in range(10_000))
    async with bench(status=_status, now=lambda: next(clock)) as b:
        await b.running()
        turn = b.driver.runtime.turn
        for _ in range(5):
            b.driver.runtime.emit(Output(turn, "word "))
        b.driver.runtime.finish()
        await b.handle.when_idle()
        phases = [frame.phase for frame in _of_kind(b, StatusReported)]
        assert phases == ["Starting", "Running", "Idle"]
        since = {f.run_started_at for f in _of_kind(b, StatusReported)}
        assert len(since) == 1


async def test_status_is_told_as_the_session_comes_up(
    autojump_clock: MockClock,
) -> None:
    async with bench(status=_status) as b:
        b.actor.feed(Loaded())
        (status,) = _of_kind(b, StatusReported)
        assert status.phase == "Offline"
        b.actor.feed(Loaded())
        assert len(b.journal.frames) == 1


async def test_reports_go_with_their_records(autojump_clock: MockClock) -> None:
    told: list[JournalEvent] = []

    def report(record: JournalEvent, *_: object) -> Sequence[Frame]:
        told.append(record)
        return ()

    async with bench(report=report) as b:
        await b.running()
        assert told == b.journal.events


async def test_streamed_text_of_a_held_run_is_shown_to_nobody(
    autojump_clock: MockClock,
) -> None:
    shown: list[str] = []
    async with bench(progress=lambda p: shown.append(p.text)) as b:
        await b.running()
        turn = b.driver.runtime.turn
        b.driver.runtime.emit(Output(turn, "before"))
        b.deliver("a2", urgent=True)
        b.driver.runtime.emit(Output(turn, "after"))
        assert shown == ["before"]


async def test_visible_send_is_judged_and_answered_in_words(
    autojump_clock: MockClock,
) -> None:
    async def judge(send: JudgeSend) -> SendAnswered:
        return SendAnswered(send.send, "forwarded", seq=7, text="sent")

    async with bench(judge=judge) as b:
        await b.running()
        call = CallRef("c1")
        b.driver.runtime.emit(SendCalled(b.driver.runtime.turn, call, "#plans", "hi"))
        await wait_all_tasks_blocked()
        assert b.driver.runtime.replies == [(call, "sent", False)]
        (decided,) = b.journal.of(SendDecided)
        assert isinstance(decided, SendDecided)
        assert decided.seq == 7


async def test_send_whose_verdict_never_comes_is_unknown_not_repeated(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []

    async def judge(send: JudgeSend) -> SendAnswered:
        asked.append(send.text)
        await trio.sleep_forever()
        raise AssertionError

    async with bench(judge=judge) as b:
        await b.running()
        call = CallRef("c1")
        b.driver.runtime.emit(SendCalled(b.driver.runtime.turn, call, "#plans", "hi"))
        await trio.sleep(31)
        ((_, words, error),) = b.driver.runtime.replies
        assert error
        assert "read_history" in words
        assert asked == ["hi"]


@pytest.mark.inv(7)
async def test_send_that_waits_for_its_record_loses_against_a_cut(
    autojump_clock: MockClock,
) -> None:
    asked: list[str] = []

    async def judge(send: JudgeSend) -> SendAnswered:
        asked.append(send.text)
        return SendAnswered(send.send, "forwarded", seq=7)

    async with bench(judge=judge) as b:
        await b.running()
        b.journal.hold()
        turn = b.driver.runtime.turn
        # Something of this step has to become durable first.
        b.handle.inject("context")
        b.driver.runtime.emit(SendCalled(turn, CallRef("c1"), "#plans", "hi"))
        b.deliver("a2", urgent=True)
        b.journal.release()
        await wait_all_tasks_blocked()
        assert asked == []
        ((_, words, error),) = b.driver.runtime.replies
        assert error
        assert "interrupted" in words


async def test_verdict_on_a_send_that_left_before_the_cut_is_recorded(
    autojump_clock: MockClock,
) -> None:
    gate = trio.Event()

    async def judge(send: JudgeSend) -> SendAnswered:
        await gate.wait()
        return SendAnswered(send.send, "forwarded", seq=7)

    async with bench(judge=judge) as b:
        await b.running()
        turn = b.driver.runtime.turn
        b.driver.runtime.emit(SendCalled(turn, CallRef("c1"), "#plans", "hi"))
        await wait_all_tasks_blocked()
        b.deliver("a2", urgent=True)
        gate.set()
        await wait_all_tasks_blocked()
        (decided,) = b.journal.of(SendDecided)
        assert isinstance(decided, SendDecided)
        assert decided.verdict == "forwarded"
        b.driver.runtime.finish(TurnStatus.interrupted)
        await wait_all_tasks_blocked()
        # The next run is told what of the cut one is public.
        text = b.driver.runtime.batches[-1].items[0].text
        assert text.splitlines()[0].startswith("[note: before it was cut")
        assert text.endswith("\nbody of a2")


async def test_what_the_next_input_owes_the_agent_outlives_a_restart(
    autojump_clock: MockClock,
) -> None:
    async def judge(send: JudgeSend) -> SendAnswered:
        return SendAnswered(send.send, "forwarded", seq=7)

    async with bench(judge=judge) as b:
        await b.running()
        turn = b.driver.runtime.turn
        b.driver.runtime.emit(SendCalled(turn, CallRef("c1"), "#plans", "hi"))
        await wait_all_tasks_blocked()
        log = list(b.journal.events)
    for epoch, first in ((2, "[note: before it was cut"), (3, "body of a3")):
        ledger = reduce(fold, log, empty(AgentId("agt_1")))
        log += repair(ledger, epoch)
        session = Session(reduce(fold, log, empty(AgentId("agt_1"))))
        async with bench(session=session) as b:
            b.deliver(f"a{epoch}")
            await wait_all_tasks_blocked()
            text = b.driver.runtime.batches[-1].items[0].text
            assert text.startswith(first)
            b.driver.runtime.surface()
            await wait_all_tasks_blocked()
            log += b.journal.events


async def test_history_that_was_read_is_handed_over_and_seen(
    autojump_clock: MockClock,
) -> None:
    async def read(ask: ReadTarget) -> HistoryRead:
        target = TargetId("tgt_9")
        return HistoryRead(ask.call, ask.gen, target, (1, 2), "alice: hi")

    async with bench(read=read) as b:
        await b.running()
        call = CallRef("c1")
        b.driver.runtime.emit(ReadCalled(b.driver.runtime.turn, call, "#plans"))
        await wait_all_tasks_blocked()
        assert b.driver.runtime.replies == [(call, "alice: hi", False)]
        moved = [e for e in b.journal.events if isinstance(e, FrontierMoved)]
        assert (TargetId("tgt_9"), (1, 2)) in [(e.target, e.seqs) for e in moved]


async def test_every_state_of_a_delivery_is_in_the_journal(
    autojump_clock: MockClock,
) -> None:
    async with bench() as b:
        await b.running()
        changes = [e for e in b.journal.events if isinstance(e, DeliveryChanged)]
        assert [c.state.value for c in changes] == ["accepted", "surfaced"]
