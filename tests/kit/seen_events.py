"""What a driver emitted, kept in order, for a test to wait on and to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentteam_runtimes.driver import RuntimeEvent, TurnRef

E = TypeVar("E")

WITHIN = 20.0


class SeenEvents:
    """Give it to `Driver.open` as `emit`."""

    def __init__(self) -> None:
        self.all: list[RuntimeEvent] = []
        self._more = trio.Event()

    def __call__(self, events: Sequence[RuntimeEvent]) -> None:
        self.all += events
        self._more.set()
        self._more = trio.Event()

    def of(self, kind: type[E], where: Callable[[E], bool] = lambda _: True) -> list[E]:
        return [e for e in self.all if isinstance(e, kind) and where(e)]

    def of_turn(self, turn: TurnRef) -> list[RuntimeEvent]:
        return [e for e in self.all if getattr(e, "turn", None) == turn]

    async def first(
        self,
        kind: type[E],
        where: Callable[[E], bool] = lambda _: True,
        within: float = WITHIN,
    ) -> E:
        """Wait for the first event of this kind that fits; it may be there already."""
        with trio.fail_after(within):
            while not (found := self.of(kind, where)):
                await self._more.wait()
        return found[0]
