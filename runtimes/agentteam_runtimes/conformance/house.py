"""Where the checks are played: the scenes that they share, and the loop these live in."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from agentteam_runtimes.conformance.loop import Loop
from agentteam_runtimes.conformance.scene import Scene
from agentteam_runtimes.conformance.stage import OpenStage, Stage
from agentteam_runtimes.driver import Capabilities, Driver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@define(eq=False)
class House:
    """One driver on trial; close it, for what is left of it to be looked at."""

    driver: Driver
    open_stage: OpenStage
    directory: Path
    patience: float
    able: Capabilities | None = None  # once a stage has said which program it is
    _loop: Loop = field(factory=Loop)
    _scenes: dict[bool, Scene] = field(factory=dict[bool, Scene])
    _numbers: itertools.count[int] = field(factory=lambda: itertools.count(1))

    def run(self, job: Callable[[], Awaitable[None]]) -> None:
        self._loop.run(job)

    def close(self) -> None:
        """End the scenes; raises what was wrong with them."""
        try:
            self._loop.run(self._dismiss_all)
        finally:
            self._loop.close()

    def place(self) -> Path:
        """Make a directory for a scene."""
        place = self.directory / f"scene{next(self._numbers)}"
        for name in ("work", "state"):
            (place / name).mkdir(parents=True)
        return place

    def set_up(self, stage: Stage, place: Path) -> Scene:
        """Set a stage; the first is asked for the program that all of them start."""
        if self.able is None:
            self.able = self.driver.probe(stage.options())
        return Scene(self.driver, stage, place, self.patience)

    async def scene(self, *, asks: bool) -> Scene:
        """Give the scene that checks share, with its incarnation open."""
        if (known := self._scenes.get(asks)) is not None:
            return known
        scene: Scene = await self._loop.nursery.start(self._keep, asks)
        try:
            await scene.opened()
        except BaseException:
            with trio.CancelScope(shield=True):
                await scene.leave()
            raise
        self._scenes[asks] = scene
        return scene

    async def dismiss(self, scene: Scene) -> BaseException | None:
        """End a scene that no check shall go on with; gives what was wrong with it."""
        self._scenes = {k: s for k, s in self._scenes.items() if s is not scene}
        return await scene.leave()

    async def _dismiss_all(self) -> None:
        found = [await self.dismiss(scene) for scene in tuple(self._scenes.values())]
        for failure in found:
            if failure is not None:
                raise failure

    async def _keep(
        self, asks: bool, task_status: trio.TaskStatus[Scene] = trio.TASK_STATUS_IGNORED
    ) -> None:
        place = self.place()
        async with self.open_stage(place) as stage:
            scene = self.set_up(stage, place)
            task_status.started(scene)
            await scene.hold(asks)
