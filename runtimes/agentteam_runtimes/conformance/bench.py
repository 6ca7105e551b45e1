"""What a check is given: the driver, a stage of its own, and how to open a session."""

from __future__ import annotations

import functools
import itertools
import secrets
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
from attrs import define, evolve, field

from agentteam_protocol.errors import RuntimeFailure
from agentteam_protocol.ids import AgentId
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.claims import Claims
from agentteam_runtimes.conformance.judge import Judge
from agentteam_runtimes.conformance.live import Live
from agentteam_runtimes.conformance.stage import OpenStage, Stage
from agentteam_runtimes.conformance.verdict import Fault, NotTried, leaves
from agentteam_runtimes.driver import (
    Capabilities,
    Driver,
    Interrupt,
    SessionSpec,
    Steer,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from typing import Concatenate, ParamSpec

    from agentteam_runtimes.process_table import Process

    P = ParamSpec("P")

CHECK_SECONDS = 300.0  # above the sum of a check's own bounds
STARTS = 6  # a start or an end may take so many times the patience
BOUNDED = "a start that cannot be is an error in time, and leaving always ends."
GONE_SECONDS = 3.0  # how long the kernel may take to forget what was killed


@define(eq=False)
class Bench:
    """One check's place. `stage`, `able` and `judge` are there while it runs."""

    driver: Driver
    open_stage: OpenStage
    directory: Path
    claims: Claims
    patience: float
    mark: str = field(factory=lambda: secrets.token_hex(8))
    judge: Judge = field(factory=Judge)
    stage: Stage = field(init=False)
    able: Capabilities = field(init=False)
    _words: itertools.count[int] = field(factory=lambda: itertools.count(1))

    async def perform(self, body: Callable[[], Awaitable[None]]) -> None:
        """Set the stage, do the check, and look what is left alive after it."""
        for name in ("work", "state"):
            (self.directory / name).mkdir()
        try:
            with trio.fail_after(CHECK_SECONDS):
                async with self.open_stage(self.directory) as self.stage:
                    self.able = self.driver.probe(self.stage.options())
                    self.claims.able = self.able
                    await body()
                    self._verdict()
                    await self._all_gone()
        finally:
            for process in traces.marked(self.mark):
                traces.kill(process)

    @asynccontextmanager
    async def open(
        self, *, asks: bool = False, resume: str | None = None
    ) -> AsyncGenerator[Live]:
        """Open an incarnation, as a session does; start and end have a bound too."""
        spec = self.spec(asks=asks)
        self.judge.opens()
        live = Live(self)
        seconds = STARTS * self.patience
        what = "open() did not return"
        with trio.CancelScope(deadline=trio.current_time() + seconds) as bound:
            async with self.driver.open(spec, resume, live.emit) as live.runtime:
                bound.deadline, what = inf, "leaving the incarnation did not end"
                yield live
                live.verdict()
                bound.deadline = trio.current_time() + seconds
        if bound.cancelled_caught:
            raise Fault(f"{what} within {seconds:g} s", BOUNDED)

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

    @property
    def workdir(self) -> Path:
        """Where tools may write without anybody's leave."""
        return self.directory / "work"

    def word(self) -> str:
        """A word that no other entry of this check has."""
        return f"word{next(self._words)}-{self.mark[:6]}"

    # What the check needs

    def needs_steer(self) -> None:
        if self.able.steer is Steer.none:
            not_tried("the driver declares that it cannot steer")

    def needs_interrupt(self) -> None:
        if self.able.interrupt is Interrupt.none:
            not_tried("the driver declares that it cannot interrupt")

    def needs(self, capability: str) -> None:
        if not getattr(self.able, capability):
            not_tried(f"the driver does not declare {capability}")

    def run(self, shell: str) -> str:
        return played(self.stage.run(shell), "run")

    def tool(self, program: str, name: str) -> str:
        """Make the model run one of the kit's programs, which writes its id there."""
        return self.run(self.command(program, name))

    def command(self, program: str, name: str) -> str:
        """Write the program down; returns the shell line that runs it."""
        script = self.workdir / f"{name}.sh"
        script.write_text(program)
        return f"sh {script} {self.workdir / name}"

    # What must be gone

    async def gone(self, processes: list[Process], within: float) -> list[Process]:
        """Wait until these have ended; returns those that have not."""
        with trio.move_on_after(within):
            while traces.living(processes):  # noqa: ASYNC110 - the kernel sets no event
                await trio.sleep(0.02)
        return traces.living(processes)

    async def _all_gone(self) -> None:
        left = await self.gone(traces.marked(self.mark), GONE_SECONDS)
        if left:
            raise Fault(
                "after the incarnation was left these still run: " + traces.shown(left),
                "leaving the context of `open` ends all of it, tools and what they"
                " started among it (`open_incarnation` does that).",
            )

    def _verdict(self) -> None:
        if self.judge.faults:
            raise self.judge.faults[0]


def played(body: str | None, what: str) -> str:
    """Give the body, or say that this stage cannot."""
    return not_tried(f"the stage has no {what}") if body is None else body


def not_tried(why: str) -> NoReturn:
    raise NotTried(why)


def check(
    body: Callable[Concatenate[Bench, P], Awaitable[None]],
) -> Callable[Concatenate[Bench, P], None]:
    """Make a test of a check: it runs in trio whatever other plugins are installed."""

    @functools.wraps(body)
    def test(bench: Bench, *args: P.args, **kwargs: P.kwargs) -> None:
        failure: BaseException | None = None
        try:
            trio.run(bench.perform, lambda: body(bench, *args, **kwargs))
        except BaseException as error:  # the boundary: whatever it was ends the test
            failure = error
        # Outside of the handler, so that no chain of exceptions is shown.
        if failure is not None:
            _report(failure)

    return test  # type: ignore[return-value]  # pytest passes the bench by its name


def _report(error: BaseException) -> NoReturn:
    """End the test in pytest's way, by the most telling of what was raised."""
    found = list(leaves(error))
    for leaf in found:
        if isinstance(leaf, Fault):
            pytest.fail(str(leaf), pytrace=False)
    for leaf in found:
        if isinstance(leaf, NotTried):
            pytest.skip(str(leaf))
        if isinstance(leaf, RuntimeFailure):
            kind = type(leaf).__name__
            pytest.fail(f"the driver raised {kind}: {leaf}", pytrace=False)
    raise error
