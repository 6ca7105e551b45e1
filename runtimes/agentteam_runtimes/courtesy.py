"""How a task that has much to do makes room for everybody else of this program."""

from __future__ import annotations

import time
from typing import Protocol
from weakref import WeakSet

import trio

# Shorter than that is no turn of anybody: the loop went round and nobody was there.
QUIET_SECONDS = 0.0001
LOOK_SECONDS = 0.001


class Thread(Protocol):
    """A thread that serves the loop; it needs the interpreter to get on."""

    @property
    def owes(self) -> bool:
        """Tell whether somebody waits for it."""
        ...


_threads: WeakSet[Thread] = WeakSet()


def respect(thread: Thread) -> None:
    """Make room for this thread, too, for as long as it lives."""
    _threads.add(thread)


async def give_way(seconds: float) -> None:
    """
    Let everybody else run who has something to do, for at most so long.

    A checkpoint alone would give the tasks one turn for our every one, and a thread
    the interpreter once in a switch interval.
    """
    began = time.perf_counter()
    quiet = 0
    # The order within a round is drawn by lot: one of two may have passed us by.
    while quiet < 2 and (now := time.perf_counter()) - began < seconds:
        if _threads_are_at_work():
            await trio.sleep(LOOK_SECONDS)
            quiet = 0
            continue
        await trio.lowlevel.checkpoint()
        quiet = quiet + 1 if time.perf_counter() - now < QUIET_SECONDS else 0


def _threads_are_at_work() -> bool:
    borrowed = trio.to_thread.current_default_thread_limiter().borrowed_tokens
    return borrowed > 0 or any(thread.owes for thread in _threads)
