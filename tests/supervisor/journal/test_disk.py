"""The journal on a disk that is full, and under a process that is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agentteam_protocol.codec import decode_event
from agentteam_protocol.ids import AgentId
from agentteam_protocol.journal import RunNotice
from agentteam_supervisor.journal.log import open_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

A = AgentId("agt_a")

LIMITED = """
import resource, sys, trio
from pathlib import Path
from agentteam_protocol.errors import JournalUnwritable
from agentteam_protocol.frames import DeliveryReceived
from agentteam_protocol.ids import AgentId, DeliveryId
from agentteam_protocol.journal import RunNotice
from agentteam_supervisor.journal.log import open_journal

A = AgentId("agt_a")
HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

async def main():
    async with open_journal(Path(sys.argv[1])) as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), HARD))
        acked = number = 0
        try:
            while number < 5000:
                frame = DeliveryReceived(DeliveryId(f"dlv_{number}"))
                text = f"{number} " + "x" * 3000
                await journal.append(A, [RunNotice(text)], [frame]).wait()
                acked = number = number + 1
        except JournalUnwritable as exc:
            print("full", acked, exc)
        try:
            await journal.append(A, [RunNotice("refused")]).wait()
        except JournalUnwritable:
            print("refused")
        resource.setrlimit(resource.RLIMIT_FSIZE, (HARD, HARD))
        journal.reopen(A)
        try:
            await journal.append(A, [RunNotice("after")]).wait()
            print("after")
        except JournalUnwritable:
            print("full")

trio.run(main)
"""

KILLED = """
import sys, trio
from pathlib import Path
from agentteam_protocol.frames import DeliveryReceived
from agentteam_protocol.ids import AgentId, DeliveryId
from agentteam_protocol.journal import RunNotice
from agentteam_supervisor.journal.log import open_journal

async def main():
    async with open_journal(Path(sys.argv[1])) as journal:
        async def one(agent):
            number = 0
            while True:
                number += 1
                event = RunNotice(f"{sys.argv[2]}-{number}")
                frame = DeliveryReceived(DeliveryId("dlv_1"))
                await journal.append(AgentId(agent), [event], [frame]).wait()
                sys.stdout.write(f"{agent} {event.text}\\n")
                sys.stdout.flush()
        async with trio.open_nursery() as nursery:
            for agent in "abcdefgh":
                nursery.start_soon(one, agent)

trio.run(main)
"""


@pytest.mark.bug("B04")
@pytest.mark.parametrize("limit", [100_000, 1_000_001, 6_000_007])
async def test_a_full_disk_loses_only_what_was_not_acknowledged(
    tmp_path: Path, limit: int
) -> None:
    path = tmp_path / "journal.sqlite3"
    child = run(LIMITED, path, str(limit))
    assert child.returncode == 0, child.stderr
    full, refused, after = child.stdout.splitlines()
    acked = int(full.split()[1])
    assert "is not writable" in full
    assert (refused, after) == ("refused", "after")
    async with open_journal(path) as journal:
        assert journal.salvage is None
        entries = await journal.entries(A, limit=10_000)
        texts = [e.event.text for e in entries if isinstance(e.event, RunNotice)]
        # No record is fused with another, none has a hole before it.
        assert [e.seq for e in entries] == list(range(1, acked + 2))
        assert texts == [*(f"{n} " + "x" * 3000 for n in range(acked)), "after"]
        rows = await journal.outbound(0, limit=10_000)
        assert [n for n, _ in rows] == list(range(1, acked + 1))
        assert journal.damaged(A) == 0


@pytest.fixture
def small_device(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a tmpfs: {mounted.stderr!r}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.bug("B04")
async def test_a_full_device_is_said_and_the_log_stays_whole(
    small_device: Path,
) -> None:
    path = small_device / "journal.sqlite3"
    child = run(LIMITED, path, "-1")
    assert child.returncode == 0, child.stderr
    full, _, after = child.stdout.splitlines()
    assert "is not writable" in full
    expected = int(full.split()[1]) + (after == "after")
    async with open_journal(path) as journal:
        entries = await journal.entries(A, limit=10_000)
        assert [e.seq for e in entries] == list(range(1, expected + 1))
        assert journal.damaged(A) == 0


@pytest.mark.bug("B04")
async def test_every_acknowledged_append_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    acked: list[str] = []
    for life in range(8):
        acked += killed(path, life, after=30 + 40 * life)
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT agent, seq, event FROM entries ORDER BY agent, seq")
        found = [(agent, seq, decode_event(event)) for agent, seq, event in rows]
        numbers = [n for (n,) in db.execute("SELECT seq FROM outbound ORDER BY seq")]
    texts = {f"{agent} {e.text}" for agent, _, e in found if isinstance(e, RunNotice)}
    assert len(acked) > 500
    assert set(acked) <= texts
    for agent in "abcdefgh":
        seqs = [seq for name, seq, _ in found if name == agent]
        assert seqs == list(range(1, len(seqs) + 1))
    assert numbers == list(range(1, len(found) + 1))
    async with open_journal(path) as journal:
        assert journal.salvage is None


def killed(path: Path, life: int, after: int) -> list[str]:
    """Run a writer, kill it in the middle of a line; give what it acknowledged."""
    command = [sys.executable, "-c", KILLED, str(path), str(life)]
    pipe = subprocess.PIPE
    # A plain child of the test: it is to be killed, not contained.
    with subprocess.Popen(command, stdout=pipe, text=True) as child:  # noqa: TID251
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(after)]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
    return [line.strip() for line in lines if line.endswith("\n")]


def run(program: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-B",
        "-c",
        textwrap.dedent(program),
        str(path),
        *arguments,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
