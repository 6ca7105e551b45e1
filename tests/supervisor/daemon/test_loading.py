"""What a restart of the supervisor remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from agentteam_protocol.ids import AgentId
from agentteam_supervisor.daemon.loading import Pacer
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
