"""The options of an agent: the same keys for every runtime that is a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agentteam_supervisor.server.problems import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = ("bin", "env", "home", "config", "args")
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


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Hide the values of `env`: vendor keys stand there."""
    shown = dict(options)
    if "env" in shown:
        shown["env"] = dict.fromkeys(shown["env"], HIDDEN)
    return shown


_EXPECTED = {
    "bin": "a path",
    "home": "a path",
    "env": "an object of strings",
    "config": "a JSON object",
    "args": "a list of strings",
}


def _fits(key: str, value: Any) -> bool:
    match key:
        case "bin" | "home":
            return isinstance(value, str) and bool(value)
        case "args":
            return isinstance(value, list) and _all_text(list(cast("Any", value)))
        case "env":
            return isinstance(value, dict) and _all_text(
                list(cast("dict[str, Any]", value).values())
            )
        case _:
            return isinstance(value, dict)


def _all_text(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
