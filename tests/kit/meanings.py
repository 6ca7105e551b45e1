"""What the placeholders of a recording mean in a replay: learned from what is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from attrs import define, field

PLACEHOLDER = re.compile(r"(<(?:id\d*|time)>)")
ONCE = re.compile("<id>")
NUMBERED = re.compile(r"<id\d+>")


@define(eq=False)
class Meanings:
    """The values behind names; the first value at a name's place is its meaning."""

    places: Mapping[str, str]  # of this replay, by the name that a recording has
    names: dict[str, str] = field(factory=dict[str, str])
    _drawn: count[int] = field(factory=lambda: count(1))

    def same(self, recorded: Any, sent: Any) -> bool:
        """Tell whether this was sent as it was recorded; what it means is learned."""
        learned = dict(self.names)
        if self._same(recorded, sent, learned):
            self.names = learned
            return True
        return False

    def filled(self, recorded: Any) -> Any:
        """Put in what the names have come to mean."""
        match recorded:
            case dict():
                return {self.filled(k): self.filled(v) for k, v in recorded.items()}
            case list():
                return [self.filled(v) for v in recorded]
            case str():
                for name, meant in {**self.places, **self.names}.items():
                    recorded = recorded.replace(name, meant)
                return ONCE.sub(lambda _: self._draw(), recorded)
            case _:
                return recorded

    def _draw(self) -> str:
        """Make an id that nothing else has: two that occur once are two."""
        return f"{next(self._drawn):08x}-0000-0000-0000-000000000000"

    def _same(self, recorded: Any, sent: Any, names: dict[str, str]) -> bool:
        match recorded, sent:
            case dict(), dict():
                return recorded.keys() == sent.keys() and all(
                    self._same(recorded[k], sent[k], names) for k in recorded
                )
            case list(), list():
                return len(recorded) == len(sent) and all(
                    self._same(*pair, names)
                    for pair in zip(recorded, sent, strict=True)
                )
            case str(), str():
                return self._same_text(recorded, sent, names)
            case _:
                return bool(recorded == sent)

    def _same_text(self, recorded: str, sent: str, names: dict[str, str]) -> bool:
        for name, place in self.places.items():
            sent = sent.replace(place, name)
        parts = PLACEHOLDER.split(recorded)
        pattern = "".join(
            "(.+?)" if i % 2 else re.escape(part) for i, part in enumerate(parts)
        )
        if (found := re.fullmatch(pattern, sent, re.DOTALL)) is None:
            return False
        pairs = zip(parts[1::2], found.groups(), strict=True)
        return all(
            names.setdefault(name, value) == value
            for name, value in pairs
            if NUMBERED.fullmatch(name)
        )
