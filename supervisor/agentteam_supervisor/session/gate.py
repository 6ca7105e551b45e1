"""The durable gate: what must wait for its records leaves after them, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentteam_supervisor.session.effects import Effect
    from agentteam_supervisor.session.ports import Commit


class DurableGate:
    """
    Lets effects through once every record before them is durable.

    The journal commits in order, so waiting for the newest commit before an effect
    covers the older ones. `JournalUnwritable` ends `run`: nothing leaves any more.
    """

    def __init__(self, perform: Callable[[Effect], None]) -> None:
        self._perform = perform
        self._waiting: deque[tuple[Commit | None, Effect]] = deque()
        self._newest: Commit | None = None
        self._arrived = trio.Event()

    def note(self, commit: Commit) -> None:
        """Everything that is added from now on waits for this commit."""
        self._newest = commit
        self._arrived.set()

    def add(self, effect: Effect) -> None:
        if self._newest is None and not self._waiting:
            self._perform(effect)
            return
        self._waiting.append((self._newest, effect))
        self._arrived.set()

    def drop(self) -> Iterable[Effect]:
        """Give up on everything; returns what did not leave."""
        dropped = [effect for _, effect in self._waiting]
        self._waiting.clear()
        return dropped

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived = trio.Event()
            while self._waiting:
                await self._let_through()
            await self._catch_up()

    async def _let_through(self) -> None:
        commit, effect = self._waiting[0]
        if commit is not None:
            await commit.wait()
            self._forget(commit)
        # Nothing was waited for since it was looked at, so it is still the first.
        if self._waiting and self._waiting[0][1] is effect:
            self._waiting.popleft()
            self._perform(effect)

    async def _catch_up(self) -> None:
        """Learn of a failed commit even when no effect waits behind it."""
        if (commit := self._newest) is not None:
            await commit.wait()
            self._forget(commit)

    def _forget(self, commit: Commit) -> None:
        if self._newest is commit:
            self._newest = None
