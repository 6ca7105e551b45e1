"""Telling waiters that something moved, without telling them what."""

from __future__ import annotations

import trio


class Pulse:
    """
    A beat that many tasks can wait for.

    Take the ticket before you look, wait for it when there was nothing to see: a
    beat between the two is then never missed.
    """

    def __init__(self) -> None:
        self._next = trio.Event()

    def ticket(self) -> trio.Event:
        return self._next

    def beat(self) -> None:
        passed, self._next = self._next, trio.Event()
        passed.set()
