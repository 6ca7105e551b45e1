"""`agentteam.toml`: agents that a state directory declares, checked before a start."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, cast

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "agentteam.toml"

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
}


def declared_agents(directory: Path) -> list[dict[str, Any]]:
    """Read the `[[agents]]` of the file; an unknown key or a wrong type is refused."""
    path = directory / FILE
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as exc:
        raise _fault(path, say(f"cannot be read: {exc}", f"无法读取：{exc}")) from exc
    _check_keys(path, FILE, data, {"agents": list})
    agents = cast("list[Any]", data.get("agents", []))
    for number, agent in enumerate(agents, 1):
        _check_agent(path, f"agents[{number}]", agent)
    return agents


def _check_agent(path: Path, where: str, agent: Any) -> None:
    if not isinstance(agent, dict):
        raise _fault(path, say(f"{where} is not a table", f"{where} 不是表"))
    table = cast("dict[str, Any]", agent)
    _check_keys(path, where, table, AGENT_KEYS)
    for key in ("name", "runtime"):
        if key not in table:
            raise _fault(path, say(f"{where} lacks {key}", f"{where} 缺少 {key}"))
    _check_keys(path, f"{where}.options", table.get("options", {}), OPTION_KEYS)


def _check_keys(
    path: Path, where: str, table: Mapping[str, Any], known: Mapping[str, type]
) -> None:
    for key, value in table.items():
        if key not in known:
            names = ", ".join(known)
            raise _fault(
                path,
                say(
                    f"{where} has an unknown key {key!r}; known are {names}",
                    f"{where} 有未知的键 {key!r}；可用的键：{names}",
                ),
            )
        if type(value) is not known[key]:
            kind = known[key].__name__
            raise _fault(
                path,
                say(
                    f"{where}.{key} must be a {kind}",
                    f"{where}.{key} 的类型应为 {kind}",
                ),
            )


def _fault(path: Path, problem: str) -> CommandFailed:
    return CommandFailed(
        f"{path}: {problem}"
        + say("; correct the file and start again", "；请修正后重新启动")
    )
