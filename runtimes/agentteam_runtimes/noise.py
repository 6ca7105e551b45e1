"""The noise on one runtime's stdout: its first lines are shown, the rest is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import define

from agentteam_runtimes.driver import Noticed
from agentteam_runtimes.jsonlines import may_be_object

if TYPE_CHECKING:
    from agentteam_runtimes.jsonlines import Noise

SHOWN = 20


@define(eq=False)
class NoiseCount:
    """How many lines were no messages; a flood of them costs next to nothing."""

    lines: int = 0

    def swallow(self, line: bytes) -> bool:
        """Count a line that nobody needs to look at; False when somebody must."""
        if may_be_object(line) or self._shows(self.lines + 1):
            return False
        self.lines += 1
        return True

    def notice(self, found: Noise) -> list[Noticed]:
        """Show the first lines of noise, then only each time their number doubles."""
        self.lines += 1
        if not self._shows(self.lines):
            return []
        what = f"noise on stdout: {found.reason} ({self.lines})"
        return [Noticed(what, found.sample)]

    def _shows(self, count: int) -> bool:
        return count <= SHOWN or not count & (count - 1)
