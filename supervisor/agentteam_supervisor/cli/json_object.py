"""JSON objects of the contract, whose fields may grow: read without faith."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

JsonObject = dict[str, Any]


def as_object(value: Any) -> JsonObject | None:
    return cast("JsonObject", value) if isinstance(value, dict) else None


def parts(of: Mapping[str, Any], key: str) -> list[JsonObject]:
    """Get the objects in the list at the key."""
    found = of.get(key)
    listed: list[Any] = list(cast("Any", found)) if isinstance(found, list) else []
    return [thing for one in listed if (thing := as_object(one)) is not None]


def part(of: Mapping[str, Any], key: str) -> JsonObject:
    """Get the object at the key; an empty one where there is none."""
    return as_object(of.get(key)) or {}
