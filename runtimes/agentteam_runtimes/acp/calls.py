"""What people see of an agent's calls of tools, and of its tokens. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields
from agentteam_runtimes.acp import wire
from agentteam_runtimes.excerpts import as_json, shorten

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import JsonObject


def call_input(call: JsonObject) -> str:
    """Show what a tool was given, or at least what the agent calls it."""
    if given := call.get("rawInput"):
        return as_json(given)
    title = jsonfields.text(call, "title")
    return as_json({"title": title}) if title else ""


def call_output(update: JsonObject) -> str:
    texts = map(wire.chunk_text, jsonfields.objects(update, "content"))
    if shown := "".join(texts):
        return shorten(shown)
    raw = update.get("rawOutput")
    return as_json(raw) if raw else ""


def call_failure(update: JsonObject) -> str:
    raw = jsonfields.mapping(update, "rawOutput")
    return jsonfields.text(raw, "error") or call_output(update) or "failed"


def tokens(usage: JsonObject) -> dict[str, int]:
    named = {"input": "inputTokens", "output": "outputTokens"}
    found = {ours: jsonfields.number(usage, theirs) for ours, theirs in named.items()}
    return {name: count for name, count in found.items() if count is not None}
