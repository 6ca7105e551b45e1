"""What is told of a line that was too long, and of a process that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from agentteam_protocol.errors import QueueFull, RuntimeExited, RuntimeRefused
from agentteam_runtimes.driver import Exited, Noticed, RuntimeEvent

if TYPE_CHECKING:
    from agentteam_runtimes.incarnation import Exit, Incarnation
    from agentteam_runtimes.lines import Overlong

LAST_WORDS_SECONDS = 2.0
LONGEST_HALF = 400  # bytes


def dropped(line: Overlong) -> Noticed:
    sample = line.head.decode("utf-8", "replace")
    return Noticed("a line over the limit was dropped", sample)


def closing(end: Exit, fault: str = "") -> list[RuntimeEvent]:
    """Tell of the end of a process that speaks in lines, and of one it had begun."""
    half = (end.half_line or b"")[:LONGEST_HALF].decode("utf-8", "replace")
    notice = [Noticed("half a line at the end of stdout", half)] if half else []
    return [*notice, Exited(end.returncode, end.stderr_tail, fault)]


async def last_words(incarnation: Incarnation, known: RuntimeExited) -> RuntimeExited:
    """Wait for what it wrote to stderr: a broken pipe is noticed before that is read."""
    with trio.move_on_after(LAST_WORDS_SECONDS):
        end = await incarnation.wait()
        return RuntimeExited(end.returncode, end.stderr_tail)
    return known


async def write_or_refuse(incarnation: Incarnation | None, data: bytes) -> None:
    """Write to its input; raises `RuntimeRefused` when too much waits there."""
    assert incarnation is not None, "nothing is written before it is open"
    try:
        await incarnation.write(data)
    except QueueFull as full:
        raise RuntimeRefused(f"nothing was written: {full}") from full
