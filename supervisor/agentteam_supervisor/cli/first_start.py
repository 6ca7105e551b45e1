"""Agents that exist without anybody adding them: `demo`, and the declared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    for agent in declared:
        if agent["name"] not in there:
            client.post("/api/agents", agent)
            there.add(agent["name"])
    mark = directory / MARK
    if not mark.exists():
        if DEMO["name"] not in there:
            client.post("/api/agents", DEMO)
        mark.touch()
