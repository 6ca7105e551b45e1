"""Agents that exist without anybody adding them: `demo`, and the declared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from agentteam_supervisor.cli.client import Client

DEMO = {"name": "demo", "runtime": "rehearsal"}

# It stays: who removes `demo` does not want it back at the next start.
MARK = "demo-made"


def make_agents(
    client: Client, directory: Path, declared: Iterable[Mapping[str, Any]]
) -> None:
    """Create what is missing; an agent that is there keeps its settings."""
    agents = client.get("/api/agents", limit=1000)["agents"]
    there = {agent["name"] for agent in agents}
    for number, agent in enumerate(declared, 1):
        if agent["name"] not in there:
            _declare(client, directory, number, agent)
            there.add(agent["name"])
    mark = directory / MARK
    if not mark.exists():
        if DEMO["name"] not in there:
            client.post("/api/agents", DEMO)
        mark.touch()


def _declare(
    client: Client, directory: Path, number: int, agent: Mapping[str, Any]
) -> None:
    """Create it; what the server refuses is told with its place in the file."""
    try:
        client.post("/api/agents", agent)
    except CommandFailed as refused:
        if not refused.problem:
            raise
        where, key = f"agents[{number}]", refused.problem.get("field")
        settings = read_settings(directory)
        raise settings.fault(f"{where}: {refused.message}", where, key) from refused
