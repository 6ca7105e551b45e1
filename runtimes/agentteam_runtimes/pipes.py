"""The daemon's ends of a runtime's standard streams."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_protocol.errors import QueueFull
from agentteam_runtimes.courtesy import give_way

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentteam_runtimes.lines import LineFramer, Overlong

READ_SIZE = 65536  # what a pipe holds; a larger one gained nothing for short lines

# One read may hold 32,000 lines. They are handed on in pieces that take about so long,
# and after a piece that took longer than a moment the others may take as much time.
PIECE_SECONDS = 0.005
MOMENT_SECONDS = 0.001
LEAST_LINES, MOST_LINES = 32, 1000


async def read_lines(
    pipe: trio.lowlevel.FdStream,
    framer: LineFramer,
    on_lines: Callable[[list[bytes]], None],
    on_overlong: Callable[[Overlong], None],
) -> None:
    """
    Hand on all complete lines of each read, until the end of the stream.

    It reads before it yields: a line is handed on in the moment the pipe wakes us.
    """
    portions = Portions()
    async for data in Chunks(pipe):
        lines = framer.feed(data)
        for overlong in framer.take_overlong():
            on_overlong(overlong)
        if lines:
            await portions.serve(lines, on_lines)


class Portions:
    """Lines in portions that are small enough to let everybody else run in between."""

    def __init__(self) -> None:
        self._size = MOST_LINES

    async def serve(
        self, lines: list[bytes], on_lines: Callable[[list[bytes]], None]
    ) -> None:
        """Hand all of them on, in order."""
        done = 0
        while done < len(lines):
            portion = lines[done : done + self._size]
            done += len(portion)
            began = time.perf_counter()
            on_lines(portion)
            took = time.perf_counter() - began
            self._adapt(len(portion), took)
            if took > MOMENT_SECONDS:
                await give_way(took)
            elif done < len(lines):
                await trio.lowlevel.checkpoint()

    def _adapt(self, count: int, took: float) -> None:
        """Choose the next portion's size by what this one cost."""
        if took > PIECE_SECONDS:
            fitting = int(count * PIECE_SECONDS / took)
            self._size = max(LEAST_LINES, fitting)
        elif count == self._size and took < PIECE_SECONDS / 2:
            self._size = min(MOST_LINES, 2 * self._size)


async def drain(pipe: trio.lowlevel.FdStream, tail: Tail) -> None:
    """Read a stream to its end and keep its tail: a full pipe stops the runtime."""
    async for data in Chunks(pipe):
        tail.add(data)


class Chunks:
    """
    What comes out of a pipe, read by read.

    Not an async generator: those cost half the throughput, and a cancelled one
    needs closing.
    """

    def __init__(self, pipe: trio.lowlevel.FdStream) -> None:
        self._fd = pipe.fileno()
        self._fresh = True

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        if self._fresh:
            self._fresh = False
        else:
            # A chatty runtime must not starve the others.
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = os.read(self._fd, READ_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._fd)
                continue
            if not data:
                raise StopAsyncIteration
            return data


class Tail:
    """The last bytes of a stream, bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._data += data
        if len(self._data) > 2 * self._limit:  # seldom, so that little is moved
            del self._data[: -self._limit]

    @property
    def text(self) -> str:
        return self._data[-self._limit :].decode("utf-8", "replace")


class InputClosed(Exception):
    """Nobody reads the runtime's stdin any more."""


@define(eq=False)
class _Write:
    rest: memoryview
    begun: bool = False
    failed: bool = False
    settled: trio.Event = field(factory=trio.Event)


class InputWriter:
    """
    The one writer of a runtime's stdin.

    Writes go out whole and in order. The first bytes leave in the call itself when
    the pipe has room, without a turn of the event loop; what does not fit is
    finished by `run`, whatever becomes of the caller.
    """

    def __init__(self, pipe: trio.lowlevel.FdStream, limit: int) -> None:
        self._pipe = pipe
        self._fd = pipe.fileno()
        self._limit = limit
        self._queue: deque[_Write] = deque()
        self._queued = 0
        self._work = trio.Event()
        self._closing = False
        self.broken = False

    async def write(self, data: bytes) -> None:
        """
        Write all of it, or raise `InputClosed`, or `QueueFull` and nothing.

        If cancelled, what has begun is finished behind the caller's back, and what
        has not begun is never written.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        write = self._offer(data)
        if write.settled.is_set():
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._settle(write)
        if write.failed:
            raise InputClosed

    def close(self) -> None:
        """Close stdin once all that was accepted is written."""
        self._closing = True
        self._work.set()

    def abandon(self) -> None:
        """Fail everything that waits: the reader is gone."""
        self.broken = True
        while self._queue:
            write = self._queue.popleft()
            write.failed = True
            write.settled.set()
        self._queued = 0
        self._work.set()

    async def run(self) -> None:
        while not self.broken:
            while self._queue:
                await self._push(self._queue[0])
            if self._closing or self.broken:
                break
            self._work = trio.Event()
            await self._work.wait()
        self.broken = True
        self._pipe.close()

    def _offer(self, data: bytes) -> _Write:
        if self.broken or self._closing:
            raise InputClosed
        if self._queued + len(data) > self._limit:
            raise QueueFull(
                f"{self._queued} bytes wait for the runtime to read them, "
                f"{len(data)} more pass the limit of {self._limit}"
            )
        write = _Write(memoryview(data))
        idle = not self._queue
        self._queue.append(write)
        self._queued += len(data)
        if idle:
            self._write_some(write)
        if self._queue:
            self._work.set()
        return write

    async def _settle(self, write: _Write) -> None:
        try:
            await write.settled.wait()
        finally:
            if not write.settled.is_set() and not write.begun:
                self._queue.remove(write)
                self._queued -= len(write.rest)

    async def _push(self, write: _Write) -> None:
        if self._write_some(write):
            return
        try:
            await trio.lowlevel.wait_writable(self._fd)
        except trio.ClosedResourceError:
            self.abandon()

    def _write_some(self, write: _Write) -> bool:
        """Write what fits now; False when the pipe is full."""
        try:
            sent = os.write(self._fd, write.rest)
        except BlockingIOError:
            return False
        except OSError:
            self.abandon()
            return True
        write.begun = True
        self._queued -= sent
        write.rest = write.rest[sent:]
        if not write.rest:
            self._queue.popleft()
            write.settled.set()
        return True
