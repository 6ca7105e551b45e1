"""What was done to one world, as far as it is remembered."""

from __future__ import annotations

from collections import deque

import trio
from attrs import define, field

REMEMBERED = 80


@define
class Story:
    """The last lines, each with its seconds since the campaign `began`."""

    began: float
    lines: deque[str] = field(factory=lambda: deque[str](maxlen=REMEMBERED))

    def tell(self, line: str) -> None:
        at = trio.current_time() - self.began
        self.lines.append(f"{at:7.2f} {line}")

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""
