"""
One run of trio that outlives single checks: what they share stays open in it.

It is a guest of this thread, and stands still between two checks.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio
from attrs import define, field
from outcome import Outcome, acapture  # of trio's own interface for guests

if TYPE_CHECKING:
    from collections.abc import Awaitable


@define(eq=False)
class Loop:
    """Runs jobs one after the other; `nursery` is for what shall outlive a job."""

    nursery: trio.Nursery = field(init=False)
    _due: queue.SimpleQueue[Callable[[], Any]] = field(
        factory=queue.SimpleQueue[Callable[[], Any]]
    )
    _token: trio.lowlevel.TrioToken | None = None
    _over: Outcome[None] | None = None

    def __attrs_post_init__(self) -> None:
        trio.lowlevel.start_guest_run(
            self._main, run_sync_soon_threadsafe=self._due.put, done_callback=self._end
        )
        self._pump(lambda: self._token is not None)

    def run(self, job: Callable[[], Awaitable[None]]) -> None:
        """Run a job to its end; raises what it raises."""
        ended: list[Outcome[None]] = []

        async def keep() -> None:
            ended.append(await acapture(job))

        self._soon(lambda: self.nursery.start_soon(keep))
        self._pump(lambda: bool(ended))
        ended[0].unwrap()

    def close(self) -> None:
        """End whatever is still open in it."""
        self._soon(lambda: self.nursery.cancel_scope.cancel())
        self._pump(lambda: self._over is not None)

    async def _main(self) -> None:
        async with trio.open_nursery() as self.nursery:
            self._token = trio.lowlevel.current_trio_token()
            await trio.sleep_forever()

    def _end(self, over: Outcome[None]) -> None:
        self._over = over

    def _soon(self, call: Callable[[], None]) -> None:
        if self._token is not None and self._over is None:
            self._token.run_sync_soon(call)

    def _pump(self, done: Callable[[], bool]) -> None:
        """Take trio's turns until it is done, or the run is over."""
        while not done():
            if self._over is not None:
                self._over.unwrap()
                raise RuntimeError("the loop of the checks has ended")
            self._due.get()()
