"""What the tool calls of OpenCode mean: their names, inputs, outputs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import RuntimeEvent, ToolEnded, ToolStarted, TurnRef
from agentteam_runtimes.excerpts import as_json, shorten

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject


def tool_event(
    turn: TurnRef | None, part: JsonObject, session: str = "", *, begun: bool = False
) -> list[RuntimeEvent]:
    """
    Say what became of a call; `session` is that of a sub-agent.

    A call that ended before it was seen to begin is told to have begun, too.
    """
    state = jsonfields.mapping(part, "state")
    id = call_id(jsonfields.text(part, "callID"), session)
    given = as_json(jsonfields.mapping(state, "input"))
    started = ToolStarted(turn, id, jsonfields.text(part, "tool"), given)
    before: list[RuntimeEvent] = [] if begun else [started]
    match jsonfields.text(state, "status"):
        case "running":
            return before
        case "completed":
            return [*before, ToolEnded(turn, id, _output(state), _exit(state))]
        case "error":
            error = shorten(jsonfields.text(state, "error")) or "failed"
            return [*before, ToolEnded(turn, id, _output(state), error)]
        case _:
            return []


def call_id(id: str, session: str = "") -> str:
    """Name a call. Models make these names, so those of two sessions may be equal."""
    return f"{session}/{id}" if session else id


def _output(state: JsonObject) -> str:
    told = jsonfields.text(state, "output") or jsonfields.text(
        jsonfields.mapping(state, "metadata"), "output"
    )
    return shorten(told)


def _exit(state: JsonObject) -> str | None:
    code = jsonfields.number(jsonfields.mapping(state, "metadata"), "exit")
    return f"exit code {code}" if code else None
