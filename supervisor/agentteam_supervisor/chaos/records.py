"""Reads the runtime's own record: the session files of the scripted runtime."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agentteam_supervisor.chaos.observations import Read, ToolShowed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

# How agents are given a message by a tool: `[@target number from author] body`.
_GIVEN = re.compile(r"^\[([@#]\S+) (\d+) from ", re.MULTILINE)


def read_records(state: Path) -> list[Read]:
    """List every entry that a runtime took into its history, as often as it did."""
    reads: list[Read] = []
    for agent, line in _lines(state):
        match line:
            case {"surfaced": str(key)}:
                delivery, _, attempt = key.rpartition(".")
                reads.append(Read(agent, delivery, int(attempt)))
            case _:
                pass
    return reads


def read_tools(state: Path) -> list[ToolShowed]:
    """List every message that a tool's answer showed to an agent."""
    return [
        ToolShowed(agent, name, int(seq), _written(line["at"]))
        for agent, line in _lines(state)
        if "shown" in line
        for name, seq in _GIVEN.findall(line["shown"])
    ]


def _written(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _lines(state: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(state.glob("sessions/*/*.jsonl")):
        for line in file.read_bytes().split(b"\n"):
            try:
                yield file.parent.name, json.loads(line)
            except ValueError:
                continue  # the torn tail of a process that was killed
