"""The journal's file: damaged, empty, foreign, of another version."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agentteam_protocol.errors import JournalUnwritable
from agentteam_protocol.frames import DeliveryReceived
from agentteam_protocol.ids import AgentId, DeliveryId
from agentteam_protocol.journal import RunNotice
from agentteam_supervisor.journal.log import open_journal
from agentteam_supervisor.journal.schema import JournalVersion

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = [AgentId(f"agt_{n}") for n in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite3"


async def fill(path: Path, count: int = 400) -> None:
    async with open_journal(path) as journal:
        for number in range(count):
            frame = DeliveryReceived(DeliveryId(f"dlv_{number}"))
            text = f"{number} " + "x" * 200
            journal.append(AGENTS[number % 5], [RunNotice(text)], [frame])
        journal.received(5)
        await journal.flushed()


@pytest.mark.bug("B04")
async def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    write(path, b"")
    async with open_journal(path) as journal:
        assert journal.salvage is None
        await journal.append(AGENTS[0], [RunNotice("a")]).wait()


@pytest.mark.bug("B04")
@pytest.mark.parametrize("cut", [1000, 4096, 50_000])
async def test_a_torn_file_is_moved_aside_by_name_and_the_start_goes_on(
    path: Path, cut: int
) -> None:
    await fill(path)
    size = size_of(path)
    assert size > 100_000
    os.truncate(path, size - cut)
    async with open_journal(path) as journal:
        await journal.append(AGENTS[0], [RunNotice("after")]).wait()
        assert journal.salvage is not None
        assert size_of(journal.salvage.moved_to) == size - cut
        assert journal.salvage.problem
    async with open_journal(path) as journal:
        assert journal.salvage is None
        assert (await journal.entries(AGENTS[0], limit=1000))[-1].event == RunNotice(
            "after"
        )


@pytest.mark.bug("B04")
async def test_a_spoilt_page_costs_no_other_agents_log(path: Path) -> None:
    await fill(path, 2000)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # A page in the middle: some agent's entries or the outbound frames.
    spoil(path, size_of(path) // 2 // 4096 * 4096)
    async with open_journal(path) as journal:
        assert journal.salvage is not None
        assert journal.salvage.entries >= 1200
        words = journal.salvage.words()
        assert f"{journal.salvage.entries} records of" in words
        assert str(journal.salvage.moved_to) in words
        assert "Salvage(" not in words
        whole = 0
        for agent in AGENTS:
            whole += len(await journal.entries(agent, limit=1000)) == 400
        assert whole >= 3


@pytest.mark.bug("B04")
async def test_garbage_is_moved_aside(path: Path) -> None:
    write(path, os.urandom(20_000))
    async with open_journal(path) as journal:
        assert journal.salvage is not None
        assert size_of(journal.salvage.moved_to) == 20_000
        assert journal.agents() == frozenset()


async def test_a_strangers_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
        db.commit()
    with pytest.raises(JournalVersion, match="not a journal"):
        async with open_journal(path):
            pass


async def test_a_newer_journal_is_refused_with_what_to_do(path: Path) -> None:
    await fill(path, 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalVersion, match=r"version 99.*use the program"):
        async with open_journal(path):
            pass


async def test_a_path_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path  # a directory
    with pytest.raises(JournalUnwritable, match="cannot open the journal"):
        async with open_journal(path):
            pass


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def size_of(path: Path) -> int:
    return path.stat().st_size


def spoil(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * 4096)
