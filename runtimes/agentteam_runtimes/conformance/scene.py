"""
A stage that is set, with the books of what is played on it.

Most checks share one: its incarnation stays open from one to the next, for starting a
runtime costs more than most of what is looked at. A check that ends a process, opens
one, or fails, has a scene of its own, or leaves none behind.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NoReturn

import trio
from attrs import define, evolve, field

from agentteam_protocol.ids import AgentId
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.judge import Judge
from agentteam_runtimes.conformance.live import Live
from agentteam_runtimes.conformance.stage import Stage
from agentteam_runtimes.conformance.verdict import Fault, NotTried
from agentteam_runtimes.driver import Driver, Runtime, SessionSpec

STARTS = 6  # a start or an end may take so many times the patience
BOUNDED = "a start that cannot be is an error in time, and leaving always ends."
GONE_SECONDS = 3.0  # how long the kernel may take to forget what was killed


@define(eq=False)
class Scene:
    """One directory, its stage, and at most one incarnation at a time."""

    driver: Driver
    stage: Stage
    directory: Path
    patience: float
    mark: str = field(factory=lambda: secrets.token_hex(8))
    judge: Judge = field(factory=Judge)
    runtime: Runtime | None = None  # the one that stays open
    live: Live | None = None  # whoever listens to it now
    _failure: BaseException | None = None  # by which it ended
    _scope: trio.CancelScope = field(factory=trio.CancelScope)
    _opened: trio.Event = field(factory=trio.Event)
    _leave: trio.Event = field(factory=trio.Event)
    _left: trio.Event = field(factory=trio.Event)

    @property
    def workdir(self) -> Path:
        return self.directory / "work"

    @property
    def seconds(self) -> float:
        """How long a start or an end may take."""
        return STARTS * self.patience

    def spec(self, *, asks: bool = False) -> SessionSpec:
        options = self.stage.asking() if asks else self.stage.options()
        if options is None:
            not_tried("the stage has no asking")
        marked = {**options.env, traces.MARK: self.mark}
        return SessionSpec(
            AgentId("agt_conformance"),
            "conformance",
            self.workdir,
            self.directory / "state",
            options=evolve(options, env=marked),
        )

    def emit(self, events: object) -> None:
        """Be the `emit` of the driver: a plain call that keeps and judges."""
        self.judge.hear(events)  # type: ignore[arg-type]  # the judge looks at it
        if self.live is not None:
            self.live.look()

    def verdict(self) -> None:
        """Raise the first rule that was broken so far."""
        if self.judge.faults:
            raise self.judge.faults[0]

    @property
    def reusable(self) -> bool:
        """Nothing runs, nothing is amiss: the next check may go on here."""
        return not self._left.is_set() and self.judge.at_rest

    # An incarnation that stays open.

    async def hold(self, asks: bool) -> None:
        """Keep an incarnation open until `leave`, in a task of its own."""
        self.judge.opens()
        try:
            with self._scope:
                spec = self.spec(asks=asks)
                async with self.driver.open(spec, None, self.emit) as self.runtime:
                    self._opened.set()
                    await self._leave.wait()
        except Exception as error:  # the boundary: a driver is somebody else's code
            self._failure = error
        finally:
            self._opened.set()
            self._left.set()

    async def opened(self) -> None:
        """Wait until it is open; raises what its start raised."""
        with trio.move_on_after(self.seconds) as bound:
            await self._opened.wait()
        if bound.cancelled_caught:
            self._scope.cancel()
            raise Fault(f"open() did not return within {self.seconds:g} s", BOUNDED)
        if self._failure is not None:
            raise self._failure

    async def leave(self) -> BaseException | None:
        """End the incarnation; gives what was wrong with it, or with its end."""
        self._leave.set()
        with trio.move_on_after(self.seconds) as bound:
            await self._left.wait()
        if bound.cancelled_caught:
            self._scope.cancel()
            what = "leaving the incarnation did not end"
            return Fault(f"{what} within {self.seconds:g} s", BOUNDED)
        if self._failure is not None or self.judge.faults:
            return self._failure or self.judge.faults[0]
        return await self.left_behind()

    async def left_behind(self) -> Fault | None:
        """Look what is alive after the end."""
        left = await traces.gone(traces.marked(self.mark), GONE_SECONDS)
        if not left:
            return None
        return Fault(
            "after the incarnation was left these still run: " + traces.shown(left),
            "leaving the context of `open` ends all of it, tools and what they"
            " started among it (`open_incarnation` does that).",
        )

    def clear(self) -> None:
        """End what a check that failed has left."""
        for process in traces.marked(self.mark):
            traces.kill(process)


def not_tried(why: str) -> NoReturn:
    raise NotTried(why)
