"""The journal: order, durability, numbering and what a failure leaves behind."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.codec import decode_envelope
from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.errors import JournalUnwritable, QueueFull
from agentteam_protocol.frames import AgentGranted, DeliveryReceived, SendAsked
from agentteam_protocol.ids import AgentId, DeliveryId, Generation, RunId, SendId
from agentteam_protocol.journal import (
    DeliveryChanged,
    FenceLate,
    RunNotice,
    ToolResult,
    TurnStart,
)
from agentteam_supervisor.journal.log import Journal, open_journal

if TYPE_CHECKING:
    from pathlib import Path

A = AgentId("agt_a")
B = AgentId("agt_b")


def note(number: int) -> RunNotice:
    return RunNotice(f"note {number}")


def receipt(number: int) -> DeliveryReceived:
    return DeliveryReceived(DeliveryId(f"dlv_{number}"))


async def notes(journal: Journal, agent: AgentId) -> list[str]:
    entries = await journal.entries(agent, limit=10_000)
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
    return [e.event.text for e in entries if isinstance(e.event, RunNotice)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite3"


async def test_what_was_waited_for_is_there_after_a_reopen(path: Path) -> None:
    event = TurnStart(1, RunId("run_1"), Generation(3, 4))
    async with open_journal(path) as journal:
        await journal.append(A, [event, note(1)], at="2026-11-30T00:00:00Z").wait()
    async with open_journal(path) as journal:
        first, second = await journal.entries(A)
        assert (first.seq, first.at, first.event) == (1, "2026-11-30T00:00:00Z", event)
        assert second.event == note(1)
        assert journal.agents() == {A}
        assert journal.last(A) == 2


async def test_appends_keep_the_order_of_the_calls_and_count_per_agent(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        for number in range(500):
            journal.append((A, B)[number % 2], [note(number)])
        await journal.flushed()
        assert await notes(journal, A) == [f"note {n}" for n in range(0, 500, 2)]
        assert await notes(journal, B) == [f"note {n}" for n in range(1, 500, 2)]
        assert [e.seq for e in await journal.entries(A, after=10, limit=3)] == [
            11,
            12,
            13,
        ]


async def test_many_waiters_share_commits(path: Path) -> None:
    async with open_journal(path) as journal:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                commit = journal.append(A, [note(number)])
                nursery.start_soon(commit.wait)
        assert len(await notes(journal, A)) == 200


async def test_frames_are_numbered_without_holes_and_dropped_when_acked(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        for number in range(1, 11):
            journal.append(A, [note(number)], [receipt(number)])
        await journal.flushed()
        assert [n for n, _ in await journal.outbound(0)] == list(range(1, 11))
        journal.acked(10)
        await journal.flushed()
    async with open_journal(path) as journal:
        assert await journal.outbound(0) == []
        await journal.send([receipt(11)]).wait()
        ((number, text),) = await journal.outbound(0)
        # An empty queue does not make the numbers begin again.
        assert number == 11
        envelope = decode_envelope(b'{"frames":[%s],"seq":11}' % text)
        assert envelope.frames == (receipt(11),)


async def test_a_receipt_alone_costs_no_commit_and_is_kept_all_the_same(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        for number in range(1, 4):
            journal.send([receipt(number)])
        await journal.flushed()
        journal.acked(2)
        assert journal.acked_number == 0
        await journal.append(A, [note(1)]).wait()
        assert journal.acked_number == 2
        journal.acked(3)
    async with open_journal(path) as journal:
        assert await journal.outbound(0) == []


async def test_frames_are_read_from_the_file_where_memory_has_no_more(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        for number in range(1, 5001):
            journal.send([receipt(number)])
        await journal.flushed()
        read: list[int] = []
        while rows := await journal.outbound(read[-1] if read else 0):
            read.extend(number for number, _ in rows)
        assert read == list(range(1, 5001))


async def test_an_unnumbered_frame_is_refused_at_once(path: Path) -> None:
    async with open_journal(path) as journal:
        with pytest.raises(ValueError, match="SendAsked"):
            journal.append(A, [], [SendAsked(SendId("snd_1"), A)])


async def test_the_mark_of_received_frames_is_kept_and_never_goes_back(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        journal.received(7)
        await journal.received(5).wait()
        assert journal.received_number == 7
    async with open_journal(path) as journal:
        assert journal.received_number == 7


async def test_rebase_renumbers_for_a_server_that_is_new(path: Path) -> None:
    async with open_journal(path) as journal:
        for number in range(1, 6):
            journal.send([receipt(number)])
        journal.acked(2)
        journal.received(9)
        await journal.rebase("srv_2", 0)
        assert [n for n, _ in await journal.outbound(0)] == [1, 2, 3]
        assert (journal.server, journal.received_number) == ("srv_2", 0)
        await journal.rebase("srv_2", 10)
        assert [n for n, _ in await journal.outbound(10)] == [11, 12, 13]
        await journal.send([receipt(6)]).wait()
        assert journal.outbound_number == 14
    async with open_journal(path) as journal:
        assert [n for n, _ in await journal.outbound(0)] == [11, 12, 13, 14]
        assert journal.server == "srv_2"


async def test_settings_and_marks_are_remembered_until_forgotten(path: Path) -> None:
    granted = AgentGranted(A, "demo", "rehearsal", 4, options={"env": {"A": "1"}})
    async with open_journal(path) as journal:
        journal.keep(granted)
        journal.mark("boot", "one")
        await journal.flushed()
    async with open_journal(path) as journal:
        assert await journal.kept() == {A: granted}
        assert await journal.marked("boot") == "one"
        await journal.forget(A).wait()
        assert await journal.kept() == {}


@pytest.mark.bug("B04")
async def test_text_that_is_no_text_is_written_all_the_same(path: Path) -> None:
    event = ToolResult(1, "call", output="half an emoji \ud83d end")
    async with open_journal(path) as journal:
        await journal.append(A, [event]).wait()
        (entry,) = await journal.entries(A)
        assert entry.event == ToolResult(1, "call", output="half an emoji ? end")
        assert journal.damaged(A) == 0


async def test_a_full_queue_refuses_before_anything_is_accepted(path: Path) -> None:
    async with open_journal(path, max_unwritten=2000) as journal:
        journal.append(A, [note(1)])
        with pytest.raises(QueueFull):
            journal.append(A, [RunNotice("x" * 3000)])
        await journal.flushed()
        assert journal.unwritten == 0
        # Alone, even a large one is taken: else it could never be written.
        await journal.append(A, [RunNotice("x" * 3000)]).wait()
        assert await notes(journal, A) == ["note 1", "x" * 3000]


@pytest.mark.bug("B04")
async def test_a_record_that_cannot_be_read_is_set_aside_and_marked(path: Path) -> None:
    async with open_journal(path) as journal:
        await journal.append(A, [note(n) for n in range(1, 6)]).wait()
    with closing(sqlite3.connect(path)) as db:
        db.execute('UPDATE entries SET event = \'{"kind":"no\' WHERE seq = 2')
        db.execute('UPDATE entries SET event = \'{"kind":"run/park"}\' WHERE seq = 4')
        db.commit()
    async with open_journal(path) as journal:
        events = [e.event for e in await journal.entries(A)]
        assert events[0] == note(1)
        assert events[1] == RunNotice("log damaged here", "record 2 was set aside")
        assert events[2] == note(3)
        assert isinstance(events[3], FenceLate)
        assert journal.damaged(A) == 2
        await journal.append(A, [note(6)]).wait()
    async with open_journal(path) as journal:
        # The marker has its place for ever, and nothing is damaged any more.
        assert [e.event for e in await journal.entries(A)] == [*events, note(6)]
        assert journal.damaged(A) == 0
    with closing(sqlite3.connect(path)) as db:
        kept = db.execute("SELECT seq FROM damaged ORDER BY seq").fetchall()
    assert kept == [(2,), (4,)]


async def test_a_failed_group_is_not_there_and_its_agent_is_refused_until_reopened(
    path: Path,
) -> None:
    async with open_journal(path) as journal:
        await journal.append(A, [note(1)], [receipt(1)]).wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            _refuse_writes(other)
            failed = journal.append(A, [note(2)], [receipt(2)])
            mark = journal.received(1)
            with pytest.raises(JournalUnwritable):
                await failed.wait()
            with pytest.raises(JournalUnwritable):
                await mark.wait()
            _allow_writes(other)
        # The disk is well again, but a record is missing from A's log.
        with pytest.raises(JournalUnwritable):
            await journal.append(A, [note(3)], [receipt(3)]).wait()
        with pytest.raises(JournalUnwritable):
            await journal.received(1).wait()
        await journal.append(B, [note(4)], [receipt(4)]).wait()
        journal.reopen(A)
        journal.reset_inbound()
        await journal.append(A, [note(5)], [receipt(5)]).wait()
        await journal.received(1).wait()
        assert await notes(journal, A) == ["note 1", "note 5"]
        assert [n for n, _ in await journal.outbound(0)] == [1, 2, 3]
        assert journal.unwritten == 0


async def test_a_fault_of_our_own_fails_a_group_and_not_the_thread(path: Path) -> None:
    async with open_journal(path) as journal:
        with trio.fail_after(5), pytest.raises(JournalUnwritable):
            await journal.rebase("srv", 2**70)
        await journal.append(A, [note(1)]).wait()


async def test_nothing_is_received_past_a_record_that_is_missing(path: Path) -> None:
    async with open_journal(path) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            _refuse_writes(other)
            with pytest.raises(JournalUnwritable):
                await journal.append(A, [note(1)]).wait()
            _allow_writes(other)
        # The disk is well again and the mark could be written: it would be a lie.
        with pytest.raises(JournalUnwritable):
            await journal.received(1).wait()
        journal.reset_inbound()
        await journal.received(1).wait()


async def test_a_refused_append_takes_the_marks_behind_it_along(path: Path) -> None:
    async with open_journal(path) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            _refuse_writes(other)
            with pytest.raises(JournalUnwritable):
                await journal.append(A, [note(1)]).wait()
            _allow_writes(other)
        journal.reset_inbound()
        # A's old actor does not know yet; what it is told now is not durable either.
        journal.append(A, [note(2)])
        with pytest.raises(JournalUnwritable):
            await journal.received(8).wait()
        assert journal.received_number == 0


async def test_a_watcher_of_a_commit_hears_of_its_fate(path: Path) -> None:
    heard: list[str | None] = []
    async with open_journal(path) as journal:
        commit = journal.append(A, [note(1)])
        commit.when_done(lambda c: heard.append(c.error))
        await commit.wait()
        commit.when_done(lambda c: heard.append(c.error))
        assert heard == [None, None]
        assert (commit.seq, commit.frame) == (1, 0)


async def test_a_closing_journal_writes_what_is_waiting(path: Path) -> None:
    async with open_journal(path) as journal:
        for number in range(100):
            journal.append(A, [note(number)])
    async with open_journal(path) as journal:
        assert len(await notes(journal, A)) == 100


async def test_a_cancelled_owner_closes_the_journal_all_the_same(path: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_journal(path) as journal:
            journal.append(A, [note(1)])
            scope.cancel()
    async with open_journal(path) as journal:
        assert await notes(journal, A) == ["note 1"]


async def test_a_delivery_report_and_its_record_are_one_transaction(path: Path) -> None:
    changed = DeliveryChanged(DeliveryId("dlv_1"), DeliveryState.accepted)
    async with open_journal(path) as journal:
        commit = journal.append(A, [changed], [receipt(1)])
        await commit.wait()
        assert (journal.last(A), journal.outbound_number) == (1, 1)


def _refuse_writes(db: sqlite3.Connection) -> None:
    """Make every insert fail, the way a full disk does: in the transaction."""
    for table in ("entries", "outbound", "marks"):
        db.execute(
            f"CREATE TRIGGER no_{table} BEFORE INSERT ON {table}"
            " BEGIN SELECT raise(ABORT, 'no space left on device'); END"
        )


def _allow_writes(db: sqlite3.Connection) -> None:
    for table in ("entries", "outbound", "marks"):
        db.execute(f"DROP TRIGGER no_{table}")
