"""What a dead warden left to the daemon is reaped by it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import psutil
import pytest
import trio
from tests.kit.server import open_server

from agentteam_runtimes.orphans import ensure_subreaper
from agentteam_supervisor.daemon.app import run_daemon
from agentteam_supervisor.daemon.config import DaemonConfig

if TYPE_CHECKING:
    from pathlib import Path

LEAVES_A_CHILD = "setsid sleep 0.2 >/dev/null & echo $!"

pytestmark = pytest.mark.slow


def leave_a_child() -> psutil.Process:
    """Have a process of another session fall to this one."""
    told = subprocess.run(
        ["setsid", "sh", "-c", LEAVES_A_CHILD],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return psutil.Process(int(told.stdout))


@pytest.mark.bug("B01")
async def test_a_process_that_fell_to_the_daemon_leaves_no_zombie(
    tmp_path: Path,
) -> None:
    if not ensure_subreaper():
        pytest.skip("this system has no subreaper")
    async with (
        open_server(tmp_path / "server") as server,
        trio.open_nursery() as nursery,
    ):
        url = f"http://127.0.0.1:{server.port}"
        await nursery.start(run_daemon, DaemonConfig(tmp_path / "daemon"), url)
        child = leave_a_child()
        assert child.ppid() == psutil.Process().pid
        with trio.fail_after(10):
            while child.is_running():  # noqa: ASYNC110 - a zombie tells nobody
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
