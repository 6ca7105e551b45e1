"""Reading what a client sent: bounded, JSON, and nothing that we do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
from starlette.requests import ClientDisconnect

from agentteam_supervisor.server.problems import Problem, invalid

if TYPE_CHECKING:
    import enum
    from collections.abc import Mapping

    from starlette.requests import Request

E = TypeVar("E", bound="enum.StrEnum")
MAX_LIMIT = 1000
MAX_WAIT = 60.0
# The name of an author, as people read it.
MAX_LINE = 100
# Deeper than anybody means it, and less than what the encoder can write again.
MAX_DEPTH = 64


async def read_body(request: Request, *known: str) -> Fields:
    """Read a JSON object that has no other fields than the known ones."""
    try:
        data = orjson.loads(await request.body() or b"{}")
    except ClientDisconnect as exc:
        # Nobody reads this answer; without it the server would log a fault of its own.
        raise Problem(400, "malformed_json", "the body was cut off") from exc
    except orjson.JSONDecodeError as exc:
        detail = f"the body is not valid JSON: {exc}; send one JSON object"
        raise Problem(400, "malformed_json", detail) from exc
    if not isinstance(data, dict):
        raise Problem(400, "malformed_json", "the body must be a JSON object")
    fields = Fields(cast("dict[str, Any]", data))
    fields.only(*known)
    _check_depth(data)
    return fields


def _check_depth(data: Any) -> None:
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return
    raise invalid("too_deep", f"the body is nested more than {MAX_DEPTH} levels deep")


def _children(value: Any) -> list[Any]:
    match value:
        case dict():
            return list(cast("dict[str, Any]", value).values())
        case list():
            return list(cast("Any", value))
        case _:
            return []


class Fields:
    """The members of a JSON object; every reader refuses the wrong kind by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def __contains__(self, name: str) -> bool:
        return self.data.get(name) is not None

    def only(self, *known: str) -> None:
        for name in self.data:
            if name not in known:
                detail = f"unknown field {name!r}; known: {', '.join(known)}"
                raise invalid("unknown_field", detail, field=name)

    def text(self, name: str, default: str | None = None) -> str:
        """Read a string that is there and not empty."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise _wrong(name, "a string that is not empty")
        return value

    def message(self, name: str) -> str:
        """Read what an agent shall read. A NUL is no text, nor could every store hold it."""
        value = self.text(name)
        if "\0" in value:
            raise _wrong(name, "a text without NUL characters")
        if not value.strip():
            raise _wrong(name, "a text that is not blank")
        return value

    def optional(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def line(self, name: str, default: str | None = None) -> str:
        """Read one line that people see: a newline in it would forge another line."""
        text = self.text(name, default)
        if not text.isprintable() or not text.strip() or len(text) > MAX_LINE:
            raise _wrong(name, f"one line of at most {MAX_LINE} printable characters")
        return text

    def plain(self, name: str) -> str | None:
        """Read a setting that goes to a process: it cannot hold a NUL."""
        value = self.optional(name)
        if value is not None and "\0" in value:
            raise _wrong(name, "a string without NUL characters")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong(name, "true or false")
        return value

    def choice(self, name: str, choices: type[E], slug: str, default: E | None) -> E:
        """Read one of a closed set; anything else is refused, never guessed."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        known = [str(c) for c in choices]
        if value not in known:
            detail = f"{name!r} must be one of: {', '.join(known)}; not {value!r}"
            raise invalid(slug, detail, field=name)
        return choices(value)

    def texts(self, name: str) -> list[str]:
        value = self.data.get(name, [])
        if not isinstance(value, list):
            raise _wrong(name, "a list of strings")
        items: list[Any] = list(cast("Any", value))
        if not all(isinstance(item, str) and item for item in items):
            raise _wrong(name, "a list of strings that are not empty")
        if any("\0" in item for item in items):
            raise _wrong(name, "a list of texts without NUL characters")
        return items

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.data.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise _wrong(name, "a JSON object")
        return cast("dict[str, Any]", value)


def _wrong(name: str, expected: str) -> Problem:
    return invalid("invalid_field", f"{name!r} must be {expected}", field=name)


def page(request: Request) -> tuple[int, int]:
    """Read `after` and `limit` of a list."""
    limit = _number(request, "limit", 100)
    if not 1 <= limit <= MAX_LIMIT:
        raise invalid("invalid_parameter", f"'limit' must be 1 to {MAX_LIMIT}")
    return _number(request, "after", 0), limit


def newest(request: Request) -> int | None:
    """Read `newest`: how many of the newest are wanted, instead of a page."""
    if "newest" not in request.query_params:
        return None
    count = _number(request, "newest", 0)
    if not 1 <= count <= MAX_LIMIT:
        raise invalid("invalid_parameter", f"'newest' must be 1 to {MAX_LIMIT}")
    return count


def search_words(request: Request) -> str | None:
    """Read `search`: what a message must contain, in any case of its letters."""
    words = request.query_params.get("search", "").strip()
    if len(words) > MAX_LINE:
        raise invalid("invalid_parameter", f"'search' has at most {MAX_LINE} letters")
    return words or None


def wait_seconds(request: Request) -> float:
    """Read `wait`, at most a minute."""
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise invalid("invalid_parameter", "'wait' must be a number of seconds")
    return min(seconds, MAX_WAIT)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise invalid("invalid_parameter", f"{name!r} must be a whole number")
    return int(text)
