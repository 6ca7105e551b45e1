"""The link's two numbered directions, as bookkeeping. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import orjson
from attrs import define, evolve, field

from agentteam_protocol.errors import RemoteProtocolError
from agentteam_protocol.frames import Frame, Progressed
from agentteam_supervisor.journal.records import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

# Live text that nobody takes is dropped, not heaped up.
MAX_LIVE = 1000
MAX_LIVE_TEXT = 64 << 10
# A batch is cut here, far below what either side accepts in one message.
MAX_BATCH = 512 << 10


class Inbound:
    """
    The server's frames of one connection: arrived in order, done in any order.

    The mark is the last number up to which all are done. A session that is loading
    holds it back, and so a crash makes the server send again what was not done.
    """

    def __init__(self, received: int) -> None:
        self._next = received + 1
        self._marked = received
        self._open: dict[int, None] = {}

    def arrived(self, number: int) -> bool:
        """Take a frame in; False: we had it. Raises for a hole in the numbers."""
        if number > self._next:
            raise RemoteProtocolError(f"frame {number} came instead of {self._next}")
        if number < self._next:
            return False
        self._next += 1
        self._open[number] = None
        return True

    def done(self, number: int) -> int | None:
        """Give the mark, if it moved."""
        self._open.pop(number, None)
        mark = next(iter(self._open), self._next) - 1
        if mark <= self._marked:
            return None
        self._marked = mark
        return mark


@define
class Unnumbered:
    """Frames without a number, each with its place in the numbered stream."""

    _frames: deque[tuple[int, Frame]] = field(factory=deque[tuple[int, Frame]])
    _live: int = 0

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, after: int, frame: Frame) -> None:
        """Send this after the frame with that number, and before the next."""
        if not isinstance(frame, Progressed):
            self._frames.append((after, frame))
        elif not self._joined(frame) and self._live < MAX_LIVE:
            self._frames.append((after, frame))
            self._live += 1

    def _joined(self, new: Progressed) -> bool:
        """Pieces of one text that wait behind each other travel as one."""
        if not self._frames:
            return False
        after, last = self._frames[-1]
        if not isinstance(last, Progressed) or evolve(last, text="") != evolve(
            new, text=""
        ):
            return False
        if len(last.text) + len(new.text) > MAX_LIVE_TEXT:
            return False
        self._frames[-1] = (after, evolve(last, text=last.text + new.text))
        return True

    def due(self, cursor: int) -> list[Frame]:
        """Take out what has its place right after this number, or before it."""
        frames: list[Frame] = []
        while self._frames and self._frames[0][0] <= cursor:
            frame = self._frames.popleft()[1]
            self._live -= isinstance(frame, Progressed)
            frames.append(frame)
        return frames

    def clear(self) -> None:
        self._frames.clear()
        self._live = 0


@define
class Outgoing:
    """One WebSocket message in the making."""

    frames: list[bytes] = field(factory=list[bytes])
    unnumbered: list[Frame] = field(factory=list[Frame])
    first: int | None = None

    def text(self, ack: int) -> str:
        """Make the envelope; the frames are JSON already."""
        envelope: dict[str, object] = {
            "frames": [orjson.Fragment(frame) for frame in self.frames],
            "ack": ack,
        }
        if self.first is not None:
            envelope["seq"] = self.first
        return orjson.dumps(envelope).decode()

    def add(self, frames: Sequence[Frame]) -> None:
        self.unnumbered.extend(frames)
        self.frames.extend(encode(frame) for frame in frames)


def compose(
    rows: Sequence[tuple[int, bytes]], unnumbered: Unnumbered, cursor: int
) -> tuple[Outgoing, int]:
    """Put numbered and other frames in order; give also the last number in it."""
    outgoing = Outgoing()
    outgoing.add(unnumbered.due(cursor))
    size = 0
    for number, frame in rows:
        if size and size + len(frame) > MAX_BATCH:
            break
        if number != cursor + 1:
            raise ValueError(f"outbound frame {number} follows {cursor}")
        if outgoing.first is None:
            outgoing.first = number
        outgoing.frames.append(frame)
        size += len(frame)
        cursor = number
        outgoing.add(unnumbered.due(cursor))
    return outgoing, cursor
