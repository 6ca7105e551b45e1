"""What a check is given: the driver, a stage of its own, and how to open a session."""

from __future__ import annotations

import functools
import itertools
import secrets
from contextlib import asynccontextmanager
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, NoReturn

import pytest
import trio
from attrs import define, field

from agentteam_protocol.errors import RuntimeFailure
from agentteam_runtimes.conformance import traces
from agentteam_runtimes.conformance.claims import Claims
from agentteam_runtimes.conformance.house import House
from agentteam_runtimes.conformance.live import Live
from agentteam_runtimes.conformance.scene import BOUNDED, Scene, not_tried
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
    from pathlib import Path
    from typing import Concatenate, ParamSpec

    from agentteam_runtimes.conformance.judge import Judge
    from agentteam_runtimes.conformance.stage import Stage
    from agentteam_runtimes.process_table import Process

    P = ParamSpec("P")

CHECK_SECONDS = 300.0  # above the sum of a check's own bounds
NUMBERS = itertools.count(1)


class Where(Enum):
    """The scene of a check."""

    shared = "the one that most checks share"
    asking = "the one whose tools ask first"
    alone = "one of its own: it opens, leaves or kills"


@define(eq=False)
class Bench:
    """One check's place. `scene` is there while it runs."""

    house: House
    claims: Claims
    scene: Scene = field(init=False)
    known: int = 0  # entries of the checks before it
    _nonce: str = field(factory=lambda: secrets.token_hex(3))
    _number: int = field(factory=lambda: next(NUMBERS))
    _words: itertools.count[int] = field(factory=lambda: itertools.count(1))

    async def perform(self, body: Callable[[], Awaitable[None]], where: Where) -> None:
        """Set the scene, do the check, and look what is left after it."""
        with trio.fail_after(CHECK_SECONDS):
            if where is Where.alone:
                await self._perform_alone(body)
            else:
                asks = where is Where.asking
                await self._perform(body, await self.house.scene(asks=asks))

    async def _perform_alone(self, body: Callable[[], Awaitable[None]]) -> None:
        place = self.house.place()
        async with self.house.open_stage(place) as stage:
            scene = self.house.set_up(stage, place)
            self._enter(scene)
            try:
                await body()
                scene.verdict()
                if left := await scene.left_behind():
                    raise left
            finally:
                scene.clear()

    async def _perform(self, body: Callable[[], Awaitable[None]], scene: Scene) -> None:
        self._enter(scene)
        passed = False
        try:
            try:
                await body()
                scene.verdict()
            except NotTried:
                passed = scene.reusable
                raise
            passed = True
        finally:
            scene.live = None
            if not (passed and scene.reusable):
                await self._dismiss(scene, passed)

    async def _dismiss(self, scene: Scene, passed: bool) -> None:
        """End the scene; its own failure counts unless the check has one."""
        failure: BaseException | None = None
        with trio.CancelScope(shield=True):
            failure = await self.house.dismiss(scene)
        scene.clear()
        if passed and failure is not None:
            raise failure

    def _enter(self, scene: Scene) -> None:
        self.scene = scene
        self.claims.able = self.able
        self.known = len(scene.judge.entries)
        self.workdir.mkdir()

    @asynccontextmanager
    async def open(
        self, *, asks: bool = False, resume: str | None = None
    ) -> AsyncGenerator[Live]:
        """Give the incarnation that is open, or open one as a session does."""
        live = self.scene.live = Live(self)
        if self.scene.runtime is not None:
            live.runtime = self.scene.runtime
            yield live
            live.verdict()
            return
        self.judge.opens()
        seconds = self.scene.seconds
        what = "open() did not return"
        with trio.CancelScope(deadline=trio.current_time() + seconds) as bound:
            spec = self.spec(asks=asks)
            opening = self.driver.open(spec, resume, self.scene.emit)
            async with opening as live.runtime:
                bound.deadline, what = inf, "leaving the incarnation did not end"
                yield live
                live.verdict()
                bound.deadline = trio.current_time() + seconds
        if bound.cancelled_caught:
            raise Fault(f"{what} within {seconds:g} s", BOUNDED)

    # The scene's

    @property
    def driver(self) -> Driver:
        return self.house.driver

    @property
    def patience(self) -> float:
        return self.house.patience

    @property
    def stage(self) -> Stage:
        return self.scene.stage

    @property
    def able(self) -> Capabilities:
        assert self.house.able is not None, "a scene is set"
        return self.house.able

    @property
    def judge(self) -> Judge:
        return self.scene.judge

    @property
    def mark(self) -> str:
        return self.scene.mark

    def spec(self, *, asks: bool = False) -> SessionSpec:
        return self.scene.spec(asks=asks)

    @property
    def workdir(self) -> Path:
        """This check's own directory, where tools may write without anybody's leave."""
        return self.scene.workdir / f"check{self._number}"

    def word(self) -> str:
        """A word that no other entry of this check has."""
        return f"word{next(self._words)}-{self._nonce}"

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

    async def gone(self, processes: list[Process], within: float) -> list[Process]:
        """Wait until these have ended; returns those that have not."""
        return await traces.gone(processes, within)


def played(body: str | None, what: str) -> str:
    """Give the body, or say that this stage cannot."""
    return not_tried(f"the stage has no {what}") if body is None else body


def check(
    body: Callable[Concatenate[Bench, P], Awaitable[None]],
) -> Callable[Concatenate[Bench, P], None]:
    """Make a test of a check that goes on with what the ones before it left open."""
    return _test(body, Where.shared)


def check_asking(
    body: Callable[Concatenate[Bench, P], Awaitable[None]],
) -> Callable[Concatenate[Bench, P], None]:
    """Do as `check` does, where tools ask before they run."""
    return _test(body, Where.asking)


def check_alone(
    body: Callable[Concatenate[Bench, P], Awaitable[None]],
) -> Callable[Concatenate[Bench, P], None]:
    """Make a test of a check that opens, leaves and kills what it likes."""
    return _test(body, Where.alone)


def _test(
    body: Callable[Concatenate[Bench, P], Awaitable[None]], where: Where
) -> Callable[Concatenate[Bench, P], None]:
    """Make a test that runs in trio whatever other plugins are installed."""

    @functools.wraps(body)
    def test(bench: Bench, *args: P.args, **kwargs: P.kwargs) -> None:
        failure: BaseException | None = None
        try:
            bench.house.run(
                lambda: bench.perform(lambda: body(bench, *args, **kwargs), where)
            )
        except BaseException as error:  # the boundary: whatever it was ends the test
            failure = error
        # Outside of the handler, so that no chain of exceptions is shown.
        if failure is not None:
            report(failure)

    return test  # type: ignore[return-value]  # pytest passes the bench by its name


def report(error: BaseException) -> NoReturn:
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
