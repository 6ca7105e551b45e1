"""What people get to see of a tool's input or output. Pure."""

from __future__ import annotations

import orjson

LONGEST = 4000  # characters


def as_json(value: object) -> str:
    """Write a value for people: valid JSON unless it is very long."""
    try:
        return shorten(orjson.dumps(value).decode())
    except TypeError:  # lone surrogates
        return shorten(str(value))


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
