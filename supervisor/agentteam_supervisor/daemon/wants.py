"""
What agents could not start for, looked for again until it is there.

A program that gets installed, a directory that gets made or chosen anew: nobody tells a
daemon of that, and an agent that shows yesterday's problem is told to be mended twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import RuntimeFailure, RuntimeMissing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentteam_protocol.ids import AgentId

# Seconds between two looks; to look is to find a file, or to ask a program its version.
PAUSE = 3.0


class Wants:
    """Which agents wait for something on this machine; empty, it costs nothing."""

    def __init__(self, pause: float = PAUSE) -> None:
        self._pause = pause
        self._agents: set[AgentId] = set()
        self._some = trio.Event()

    def add(self, agent: AgentId) -> None:
        self._agents.add(agent)
        self._some.set()

    def drop(self, agent: AgentId) -> None:
        self._agents.discard(agent)

    async def keep_looking(
        self,
        look: Callable[[AgentId], Awaitable[None]],
        found: Callable[[AgentId], None],
    ) -> None:
        """
        Call `found` for each agent whose `look` finds what it lacked; until cancelled.

        `look` raises `RuntimeMissing` while it is not there. Another failure means that
        it is there and has a trouble of its own, which the next start will tell.
        """
        while True:
            await self._some.wait()
            await trio.sleep(self._pause)
            for agent in tuple(self._agents):
                try:
                    await look(agent)
                except RuntimeMissing:
                    continue
                except RuntimeFailure:
                    pass
                self.drop(agent)
                found(agent)
            if not self._agents:
                self._some = trio.Event()
