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
    "command": list,
    "env": dict,
    "home": str,
    "config": dict,
    "args": list,
    "resume": str,
}


def declared_agents(settings: Settings) -> list[dict[str, Any]]:
    """Give the `[[agents]]`; an unknown key or a wrong type is refused."""
    agents = cast("list[Any]", settings.tables.get("agents", []))
    there: dict[str, int] = {}
    for number, agent in enumerate(agents, 1):
        where = f"agents[{number}]"
        _check_agent(settings, where, agent)
        first = there.setdefault(agent["name"], number)
        if first != number:
            raise settings.fault(_twice(agent["name"], where, first), where, "name")
    return agents


def _twice(name: str, where: str, first: int) -> str:
    return say(
        f"{where} is called {name!r}, as agents[{first}] is; each needs a name of its"
        " own",
        f"{where} 与 agents[{first}] 同名（{name!r}）；每个 agent 的名称必须唯一",
    )


def _check_agent(settings: Settings, where: str, agent: Any) -> None:
    if not isinstance(agent, dict):
        words = say(f"{where} is not a table", f"{where} 不是表")
        raise settings.fault(words, where)
    table = cast("dict[str, Any]", agent)
    settings.check_keys(where, table, AGENT_KEYS)
    for key in ("name", "runtime"):
        if key not in table:
            words = say(f"{where} lacks {key}", f"{where} 缺少 {key}")
            raise settings.fault(words, where)
    settings.check_keys(f"{where}.options", table.get("options", {}), OPTION_KEYS)
