"""Waiting for what the lines of a process bring about, or for its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import RuntimeExited

if TYPE_CHECKING:
    from collections.abc import Callable


@define(eq=False)
class Waiting:
    """
    Whoever reads the lines changes something and announces it; whoever waits looks.

    The reader never waits, and each change is seen in the order of the stream.
    """

    _changed: trio.Event = field(factory=trio.Event, init=False)
    _exited: RuntimeExited | None = field(default=None, init=False)

    def announce(self) -> None:
        """Let everybody who waits look again."""
        self._changed.set()
        self._changed = trio.Event()

    def exited(self, error: RuntimeExited) -> None:
        """Fail whatever waits: the process is gone."""
        self._exited = error
        self.announce()

    def check(self) -> None:
        """Raise `RuntimeExited` when the process is known to be gone."""
        if (gone := self._exited) is not None:
            raise RuntimeExited(gone.returncode, gone.stderr_tail) from gone

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for something that a line brings about; raises `RuntimeExited`."""
        while not done():
            self.check()
            await self._changed.wait()
