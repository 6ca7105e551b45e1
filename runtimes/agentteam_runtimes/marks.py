"""
The mark by which all that one supervisor started is found by the next.

It stands in the environment of each runtime, and so of whatever that starts. The
record of a start may be missing, when the disk was full or the supervisor was killed
before it wrote it, and says nothing of sessions that a tool began; the mark is there
before the first of these processes is. Only who clears its environment has none.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import TYPE_CHECKING

from agentteam_runtimes.process_table import LINUX

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentteam_runtimes import process_table

VARIABLE = "AGENTTEAM_HELD_BY"

# Of a task and those below it: a program may hold more than one directory.
_mark: ContextVar[str] = ContextVar("mark", default="")


def hold(directory: Path) -> str:
    """
    Mark what is started from now on by this task; gives the mark.

    Only who owns the directory may say so. A copy of it, or another one of the same
    name in a container, is another directory.
    """
    status = directory.stat()
    mark = f"{status.st_dev:x}.{status.st_ino:x}:{directory.resolve()}"
    _mark.set(mark)
    return mark


def marked(environment: Mapping[str, str]) -> dict[str, str]:
    """Add the mark, if there is one."""
    mark = _mark.get()
    return {**environment, VARIABLE: mark} if mark else dict(environment)


def carriers(entry: str) -> set[int]:
    """Find who has this entry, `NAME=value`, in its environment."""
    if not LINUX:
        return set()
    wanted = entry.encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid for pid in pids if wanted in _read_environment(pid)}


def _read_environment(pid: int) -> list[bytes]:
    # A part of every start: this way it is 20 microseconds for a process.
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY)
    except OSError:
        return []
    try:
        parts: list[bytes] = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts).split(b"\0")
    except OSError:
        return []
    finally:
        os.close(fd)


def forebears(table: list[process_table.Process]) -> set[int]:
    """
    Name this process and those above it.

    A supervisor may be started anew by a tool of the one before.
    """
    parents = {p.pid: p.ppid for p in table}
    pid, found = os.getpid(), set[int]()
    while pid and pid not in found:
        found.add(pid)
        pid = parents.get(pid, 0)
    return found
