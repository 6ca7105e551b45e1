"""What the tool calls of OpenCode mean: their names, inputs, outputs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from agentteam_runtimes.driver import RuntimeEvent, ToolEnded, ToolStarted, TurnRef
from agentteam_runtimes.opencode import wire

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject

MOST_SHOWN = 4000  # characters of an input or output that people get to see


def tool_event(
    turn: TurnRef | None, part: JsonObject, session: str = "", *, begun: bool = False
) -> list[RuntimeEvent]:
    """
    Say what became of a call; `session` is that of a sub-agent.

    A call that ended before it was seen to begin is told to have begun, too.
    """
    state = wire.mapping(part, "state")
    id = call_id(wire.text(part, "callID"), session)
    given = as_json(wire.mapping(state, "input"))
    started = ToolStarted(turn, id, wire.text(part, "tool"), given)
    before: list[RuntimeEvent] = [] if begun else [started]
    match wire.text(state, "status"):
        case "running":
            return before
        case "completed":
            return [*before, ToolEnded(turn, id, _output(state), _exit(state))]
        case "error":
            error = shorten(wire.text(state, "error")) or "failed"
            return [*before, ToolEnded(turn, id, _output(state), error)]
        case _:
            return []


def call_id(id: str, session: str = "") -> str:
    """Name a call. Models make these names, so those of two sessions may be equal."""
    return f"{session}/{id}" if session else id


def as_json(value: object) -> str:
    """Write a value for people: valid JSON unless it is very long."""
    try:
        return shorten(orjson.dumps(value).decode())
    except TypeError:  # lone surrogates
        return shorten(str(value))


def shorten(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def _output(state: JsonObject) -> str:
    told = wire.text(state, "output") or wire.text(
        wire.mapping(state, "metadata"), "output"
    )
    return shorten(told)


def _exit(state: JsonObject) -> str | None:
    code = wire.number(wire.mapping(state, "metadata"), "exit")
    return f"exit code {code}" if code else None
