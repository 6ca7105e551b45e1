"""Reading what a runtime sent, of which no field need be there or of its kind. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentteam_runtimes.jsonlines import JsonObject


def mapping(value: object, *keys: str) -> JsonObject:
    """Read what should be an object, through the objects that hold it."""
    inner = _through(value, keys)
    return cast("JsonObject", inner) if isinstance(inner, dict) else {}


def text(value: object, *keys: str) -> str:
    """Read the first of these fields that holds a string."""
    for key in keys:
        if isinstance(inner := _get(value, key), str):
            return inner
    return ""


def number(value: object, key: str) -> int | None:
    """Read a field that should hold an integer."""
    inner = _get(value, key)
    return inner if isinstance(inner, int) and not isinstance(inner, bool) else None


def strings(value: object, key: str) -> list[str]:
    """Read the strings of a field that should hold a list of them."""
    return [each for each in _members(_get(value, key)) if isinstance(each, str)]


def objects(value: object, *keys: str) -> Iterator[JsonObject]:
    """Read the objects of what should be a list, through the objects that hold it."""
    for each in _members(_through(value, keys)):
        if isinstance(each, dict):
            yield cast("JsonObject", each)


def _members(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _through(value: object, keys: tuple[str, ...]) -> object:
    for key in keys:
        value = _get(value, key)
    return value


def _get(value: object, key: str) -> object:
    if not isinstance(value, dict):
        return None
    return cast("Mapping[str, object]", value).get(key)
