"""The options of an agent: the same keys for every runtime that is a process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import orjson

from agentteam_supervisor.server.problems import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("bin", "command", "env", "home", "config", "args", "resume")
# As the kernel has it, with the NUL at the end.
PATH_MAX = 4096
# A NUL as JSON writes it; a backslash of the text itself stands doubled.
NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
HIDDEN = "***"


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse unknown keys and wrong kinds; what passes can be handed to a driver."""
    for key, value in options.items():
        if key not in KEYS:
            detail = f"unknown option {key!r}; known: {', '.join(KEYS)}"
            raise invalid("unknown_option", detail, field=f"options.{key}")
        if not _fits(key, value):
            detail = f"option {key!r} must be {_EXPECTED[key]}"
            raise invalid("invalid_option", detail, field=f"options.{key}")
    return dict(options)


def check_workdir(path: str | None) -> str | None:
    """Refuse what no process can stand in; whether it exists, the daemon will see."""
    if path is None:
        return None
    if not path.startswith("/") and path != "~" and not path.startswith("~/"):
        detail = f"the workdir {path[:100]!r} is relative; give an absolute path"
        raise invalid("invalid_field", detail, field="workdir")
    if len(path.encode()) >= PATH_MAX:
        detail = f"the workdir is longer than {PATH_MAX - 1} bytes; give a shorter path"
        raise invalid("invalid_field", detail, field="workdir")
    return path


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Hide the values of `env`: vendor keys stand there."""
    shown = dict(options)
    if "env" in shown:
        shown["env"] = dict.fromkeys(shown["env"], HIDDEN)
    return shown


_EXPECTED = {
    "bin": "a path without NUL characters",
    "command": "a list of strings without NUL characters, a program and its words",
    "home": "a path without NUL characters",
    "env": "an object of strings without NUL characters, its names not empty and"
    " without '='",
    "config": "a JSON object without NUL characters",
    "args": "a list of strings without NUL characters",
    "resume": "the name of a session of the runtime",
}


def _fits(key: str, value: Any) -> bool:
    match key:
        case "bin" | "home" | "resume":
            return value != "" and _all_text([value])
        case "args":
            return isinstance(value, list) and _all_text(list(cast("Any", value)))
        case "command":
            return _fits("args", value) and value[:1] not in ([], [""])
        case "env":
            return isinstance(value, dict) and _is_env(cast("dict[str, Any]", value))
        case _:
            return isinstance(value, dict) and not NUL.search(orjson.dumps(value))


def _is_env(env: dict[str, Any]) -> bool:
    names = list(env)
    return _all_text([*names, *env.values()]) and all(n and "=" not in n for n in names)


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) and "\0" not in value for value in values)
