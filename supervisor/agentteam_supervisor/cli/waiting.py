"""A person who waits is told so: for an answer, and for a line that is down."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click
from attrs import define, field

from agentteam_supervisor.cli.speech import say

if TYPE_CHECKING:
    from collections.abc import Generator

# A wait that is longer than this is felt.
FELT = 3.0
# Shorter outages of the event stream are nobody's business.
SHORT = 1.0


class Tell(Protocol):
    """Told when the line to the server is down, or back (`lost` False)."""

    def __call__(self, url: str, lost: bool, seconds: float) -> None: ...


def quiet() -> bool:
    """With --json standard error is for one object, the error."""
    context = click.get_current_context(silent=True)
    return context is None or bool(context.params.get("as_json"))


@contextmanager
def answer_awaited(url: str, seconds: float, expected: float = 0) -> Generator[None]:
    """Say once that nobody answers yet; `expected` is how long that is no wonder."""
    if quiet():
        yield
        return
    words = _no_answer_yet(url, expected + FELT, seconds)
    timer = threading.Timer(expected + FELT, click.echo, (words,), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@define
class Line:
    """When the line was last heard, and what of its silence has been told."""

    tell: Tell
    heard_at: float = field(factory=time.monotonic)
    _next: float = SHORT
    _down: bool = False

    @property
    def silent_for(self) -> float:
        return time.monotonic() - self.heard_at

    @property
    def down(self) -> bool:
        """The last attempt to hear something failed."""
        return self._down

    def heard(self, url: str) -> None:
        if self._down and self._next > SHORT:
            self.tell(url, lost=False, seconds=self.silent_for)
        self.heard_at, self._next, self._down = time.monotonic(), SHORT, False

    def failed(self, url: str) -> None:
        """Tell at once when it is felt, then less and less often."""
        self._down = True
        if self.silent_for >= self._next:
            self.tell(url, lost=True, seconds=self.silent_for)
            self._next = 2 * self.silent_for


def tell_people(url: str, lost: bool, seconds: float) -> None:
    """Say it on standard error, where it disturbs no output."""
    if not quiet():
        click.echo(line_words(url, lost, seconds), err=True)


def line_words(url: str, lost: bool, seconds: float) -> str:
    if lost:
        return say(
            f"reconnecting to {url}: no answer for {seconds:.0f} s",
            f"正在重新连接 {url}：已 {seconds:.0f} 秒没有应答",
        )
    return say(
        f"connected again after {seconds:.0f} s", f"{seconds:.0f} 秒后已恢复连接"
    )


def _no_answer_yet(url: str, so_far: float, limit: float) -> str:
    return say(
        f"no answer from {url} for {so_far:.0f} s; waiting up to {limit:.0f} s",
        f"{url} 已 {so_far:.0f} 秒没有应答；最多等待 {limit:.0f} 秒",
    )
