"""Nothing outlives its life; who lost warden and supervisor has until the next."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import define

from agentteam_supervisor.chaos import world as worlds
from agentteam_supervisor.chaos.births import Births
from agentteam_supervisor.chaos.proof import Proof
from agentteam_supervisor.chaos.service import Service
from agentteam_supervisor.chaos.story import Story
from agentteam_supervisor.chaos.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@define(eq=False)
class Sweeping(Service):
    """A service that ends nothing, or all that is left, when it starts."""

    process: trio.Process | None = None

    async def start(self, verb: str, crash: str = "", log: Path | None = None) -> bool:
        if self.process is not None:
            self.process.kill()
            await self.process.wait()
        return True


@asynccontextmanager
async def left_behind(place: Path) -> AsyncGenerator[tuple[World, trio.Process]]:
    """Make a world that is down, and a process of it that is alive."""
    async with trio.open_nursery() as nursery:
        story = Story(trio.current_time())
        world = World(place, nursery, Births(), Proof(1), story, lambda *_: None)
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
            env={"HOME": str(place)},
            stdout=subprocess.PIPE,
        )
        assert isinstance(process.stdout, trio.lowlevel.FdStream)
        try:
            async with process.stdout:
                await process.stdout.receive_some()  # the environment is its own by now
                yield world, process
        finally:
            process.kill()
            await process.wait()
            await world.traffic.person.client.aclose()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "GONE_WITHIN", 0.05)


@pytest.mark.slow
@pytest.mark.bug("B01")
async def test_what_outlives_its_life_is_found_before_the_next_starts(
    tmp_path: Path,
) -> None:
    with trio.fail_after(30):
        async with left_behind(tmp_path) as (world, process):
            world.service = Sweeping(tmp_path, world.nursery, world.service.proxy)
            await world.revive("up")
            assert [seen.pid for seen in world.outlived] == [process.pid]


@pytest.mark.slow
@pytest.mark.bug("B01")
@pytest.mark.parametrize("swept", [True, False])
async def test_what_lost_its_warden_is_to_be_gone_when_the_next_life_serves(
    tmp_path: Path, swept: bool
) -> None:
    with trio.fail_after(30):
        async with left_behind(tmp_path) as (world, process):
            service = Sweeping(tmp_path, world.nursery, world.service.proxy)
            service.process = process if swept else None
            world.service, world.faults.unguarded = service, True
            await world.revive("up")
            seen = [] if swept else [process.pid]
            assert [sighting.pid for sighting in world.outlived] == seen
            assert not world.faults.unguarded
