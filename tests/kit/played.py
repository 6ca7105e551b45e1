"""What stands in for a process, and for a stream of events, in a replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import trio
from attrs import define

from agentteam_runtimes.incarnation import Exit
from agentteam_runtimes.process_tree import ProcessIdentity, TreeIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@define(eq=False)
class PlayedIncarnation:
    """What a driver needs of an incarnation; it ends when it is told to."""

    write_line: Callable[[str], Awaitable[object]]
    on_exit: Callable[[Exit], None]
    end: Exit | None = None
    stderr_tail: str = ""
    alone: bool = True

    @property
    def identity(self) -> TreeIdentity:
        nobody = ProcessIdentity(0, 0)
        return TreeIdentity(nobody, nobody, "")

    def mark(self) -> int:
        return 0

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            await self.write_line(line.decode())

    def close_stdin(self) -> None:
        return

    async def terminate(self) -> None:
        await trio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        await trio.lowlevel.checkpoint()
        if self.end is None:
            self.end = Exit(0, "", None, (), "told")
            self.on_exit(self.end)
        return self.end


class EventStream(httpx.AsyncByteStream):
    """Server-sent events, as they are fed."""

    def __init__(self) -> None:
        self._feed, self._read = trio.open_memory_channel[bytes](10_000)

    def feed(self, event: str) -> None:
        self._feed.send_nowait(f"data: {event}\n\n".encode())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._read:
            yield data

    async def aclose(self) -> None:
        self._read.close()
        self._feed.close()
