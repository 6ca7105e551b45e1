"""The processes of a driver, found from outside: by a mark, and by what they wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from agentteam_runtimes.process_table import Process, read_process, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "AGENTTEAM_CONFORMANCE"

# Shell programs of the kit: each writes its process id to the file named first.
SLEEPER = 'echo $$ >"$1.new" && mv "$1.new" "$1"; exec sleep 300\n'
DEAF = (
    "trap '' TERM HUP INT\n"
    'echo $$ >"$1.new" && mv "$1.new" "$1"\n'
    "while :; do sleep 1; done\n"
)


def marked(mark: str) -> list[Process]:
    """Find what runs with our mark in its environment, wherever it hangs."""
    wanted = f"{MARK}={mark}".encode()
    return [p for p in read_table() if p.alive and wanted in _environment(p.pid)]


def living(processes: Iterable[Process]) -> list[Process]:
    """Keep those that are still there and run."""
    return [p for p in processes if (now := read_process(p.pid)) and _same(p, now)]


async def gone(processes: list[Process], within: float) -> list[Process]:
    """Wait until these have ended; returns those that have not."""
    with trio.move_on_after(within):
        while living(processes):  # noqa: ASYNC110 - the kernel sets no event
            await trio.sleep(0.02)
    return living(processes)


def read_pid(file: Path) -> Process | None:
    """Find the process that wrote its id into the file; None before it has."""
    try:
        return read_process(int(file.read_text()))
    except (OSError, ValueError):
        return None


def shown(processes: Iterable[Process]) -> str:
    return ", ".join(f"{p.name} ({p.pid})" for p in processes)


def kill(process: Process) -> None:
    """Kill it as a crash would, if it still is the one we mean."""
    if living([process]):
        os.kill(process.pid, 9)


def _same(before: Process, now: Process) -> bool:
    return now.ticks == before.ticks and now.alive


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
