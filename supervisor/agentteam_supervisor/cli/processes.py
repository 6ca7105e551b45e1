"""Which process holds a state directory, and how it is asked to leave."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil

from agentteam_supervisor.cli.state_dir import ROLES, holder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOK = 0.05


def holders(directory: Path) -> list[psutil.Process]:
    """
    Find the processes that hold the locks of this directory.

    A lock is held by a living process, so a pid of it cannot be somebody else's; a
    process that leaves between the look and the call counts as gone.
    """
    pids = {pid for role in ROLES if (pid := holder(directory, role))}
    found: list[psutil.Process] = []
    for pid in sorted(pids):
        try:
            found.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    return found


def ask_to_leave(
    processes: Sequence[psutil.Process], seconds: float
) -> list[psutil.Process]:
    """
    Send SIGTERM to each, and wait until they and all their children are gone.

    Returns who is still alive when the time is up; nothing is killed here, because
    a supervisor that is killed cannot settle what its agents were doing.
    """
    everybody = [*processes, *(child for p in processes for child in _children(p))]
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + seconds
    while (
        alive := [p for p in everybody if _alive(p)]
    ) and time.monotonic() < deadline:
        time.sleep(LOOK)
    return alive


def _alive(process: psutil.Process) -> bool:
    """One that has ended and waits for its parent to notice is gone."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
