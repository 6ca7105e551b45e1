"""
Makes recordings comparable, and free of what is not ours to keep.

Names that a machine or a moment gave are replaced by others that a second recording has,
too: `<id1>` is the first id that occurs twice, `<id>` one that occurs once. Texts and
lists of the vendor's own become their length and a digest: a change shows, the words do
not. What we said ourselves, and what our scripts made the model say, stays.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LONGEST_TEXT = 80
LONGEST_LIST = 8
LONGEST_OBJECT = 40
# What a vendor lists and describes there is his, however short it is.
CATALOGUES = {
    *("agents", "commands", "models", "plugins", "providers", "skills", "tools"),
    *("slash_commands", "available_output_styles", "description", "argumentHint"),
}
EPOCH = 1_000_000_000  # no other number of these protocols is so large

ID = re.compile(
    r"(?<![0-9A-Za-z])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|(?<=_)[0-9a-f]{12}[0-9A-Za-z]{14}\b"  # of OpenCode: `msg_` and others
    r"|(?<=\bprt_)[0-9a-f]{12}(?=_)"  # of ours for OpenCode, before a key
    r"|(?<=_)[0-9a-f]{16}\b"  # of ours
    r"|\b[0-9a-f]{40}\b"
)
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d(?:\.\d+)?Z?|\d{4}/\d\d/\d\d")
PORT = re.compile(r"(127\.0\.0\.1|localhost):\d+")
LASTING = re.compile(
    r"(?i)(duration|elapsed|ttft|latency|uptime).*|.*(_ms|Ms|_seconds)$"
)
WIRE = {"capabilities"}  # however long: a driver goes by it
PROCESS = {"processId", "pid", "osPid"}
# They tell of the machine that records, or are drawn.
MACHINE = {
    *("userAgent", "serverName", "platformOs", "platformFamily", "slug"),
    "messaging_socket_path",
}


class Scrubber:
    """Reads a whole recording first, then scrubs its entries and what came of them."""

    def __init__(
        self,
        places: Mapping[str, str],
        ours: Iterable[str],
        names: Mapping[str, str] | None = None,
    ) -> None:
        # The longest first: a home is inside of its parent.
        self._places = sorted(places.items(), key=lambda p: -len(p[0]))
        self._ours = "\n".join(ours)
        self._names = dict(names or {})

    def learn(self, entries: Sequence[Any], kind: str = "id") -> None:
        """Number the ids that occur more than once, and have no name yet."""
        found: Counter[str] = Counter()
        for entry in entries:
            found.update(_ids(entry))
        new = (id for id, times in found.items() if times > 1 and id not in self._names)
        self._names |= {id: f"<{kind}{n:02}>" for n, id in enumerate(list(new), 1)}

    def entry(self, entry: Any) -> Any:
        """Scrub an entry; what we sent is ours, so all of it stays."""
        return self.scrub(entry, whole=entry.get("dir") == "in")

    def scrub(self, value: Any, key: str = "", *, whole: bool = False) -> Any:
        match value:
            case dict():
                told = {
                    self._named(k): self.scrub(v, k, whole=whole)
                    for k, v in value.items()
                }
                return self._short("object", told, LONGEST_OBJECT, key, whole)
            case list():
                listed = [self.scrub(v, key, whole=whole) for v in value]
                return self._short("list", listed, LONGEST_LIST, key, whole)
            case bool() | None:
                return value
            case int() | float() if value >= EPOCH or _is_passing(key):
                return 0
            case str() if key in PROCESS:
                return self._names.get(value, "<id>")
            case str() if key in MACHINE:
                return f"<{key}>"
            case str():
                ours = whole or value in self._ours
                return self._short("text", self._named(value), LONGEST_TEXT, key, ours)
            case _:
                return value

    def _short(self, kind: str, told: Any, longest: int, key: str, whole: bool) -> Any:
        if not told or whole or key in WIRE:
            return told
        if len(told) <= longest and key not in CATALOGUES:
            return told
        content = json.dumps(told, sort_keys=True, ensure_ascii=False)
        digest = hashlib.sha256(content.encode()).hexdigest()[:10]
        return f"<{kind} of {len(told)}: {digest}>"

    def _named(self, text: str) -> str:
        text = self._names.get(text, text)
        for place, name in self._places:
            text = text.replace(place, name)
        text = ID.sub(lambda found: self._names.get(found[0], "<id>"), text)
        return PORT.sub(r"\1:1", MOMENT.sub("<time>", text))


def _is_passing(key: str) -> bool:
    return key in PROCESS or LASTING.fullmatch(key) is not None


def strings(value: Any) -> Iterator[str]:
    """Give all texts in a JSON value."""
    match value:
        case dict():
            for inner in value.values():
                yield from strings(inner)
        case list():
            for inner in value:
                yield from strings(inner)
        case str():
            yield value
        case _:
            pass


def _ids(value: Any, key: str = "") -> Iterable[str]:
    match value:
        case dict():
            for k, v in value.items():
                yield from ID.findall(k)
                yield from _ids(v, k)
        case list():
            for v in value:
                yield from _ids(v, key)
        case str() if key in PROCESS:
            yield value
        case str():
            yield from ID.findall(value)
        case _:
            pass
