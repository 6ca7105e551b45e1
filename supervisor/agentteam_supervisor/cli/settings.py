"""`agentteam.toml` in the state directory: read whole, and refused with its place."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from agentteam_supervisor.cli.failure import CommandFailed
from agentteam_supervisor.cli.speech import say
from agentteam_supervisor.cli.toml_place import line_of

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE = "agentteam.toml"
# As people call them.
_KINDS: dict[type, str] = {
    str: "string (in quotes)",
    bool: "boolean (true or false)",
    list: "list",
    dict: "table",
}
TABLES: dict[str, type] = {"agents": list, "limits": dict}


@frozen
class Settings:
    """The file and what stands in it; whoever takes a table checks it."""

    path: Path
    tables: Mapping[str, Any]
    text: str = ""

    def check_keys(
        self, where: str, table: Mapping[str, Any], known: Mapping[str, type]
    ) -> None:
        """Refuse an unknown key or a wrong type."""
        self.check_names(where, table, known)
        for key, value in table.items():
            if type(value) is not known[key]:
                kind = _KINDS[known[key]]
                raise self.fault(_mistyped(where, key, kind), where, key)

    def check_names(
        self, where: str, table: Iterable[str], known: Iterable[str]
    ) -> None:
        for key in table:
            if key not in known:
                words = _unknown(where, key, ", ".join(known))
                raise self.fault(words, where, key)

    def fault(
        self, problem: str, where: str = "", key: str | None = None
    ) -> CommandFailed:
        """Make the sentence that a start ends with; it begins with file and line."""
        at = line_of(self.text, "" if where == FILE else where, key) if where else None
        place = f"{self.path}:{at}" if at else f"{self.path}"
        return CommandFailed(
            f"{place}: {problem}"
            + say("; correct the file and start again", "；请修正后重新启动")
        )


def read_settings(directory: Path) -> Settings:
    """Read the file; without one there are no settings."""
    settings = Settings(directory / FILE, {})
    try:
        text = settings.path.read_text()
        data = tomllib.loads(text)
    except FileNotFoundError:
        return settings
    except (OSError, ValueError) as exc:
        problem = say(f"cannot be read: {exc}", f"无法读取：{exc}")
        raise settings.fault(problem) from exc
    settings = Settings(settings.path, data, text)
    settings.check_keys(FILE, data, TABLES)
    return settings


def _unknown(where: str, key: str, names: str) -> str:
    return say(
        f"{where} has an unknown key {key!r}; known are {names}",
        f"{where} 有未知的键 {key!r}；可用的键：{names}",
    )


def _mistyped(where: str, key: str, kind: str) -> str:
    name = key if where == FILE else f"{where}.{key}"
    return say(f"{name} must be a {kind}", f"{name} 的类型应为 {kind}")
