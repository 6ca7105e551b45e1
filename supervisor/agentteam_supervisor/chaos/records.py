"""Reads the runtime's own record: the session files of the scripted runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agentteam_supervisor.chaos.observations import Read

if TYPE_CHECKING:
    from pathlib import Path


def read_records(state: Path) -> list[Read]:
    """List every entry that a runtime took into its history, as often as it did."""
    return [
        read
        for file in sorted(state.glob("sessions/*/*.jsonl"))
        for read in _read_file(file)
    ]


def _read_file(path: Path) -> list[Read]:
    reads: list[Read] = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the torn tail of a process that was killed
        match entry:
            case {"surfaced": str(key)}:
                delivery, _, attempt = key.rpartition(".")
                reads.append(Read(path.parent.name, delivery, int(attempt)))
            case _:
                pass
    return reads
