"""Deadlines by name, on trio's clock, and how long each of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from attrs import frozen

from agentteam_supervisor.session.events import DeadlinePassed

if TYPE_CHECKING:
    from collections.abc import Callable

SILENCE = "silence"


@frozen
class Limits:
    """
    Seconds; None: never.

    The first nine bear the names that the machine sets. `request` bounds a call of a
    runtime or a service, `close` the clean end of a runtime, `shutdown` a session's.
    """

    start: float | None = 30.0
    interrupt: float | None = 5.0
    interrupt_soft: float | None = 30.0
    sweep: float | None = 3.0
    settle: float | None = 5.0
    terminate: float | None = 2.0
    kill: float | None = 2.0
    maintenance: float | None = 10.0
    silence: float | None = None
    request: float = 30.0
    close: float = 10.0
    shutdown: float = 60.0


class Deadlines:
    """
    Feeds `DeadlinePassed` for each name that is set and not cleared in time.

    Silence counts from the runtime's last event, and never while a call or an ask is
    open: that is honest work (`busy` tells).
    """

    def __init__(
        self,
        limits: Limits,
        feed: Callable[[DeadlinePassed], None],
        busy: Callable[[], bool],
    ) -> None:
        self._limits = limits
        self._feed = feed
        self._busy = busy
        self._due: dict[str, float] = {}
        self._heard = 0.0
        self._changed = trio.Event()

    def set(self, name: str) -> None:
        """Arm a deadline; one that is armed already keeps the earlier time."""
        limit: float | None = getattr(self._limits, name)
        if limit is None:
            return
        if name == SILENCE:
            self.heard()
        at = trio.current_time() + limit
        self._due[name] = min(at, self._due.get(name, at))
        self._wake()

    def clear(self, name: str) -> None:
        # The waiting task finds out when it wakes; clearing costs it nothing.
        self._due.pop(name, None)

    def heard(self) -> None:
        """The runtime gave a sign of life."""
        self._heard = trio.current_time()

    async def run(self) -> None:
        while True:
            with trio.move_on_at(min(self._due.values(), default=float("inf"))):
                await self._changed.wait()
            self._changed = trio.Event()
            self._fire()

    def _fire(self) -> None:
        # Each one is looked up again: what the first sets off may clear the next.
        while (name := self._next_due()) is not None:
            if name == SILENCE and (later := self._still_lively()) is not None:
                self._due[name] = later
            else:
                del self._due[name]
                self._feed(DeadlinePassed(name))

    def _next_due(self) -> str | None:
        now = trio.current_time()
        due = [(at, name) for name, at in self._due.items() if at <= now]
        return min(due)[1] if due else None

    def _still_lively(self) -> float | None:
        """Tell when to look again, unless the runtime is silent without a reason."""
        now, limit = trio.current_time(), self._limits.silence or 0.0
        if self._busy():
            return now + limit
        quiet_until = self._heard + limit
        return quiet_until if quiet_until > now else None

    def _wake(self) -> None:
        self._changed.set()
