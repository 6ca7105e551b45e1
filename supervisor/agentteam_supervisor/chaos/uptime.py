"""A clock that stands still while something keeps the product from acting."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio
from attrs import define

if TYPE_CHECKING:
    from collections.abc import Generator


@define(eq=False)
class Uptime:
    """However many things keep it at once, the time is lost once."""

    _causes: int = 0
    _since: float = 0.0
    _lost: float = 0.0

    def now(self) -> float:
        """Give seconds from some moment on, those aside in which it was kept."""
        now = trio.current_time()
        return (self._since if self._causes else now) - self._lost

    def stop(self) -> None:
        if not self._causes:
            self._since = trio.current_time()
        self._causes += 1

    def go_on(self) -> None:
        self._causes -= 1
        if not self._causes:
            self._lost += trio.current_time() - self._since

    @contextmanager
    def kept(self) -> Generator[None]:
        self.stop()
        try:
            yield
        finally:
            self.go_on()
