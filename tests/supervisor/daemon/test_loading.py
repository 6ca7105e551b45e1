"""What a restart of the supervisor remembers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.frames import AgentGranted
from agentteam_protocol.ids import AgentId, Generation, RunId
from agentteam_protocol.journal import RunParked, TurnEnd, TurnOutcome, TurnStart
from agentteam_supervisor.daemon.loading import PAGE, SHELF, Pacer, load, load_all
from agentteam_supervisor.daemon.restarts import Intensity
from agentteam_supervisor.journal.log import open_journal

if TYPE_CHECKING:
    from pathlib import Path

A = AgentId("agt_a")
INTENSITY = Intensity(failures=3, first=1.0, cap=10.0, healthy=600.0)


@pytest.mark.bug("B11")
async def test_a_restart_gives_a_crash_loop_no_fresh_budget(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    async with open_journal(path) as journal:
        pacer = Pacer(journal, A, INTENSITY)
        await pacer.remember()
        now = trio.current_time()
        assert [pacer(now), pacer(now)] == [1.0, 2.0]
    async with open_journal(path) as journal:
        pacer = Pacer(journal, A, INTENSITY)
        await pacer.remember()
        now = trio.current_time()
        assert [pacer(now), pacer(now)] == [4.0, None]
        other = Pacer(journal, AgentId("agt_b"), INTENSITY)
        await other.remember()
        assert other(now) == 1.0


async def test_what_was_remembered_and_cannot_be_read_is_no_failure(
    tmp_path: Path,
) -> None:
    async with open_journal(tmp_path / "journal.sqlite3") as journal:
        await journal.mark(f"failures/{A}", '{"nonsense": [').wait()
        pacer = Pacer(journal, A, INTENSITY)
        await pacer.remember()
        assert pacer(trio.current_time()) == 1.0


def agent_of(number: int) -> AgentId:
    return AgentId(f"agt_{number}")


async def test_every_kept_agent_is_loaded_as_if_it_were_the_only_one(
    tmp_path: Path,
) -> None:
    lengths = [3, 0, PAGE - 2, 2, PAGE + 7, 1, PAGE, *([1] * (SHELF + 3)), 2 * PAGE]
    path = tmp_path / "journal.sqlite3"
    async with open_journal(path) as journal:
        for number, length in enumerate(lengths):
            agent = agent_of(number)
            journal.keep(AgentGranted(agent, f"a{number}", "fake", 1))
            journal.append(agent, [RunParked(n) for n in range(1, length + 1)])
        journal.append(AgentId("agt_gone"), [RunParked(1)])
        journal.keep(AgentGranted(AgentId("agt_gone"), "gone", "fake", 1))
        await journal.forget(AgentId("agt_gone")).wait()
    async with open_journal(path) as journal:
        loaded = await load_all(journal)
        assert set(loaded) == {agent_of(n) for n in range(len(lengths))}
        parks = [loaded[agent_of(n)].ledger.park for n in range(len(lengths))]
        assert [park or 0 for park in parks] == lengths
        for agent, reporter in loaded.items():
            alone = await load(journal, agent)
            assert reporter.reporting == alone.reporting


@pytest.mark.bug("B04")
async def test_a_damaged_record_of_one_agent_costs_no_other_its_log(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.sqlite3"
    gen = Generation(1, 1)
    async with open_journal(path) as journal:
        for number in range(3):
            turn = TurnStart(1, RunId(f"run_{number}"), gen)
            journal.keep(AgentGranted(agent_of(number), f"a{number}", "fake", 1))
            ended = TurnEnd(1, TurnOutcome.completed)
            await journal.append(agent_of(number), [turn, ended]).wait()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET event = 'x' WHERE agent = 'agt_1' AND seq = 2")
    async with open_journal(path) as journal:
        loaded = await load_all(journal)
        assert [loaded[agent_of(n)].damaged for n in range(3)] == [0, 1, 0]
        turns = [loaded[agent_of(n)].ledger.turn for n in range(3)]
        assert [turn is None for turn in turns] == [True, False, True]
