"""A journal in memory whose durability the test controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import JournalUnwritable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.frames import Frame
    from agentteam_protocol.ids import AgentId
    from agentteam_protocol.journal import JournalEvent


class MemoryCommit:
    def __init__(self) -> None:
        self._done = trio.Event()
        self._error: JournalUnwritable | None = None

    def settle(self, error: JournalUnwritable | None = None) -> None:
        self._error = error
        self._done.set()

    async def wait(self) -> None:
        if not self._done.is_set():  # as the real one: no turn of the loop if known
            await self._done.wait()
        if self._error is not None:
            raise self._error


class MemoryJournal:
    """Durable at once, unless it is held; what was appended is in `events`."""

    def __init__(self) -> None:
        self.events: list[JournalEvent] = []
        self.frames: list[Frame] = []
        self.agents: list[AgentId] = []
        self.broken: str | None = None
        self._held: list[MemoryCommit] | None = None

    def append(
        self,
        agent: AgentId,
        events: Sequence[JournalEvent],
        frames: Sequence[Frame] = (),
        at: str | None = None,
    ) -> MemoryCommit:
        commit = MemoryCommit()
        if self.broken is not None:
            commit.settle(JournalUnwritable(self.broken))
            return commit
        self.agents.append(agent)
        self.events += events
        self.frames += frames
        if self._held is None:
            commit.settle()
        else:
            self._held.append(commit)
        return commit

    def hold(self) -> None:
        """From now on nothing becomes durable."""
        self._held = []

    def release(self) -> None:
        """Everything is durable, and so is what comes."""
        held, self._held = self._held or [], None
        for commit in held:
            commit.settle()

    def fill_up(self) -> None:
        """The disk is full: what is held fails, and so does what comes."""
        self.broken = "no space left on device"
        held, self._held = self._held or [], None
        for commit in held:
            commit.settle(JournalUnwritable(self.broken))

    def of(self, kind: type[JournalEvent]) -> list[JournalEvent]:
        return [event for event in self.events if isinstance(event, kind)]
