"""What a driver claims of itself, and what the checks have shown of it."""

from __future__ import annotations

from enum import Enum

from attrs import define, field, frozen

from agentteam_runtimes.driver import Capabilities

# What the report tells of: each is shown by a check, or is said to be untested.
CLAIMS = (
    "steer",
    "interrupt",
    "evidence",
    "approval_cancel",
    "resume",
    "batch_input",
    "tools",
    "maintenance",
    "steps",
)


@frozen
class Line:
    """One capability in the report."""

    name: str
    claimed: str
    shown: str
    owed: bool  # claimed, and not shown


@define(eq=False)
class Claims:
    """Filled by the checks of one run."""

    able: Capabilities | None = None
    _shown: dict[str, list[str]] = field(factory=dict[str, list[str]])

    def show(self, name: str, how: str) -> None:
        """A check saw the capability at work."""
        how_all = self._shown.setdefault(name, [])
        if how not in how_all:
            how_all.append(how)

    def lines(self) -> list[Line]:
        return [] if self.able is None else [self._line(name) for name in CLAIMS]

    @property
    def owed(self) -> list[str]:
        """The capabilities that are claimed and that no check has shown."""
        return [line.name for line in self.lines() if line.owed]

    def _line(self, name: str) -> Line:
        value = getattr(self.able, name)
        claims = str(value) not in ("none", "False")
        shown = ", ".join(self._shown.get(name, []))
        told = value.value if isinstance(value, Enum) else "yes" if value else "no"
        return Line(name, told, shown or "-", claims and not shown)
