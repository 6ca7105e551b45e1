"""What the items of a thread mean: tools, their results, errors, token counts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields
from agentteam_runtimes.driver import Noticed, ToolEnded, ToolStarted, TurnRef
from agentteam_runtimes.excerpts import as_json, shorten

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject


FAILED = frozenset({"failed", "declined"})


def tool_started(
    turn: TurnRef | None, item: JsonObject, thread: str = ""
) -> ToolStarted:
    """Say that a tool runs; `thread` is that of a sub-agent."""
    return ToolStarted(turn, call_id(item, thread), tool_name(item), tool_input(item))


def tool_ended(turn: TurnRef | None, item: JsonObject, thread: str = "") -> ToolEnded:
    """Say how a tool ended."""
    status = jsonfields.text(item, "status")
    output = _output(item)
    error = None
    if status in FAILED or jsonfields.number(item, "exitCode"):
        code = jsonfields.number(item, "exitCode")
        error = status if code is None else f"{status}, exit code {code}"
    return ToolEnded(turn, call_id(item, thread), output, error)


def call_id(item: JsonObject, thread: str = "") -> str:
    """
    Name a call. The model makes these names, so those of two threads may be equal.
    """
    own = jsonfields.text(item, "id")
    return f"{thread}/{own}" if thread else own


def tool_name(item: JsonObject) -> str:
    match item.get("type"):
        case "commandExecution":
            return "shell"
        case "fileChange":
            return "edit"
        case "mcpToolCall":
            return f"{jsonfields.text(item, 'server')}.{jsonfields.text(item, 'tool')}"
        case "dynamicToolCall" | "collabAgentToolCall":
            return jsonfields.text(item, "tool")
        case kind:
            return str(kind)


def tool_input(item: JsonObject) -> str:
    """Show what a tool was given, as JSON, shortened for people."""
    shown: JsonObject
    match item.get("type"):
        case "commandExecution":
            shown = {k: jsonfields.text(item, k) for k in ("command", "cwd")}
        case "fileChange":
            changes = jsonfields.objects(item, "changes")
            shown = {"changes": [_change(c) for c in changes]}
        case "collabAgentToolCall":
            shown = {"prompt": jsonfields.text(item, "prompt")}
        case _:
            shown = {"arguments": item.get("arguments")}
    return as_json(shown)


def error_notice(params: JsonObject, *, first: bool) -> Noticed:
    """Tell of an error of the model; a final one also fails its turn."""
    error = jsonfields.mapping(params, "error")
    words = [jsonfields.text(error, k) for k in ("message", "additionalDetails")]
    said = ": ".join(word for word in words if word)
    if not retries(params):
        return Noticed("error", said)
    return Noticed(f"the model failed, codex retries: {said}", said, told=first)


def retries(params: JsonObject) -> bool:
    return params.get("willRetry") is True


def tokens(breakdown: JsonObject) -> dict[str, int]:
    return {
        k: v for k in breakdown if (v := jsonfields.number(breakdown, k)) is not None
    }


def _change(change: JsonObject) -> JsonObject:
    return {
        "path": jsonfields.text(change, "path"),
        "diff": jsonfields.text(change, "diff"),
    }


def _output(item: JsonObject) -> str:
    if item.get("type") == "commandExecution":
        return shorten(jsonfields.text(item, "aggregatedOutput"))
    if item.get("type") in ("mcpToolCall", "dynamicToolCall"):
        shown = item.get("result") or item.get("error") or item.get("contentItems")
        return as_json(shown) if shown else ""
    return ""
