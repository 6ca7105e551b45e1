"""Agents that a state directory declares, checked before a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from agentteam_supervisor.cli.settings import Settings

# The keys of `POST /api/agents` and of an agent's `options`, with their TOML types.
AGENT_KEYS: dict[str, type] = {
    "name": str,
    "runtime": str,
    "workdir": str,
    "model": str,
    "approvalPolicy": str,
    "autoReply": bool,
    "options": dict,
}
OPTION_KEYS: dict[str, type] = {
    "bin": str,
    "env": dict,
    "home": str,
    "config": dict,
    "args": list,
    "resume": str,
}


def declared_agents(settings: Settings) -> list[dict[str, Any]]:
    """Give the `[[agents]]`; an unknown key or a wrong type is refused."""
    agents = cast("list[Any]", settings.tables.get("agents", []))
    for number, agent in enumerate(agents, 1):
        _check_agent(settings, f"agents[{number}]", agent)
    return agents


def _check_agent(settings: Settings, where: str, agent: Any) -> None:
    if not isinstance(agent, dict):
        raise settings.fault(say(f"{where} is not a table", f"{where} 不是表"))
    table = cast("dict[str, Any]", agent)
    settings.check_keys(where, table, AGENT_KEYS)
    for key in ("name", "runtime"):
        if key not in table:
            raise settings.fault(say(f"{where} lacks {key}", f"{where} 缺少 {key}"))
    settings.check_keys(f"{where}.options", table.get("options", {}), OPTION_KEYS)
