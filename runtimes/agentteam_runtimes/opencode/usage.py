"""The tokens that messages of OpenCode cost. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_runtimes import jsonfields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentteam_runtimes.jsonlines import JsonObject


def read_tokens(tokens: JsonObject) -> dict[str, int]:
    """Read the tokens of one message; what is zero is left out."""
    kept = {
        k: v
        for k in ("input", "output", "reasoning")
        if (v := jsonfields.number(tokens, k))
    }
    cached = jsonfields.number(jsonfields.mapping(tokens, "cache"), "read")
    return kept | ({"cached": cached} if cached else {})


def add_up(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Add the tokens of messages, each kind by itself."""
    total: dict[str, int] = {}
    for tokens in counts:
        for name, number in tokens.items():
            total[name] = total.get(name, 0) + number
    return total
