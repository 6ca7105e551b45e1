"""The `[limits]` of a state directory: how long its sessions wait for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentteam_supervisor.cli.settings import Settings

# As people write them, and as `session/deadlines.py` calls them.
NAMES = {
    "start": "start",
    "interrupt": "interrupt",
    "interruptSoft": "interrupt_soft",
    "sweep": "sweep",
    "settle": "settle",
    "terminate": "terminate",
    "kill": "kill",
    "maintenance": "maintenance",
    "silence": "silence",
    "request": "request",
    "close": "close",
    "shutdown": "shutdown",
}

LONGEST = 10**9  # what a clock can still add


def declared_limits(settings: Settings) -> dict[str, float]:
    """
    Give the limits that differ from the defaults, in seconds.

    Each is a number above zero: with a wait without an end, a Stop could hang.
    """
    table: Mapping[str, Any] = settings.tables.get("limits", {})
    settings.check_names("limits", table, NAMES)
    for key, value in table.items():
        if not _is_seconds(value):
            raise settings.fault(
                say(
                    f"limits.{key} is {value!r}; it must be a number of seconds above 0",
                    f"limits.{key} 为 {value!r}；应为大于 0 的秒数",
                ),
                "limits",
                key,
            )
    return {NAMES[key]: float(value) for key, value in table.items()}


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= LONGEST
