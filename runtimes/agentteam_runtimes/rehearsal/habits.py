"""What the program does wrong on purpose. Standard library only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentteam_runtimes.rehearsal.script import Step


class Habits:
    """Ears that are closed for good, and faults that wait for the next occasion."""

    def __init__(self) -> None:
        self.deaf: set[str] = set()
        self.last_words: tuple[str, float] | None = None
        self._next: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def adopt(self, step: Step) -> None:
        """Lose, delay or refuse the next thing of the kind that the step names."""
        self._next.setdefault((step.verb, step.value), []).append(step.options)

    def take(self, verb: str, thing: str) -> dict[str, Any] | None:
        """Use up one fault, if one waits: what stands beside its verb, else None."""
        waiting = self._next.get((verb, thing))
        return waiting.pop(0) if waiting else None
