"""
Row 11: from the start of the daemon to the last session that takes input.

Read, fold, repair, begin the epoch durably, run the session; the floor reads and
structures the very same rows and does nothing with them.
"""

# ruff: noqa: ASYNC110, ASYNC240 - a seat tells nobody; the rest is not timed
from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import trio
from attrs import evolve
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import make_ports

from agentteam_protocol.codec import decode_event
from agentteam_protocol.delivery import DeliveryState, Evidence
from agentteam_protocol.frames import AgentGranted
from agentteam_protocol.ids import AgentId, Generation, RunId
from agentteam_protocol.journal import (
    AssistantMessage,
    DeliveryChanged,
    FrontierMoved,
    InboxSpliced,
    ItemsInFlight,
    JournalEvent,
    SpliceReason,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnOutcome,
    TurnStart,
    UserMessage,
)
from agentteam_supervisor.daemon.loading import load_all
from agentteam_supervisor.daemon.roster import Roster
from agentteam_supervisor.journal.log import Journal, open_journal
from agentteam_supervisor.journal.records import encode
from agentteam_supervisor.session.actor import SessionActor
from bench.measure import Bounds, Goal, Line, Samples, Scale, alternate, compare, spread
from bench.session import make_item

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentteam_supervisor.daemon.loading import Reporter
    from agentteam_supervisor.daemon.seat import Actor
    from agentteam_supervisor.session.state import Session

TURNS = 2
AT = "2026-11-30T00:00:00.000Z"


async def row_11(scale: Scale, place: Path) -> list[Line]:
    lines = [
        await _restart(scale, place / f"{sessions}", sessions)
        for sessions in ((100, 1000, 10_000) if not scale.quick else (5, 20))
    ]
    few, many = lines[-2:]
    growth = many.ours.p50 / few.ours.p50
    times = int(many.notes[0].split()[0]) / int(few.notes[0].split()[0])
    linear = Goal(f"{times:g} times as many: {1.1 * times:g}x", growth, 1.1 * times)
    return [*lines[:-1], _with_goal(many, linear)]


def _with_goal(line: Line, goal: Goal) -> Line:
    return evolve(line, goals=(*line.goals, goal))


async def _restart(scale: Scale, place: Path, sessions: int) -> Line:
    place.mkdir()
    path = place / "journal.db"
    async with open_journal(path):
        pass
    rows = _fill(path, sessions)
    rounds = 1 if scale.quick or sessions >= 10_000 else scale.rounds
    scale = Scale(rounds, quick=scale.quick or sessions >= 10_000)

    def floor() -> Samples:
        gc.collect()
        began = perf_counter()
        count = _read(path)
        seconds = perf_counter() - began
        assert count >= rows, f"{count} of {rows} rows"
        return [seconds * 1e3]

    async def ours() -> Samples:
        gc.collect()
        began = perf_counter()
        taken: Samples = []
        await _come_up(path, sessions, began, taken)
        _trim(path)
        return taken

    found = await alternate(scale, floor, ours, warm=False)
    return compare(
        "11",
        f"restart, {sessions} sessions",
        "ms",
        found,
        Bounds(p50=2),
        floor_is="sqlite3 reads the same rows, cattrs structures them",
        notes=[
            f"{sessions} sessions, {rows} rows; every session is as it was (checked);"
            f" {rounds} rounds, {spread(found.ours).p50 / sessions:.2f} ms a session"
        ],
    )


def _fill(path: Path, sessions: int) -> int:
    """Write the journal of sessions that have each run some turns."""
    with closing(sqlite3.connect(path)) as db, db:
        rows = 0
        for number in range(sessions):
            agent = AgentId(f"agt_{number}")
            granted = AgentGranted(agent, f"a{number}", "fake", 1)
            db.execute("INSERT INTO agents VALUES (?, ?)", (agent, encode(granted)))
            told = [
                (agent, seq, AT, encode(event))
                for seq, event in enumerate(_history(agent), 1)
            ]
            db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?)", told)
            rows += len(told)
    return rows


def _history(agent: AgentId) -> Iterator[JournalEvent]:
    gen = Generation(1, 1)
    for turn in range(1, TURNS + 1):
        item = make_item("Please look at this.")
        assert item.delivery is not None
        assert item.target is not None
        changed = partial(DeliveryChanged, item.delivery, attempt=1, gen=gen)
        yield InboxSpliced(SpliceReason.accepted, added=(item,))
        yield TurnStart(turn, RunId(f"run_{agent}_1_{turn}"), gen)
        yield InboxSpliced(SpliceReason.claimed, (item.id,))
        yield ItemsInFlight(added=(item,))
        yield StepStart(turn, 1)
        yield changed(state=DeliveryState.accepted)
        yield UserMessage(turn, item.id, item.body, item.delivery, item.message)
        yield changed(state=DeliveryState.surfaced, evidence=Evidence("bench"))
        yield FrontierMoved(item.target, (item.seq or 0,))
        yield ItemsInFlight(removed=(item.id,))
        yield AssistantMessage(turn, "I have looked at it, and it is as you say.")
        yield StepEnd(turn, 1)
        yield TurnEnd(turn, TurnOutcome.completed)


def _read(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT agent, seq, event FROM entries ORDER BY agent, seq")
        return sum(1 for _, _, event in rows if decode_event(event) is not None)


async def _come_up(path: Path, sessions: int, began: float, taken: Samples) -> None:
    """Do what the daemon does, without a server and without runtimes to start."""
    async with open_journal(path) as journal:
        loaded = await load_all(journal)
        up: list[SessionActor] = []
        make = partial(_make_actor, journal, up)
        roster = Roster(journal, make, lambda _: None, loaded=loaded)
        async with trio.open_nursery() as nursery:
            await nursery.start(roster.run)
            kept = await journal.kept()
            assert len(kept) == sessions
            for granted in kept.values():
                roster.handle(granted, lambda: None)
            for agent in kept:
                await _is_seated(roster, agent)
            taken.append((perf_counter() - began) * 1e3)
            for actor in up:
                ledger = actor.session.ledger
                assert ledger.turns == TURNS
                assert len(ledger.deliveries) == TURNS
                assert ledger.turn is None
                assert not ledger.in_flight
            nursery.cancel_scope.cancel()


async def _is_seated(roster: Roster, agent: AgentId) -> None:
    with trio.fail_after(300):
        while (seat := roster.seat(agent)) is None or seat.actor is None:
            await trio.sleep(0.001)


def _make_actor(
    journal: Journal,
    up: list[SessionActor],
    granted: AgentGranted,
    session: Session,
    reporter: Reporter,
) -> Actor:
    ports = make_ports(
        FakeDriver(), MemoryJournal(), granted.agent, report=reporter.take
    )
    ports = evolve(ports, journal=journal)
    actor = SessionActor(session, ports)
    up.append(actor)
    return actor


def _trim(path: Path) -> None:
    """Take out what the restart wrote, so that each round reads the same rows."""
    kept = 13 * TURNS
    with closing(sqlite3.connect(path)) as db:
        with db:
            db.execute("DELETE FROM entries WHERE seq > ?", (kept,))
            db.execute("DELETE FROM outbound")
            db.execute("DELETE FROM marks")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
