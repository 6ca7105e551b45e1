"""A warden that is stopped, by whomever, saves nobody from the end of the tree."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.rehearsal import open_stage
from tests.kit.trees import (
    ALL_KINDS,
    FOR_EVER,
    PREAMBLE,
    Ears,
    eventually,
    gone,
    left,
    living,
)

from agentteam_runtimes import orphans, process_table, warden_start
from agentteam_runtimes.contained import read_identity
from agentteam_runtimes.driver import Exited, ToolStarted
from agentteam_runtimes.incarnation import Limits

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_runtimes.incarnation import Incarnation
    from agentteam_runtimes.process_tree import ProcessIdentity

pytestmark = [
    pytest.mark.slow,
    pytest.mark.bug("B01"),
    pytest.mark.usefixtures("level"),
]

# What an actor gives a kill.
SOON = 2.0
STOPS_ITS_WARDEN = PREAMBLE + (
    "all_kinds(); os.kill(os.getppid(), signal.SIGSTOP); say('ready')" + FOR_EVER
)


@pytest.fixture(params=["cgroup", "subreaper"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the cgroup away half of the time: the walk must do without it."""
    assert orphans.ensure_subreaper()
    if request.param == "subreaper":
        monkeypatch.setattr(warden_start, "make_cgroup", str)


def freeze(incarnation: Incarnation) -> None:
    """Stop the warden and all that is below it."""
    warden = incarnation.identity.warden.pid
    for pid in (warden, *(p.pid for p in process_table.read_tree(warden))):
        os.kill(pid, signal.SIGSTOP)


def is_stopped(warden: ProcessIdentity) -> bool:
    process = warden.find()
    return process is not None and process.state == "T"


async def test_a_tree_that_is_stopped_with_its_warden_is_killed_soon() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            freeze(incarnation)
            with trio.fail_after(SOON):
                assert await incarnation.kill(1.0) == ()
            assert left(processes) == []
            ended = await incarnation.wait()
            assert (ended.returncode, ended.why) == (-9, "warden")
            assert gone(incarnation.identity.warden)


async def test_leaving_ends_the_tree_of_a_warden_that_it_stopped() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(STOPS_ITS_WARDEN) as incarnation:
            processes = await ears.ready()
            began = trio.current_time()
        assert trio.current_time() - began < SOON
        assert left(processes) == []
        assert gone(incarnation.identity.runtime)
        assert gone(incarnation.identity.warden)


async def test_a_sweep_ends_the_tree_of_a_stopped_warden_and_names_it() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(STOPS_ITS_WARDEN) as incarnation:
            processes = await ears.ready()
            with trio.fail_after(SOON):
                swept = await incarnation.sweep(incarnation.mark())
            assert swept.survivors == ()
            ended = {one.pid for one in swept.ended}
            assert ended >= {one.pid for one in processes.values()}
            assert living(processes) == []
            assert (await incarnation.wait()).why == "warden"


async def test_terminate_ends_the_tree_of_a_stopped_warden() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(STOPS_ITS_WARDEN) as incarnation:
            processes = await ears.ready()
            with trio.fail_after(SOON):
                await incarnation.terminate()
            assert living(processes) == []


async def test_a_warden_that_is_stopped_again_and_again_is_done_without() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            # It takes the order, and is stopped before it has carried it out.
            await incarnation.processes()
            os.kill(incarnation.identity.warden.pid, signal.SIGSTOP)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(incarnation.kill, 1.0)
                await incarnation.kill(1.0)
            assert living(processes) == []


async def test_what_cannot_be_ended_is_named_although_the_warden_is_mute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ears = Ears()
    with trio.fail_after(20):
        limits = Limits(kill=0.2, answer=0.1, heed=0.1)
        async with ears.open(ALL_KINDS + FOR_EVER, limits=limits) as incarnation:
            processes = await ears.ready()
            freeze(incarnation)
            with monkeypatch.context() as patch:
                # Nobody can make a process that survives SIGKILL: none is sent.
                patch.setattr(process_table, "strike", lambda look: look())
                patch.setattr(
                    "agentteam_runtimes.old_trees.kill_cgroup", lambda path: None
                )
                survivors = {one.pid for one in await incarnation.kill()}
            assert survivors >= {processes["own-session"].pid, processes["deaf"].pid}
            for one in processes.values():
                os.kill(one.pid, signal.SIGKILL)
            await eventually(lambda: living(processes) == [])
    for stray in orphans.strays():
        orphans.reap(stray.pid)


async def test_a_tool_that_stops_the_warden_outlives_no_sweep(tmp_path: Path) -> None:
    with trio.fail_after(20):
        async with open_stage(tmp_path) as stage:
            containment = stage.runtime.containment
            assert containment is not None
            mark = containment.mark()
            script = "echo $$ >pid; kill -STOP $(ps -o ppid= -p $PPID); sleep 4842"
            turn = await stage.begin({"run": script}, {"wait": 60_000})
            await stage.until(ToolStarted)
            pid_file = tmp_path / "pid"
            await eventually(lambda: pid_file.exists() and bool(pid_file.read_text()))
            shell = int(pid_file.read_text())
            tree = read_identity(containment.identity)
            assert tree is not None
            await eventually(lambda: is_stopped(tree.warden))
            await stage.runtime.interrupt(turn)
            with trio.fail_after(SOON):
                assert await containment.sweep(mark) == []
            await stage.until(Exited)
            assert process_table.read_process(shell) is None
