"""What a message of Claude holds: the tools it uses, and their results. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields
from agentteam_runtimes.excerpts import as_json, shorten

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject


def tools_used(message: JsonObject) -> list[tuple[str, str, str]]:
    """Name the calls that a message makes: the call, the tool, its input as JSON."""
    return [
        (
            jsonfields.text(part, "id"),
            jsonfields.text(part, "name"),
            as_json(part.get("input")),
        )
        for part in jsonfields.objects(message, "content")
        if part.get("type") == "tool_use" and jsonfields.text(part, "id")
    ]


def tool_results(line: JsonObject) -> list[tuple[str, str, str | None]]:
    """Name the results that a line brings: the call, its output, its error."""
    message = jsonfields.mapping(line, "message")
    return [
        (jsonfields.text(part, "tool_use_id"), _output(part), _error(part))
        for part in jsonfields.objects(message, "content")
        if part.get("type") == "tool_result"
    ]


def _output(part: JsonObject) -> str:
    said = jsonfields.text(part, "content")
    parts = jsonfields.objects(part, "content")
    return shorten(said or "".join(jsonfields.text(inner, "text") for inner in parts))


def _error(part: JsonObject) -> str | None:
    if part.get("is_error") is not True:
        return None
    first, *_ = _output(part).splitlines() or ["failed"]
    return first
