"""What was done to one world, as far as it is remembered."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio
from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentteam_supervisor.chaos.checker import Finding

REMEMBERED = 80


@define
class Story:
    """The last lines, each with its seconds since the campaign `began`."""

    began: float
    lines: deque[str] = field(factory=lambda: deque[str](maxlen=REMEMBERED))

    def tell(self, line: str) -> None:
        at = trio.current_time() - self.began
        self.lines.append(f"{at:7.2f} {line}")

    def report(self, findings: Sequence[Finding], say: Callable[[str], None]) -> None:
        """Tell what is wrong, with what was done before it."""
        for line in self.lines if findings else ():
            say(line)
        for finding in findings:
            say(f"{finding.kind.upper()} {finding.about}: {finding.seen}")

    @property
    def last(self) -> str:
        return self.lines[-1] if self.lines else ""
