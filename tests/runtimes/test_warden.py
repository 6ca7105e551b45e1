from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve, frozen
from tests.kit.trees import (
    ALL_KINDS,
    ENVIRONMENT,
    FOR_EVER,
    KINDS,
    Ears,
    eventually,
    exists,
    gone,
    left,
    living,
)

from agentteam_runtimes import orphans, process_table, warden_start
from agentteam_runtimes.containment import (
    containment_level,
    find_cgroup_base,
    list_cgroup,
    remove_cgroup,
)
from agentteam_runtimes.incarnation import Limits
from agentteam_runtimes.lines import LineFramer
from agentteam_runtimes.old_trees import end_tree
from agentteam_runtimes.process_tree import ProcessIdentity, TreeIdentity

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@frozen
class Victim:
    process: trio.Process
    tree: TreeIdentity
    processes: dict[str, ProcessIdentity]

    @property
    def all_gone(self) -> bool:
        tree = {"runtime": self.tree.runtime, "warden": self.tree.warden}
        return not living({**self.processes, **tree})


@pytest.fixture(params=["cgroup", "subreaper"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take the cgroup away half of the time: the walk must do without it."""
    if request.param == "subreaper":
        monkeypatch.setattr(warden_start, "make_cgroup", str)
    return str(request.param)


@asynccontextmanager
async def open_victim(level: str, lease: float = 30.0) -> AsyncGenerator[Victim]:
    """Start a supervisor in a process of its own, with a runtime below it."""
    process = await trio.lowlevel.open_process(
        [
            sys.executable,
            "-m",
            "tests.kit.victim",
            str(lease),
            level,
            ALL_KINDS + FOR_EVER,
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    processes: dict[str, ProcessIdentity] = {}
    heirs: list[ProcessIdentity] = []
    cgroup = ""
    try:
        framer, ears = LineFramer(), Ears()
        with trio.fail_after(15):
            while b"ready" not in ears.lines:
                data = await process.stdout.receive_some()
                assert data, "the supervisor died too early"
                ears.lines += framer.feed(bytes(data))
        raw = json.loads(ears.lines[0])
        tree = TreeIdentity(
            ProcessIdentity(**raw["warden"]),
            ProcessIdentity(**raw["runtime"]),
            raw["boot"],
            raw["cgroup"],
        )
        cgroup = tree.cgroup
        processes |= ears.named()
        heirs += [tree.warden, tree.runtime, *processes.values()]
        assert sorted(processes) == sorted(KINDS)
        yield Victim(process, tree, processes)
    finally:
        # Some tests take away everybody who would do this.
        for one in processes.values():
            if (found := one.find()) is not None:
                process_table.send_signal(found, signal.SIGKILL)
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            with trio.move_on_after(5):
                await eventually(lambda: not list_cgroup(cgroup))
                # Once this process is a subreaper, they are its to reap.
                await eventually(lambda: all(map(is_buried, heirs)))
            remove_cgroup(cgroup)
            await process.stdout.aclose()


def is_buried(heir: ProcessIdentity) -> bool:
    """Reap what fell to us of a victim; True when nothing of it is left to reap."""
    ours = {p.key for p in orphans.strays()}
    if (heir.pid, heir.ticks) not in ours:
        return heir.find() is None
    return orphans.reap(heir.pid) is not None


# The supervisor is gone, or hangs


@pytest.mark.bug("B01")
async def test_kill_9_of_the_supervisor_leaves_nothing_alive(level: str) -> None:
    async with open_victim(level) as victim:
        victim.process.kill()
        started = trio.current_time()
        await eventually(lambda: victim.all_gone, within=5)
        print(f"empty {(trio.current_time() - started) * 1e3:.1f} ms after kill -9")


@pytest.mark.bug("B01")
async def test_supervisor_that_hangs_past_the_lease_loses_its_tree(level: str) -> None:
    async with open_victim(level, lease=0.8) as victim:
        await trio.sleep(1.3)  # beats keep it alive well past the lease
        assert living(victim.processes) == list(victim.processes)
        victim.process.send_signal(signal.SIGSTOP)
        tree = {**victim.processes, "runtime": victim.tree.runtime}
        await eventually(lambda: not living(tree), within=5)


@pytest.mark.bug("B01")
async def test_sigterm_to_the_warden_is_not_an_order(level: str) -> None:
    async with open_victim(level) as victim:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(victim.tree.warden.pid, number)
        await trio.sleep(0.1)
        assert living(victim.processes) == list(victim.processes)


# The warden is gone, or hangs


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_kill_9_of_the_warden_ends_the_runtime_and_all_it_left() -> None:
    assert orphans.ensure_subreaper()
    before = {p.key for p in orphans.strays()}  # of tests that left some
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            os.kill(incarnation.identity.warden.pid, signal.SIGKILL)
            ended = await incarnation.wait()
            assert (ended.returncode, ended.why) == (-9, "warden")
            assert ended.survivors == ()
            assert left(processes) == []
            assert gone(incarnation.identity.runtime)
    left_here = {p.key for p in orphans.strays()} - before
    assert left_here == set()


@pytest.mark.bug("B01")
async def test_kernel_ends_the_runtime_of_a_killed_warden(level: str) -> None:
    """Nobody is left to do it: the supervisor is stopped."""
    async with open_victim(level) as victim:
        victim.process.send_signal(signal.SIGSTOP)
        os.kill(victim.tree.warden.pid, signal.SIGKILL)
        await eventually(lambda: victim.tree.runtime.find() is None, within=2)


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_stopped_warden_is_killed_and_its_tree_with_it() -> None:
    assert orphans.ensure_subreaper()
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(
            ALL_KINDS + FOR_EVER, limits=Limits(kill=0.3, answer=0.1)
        ) as incarnation:
            processes = await ears.ready()
            os.kill(incarnation.identity.warden.pid, signal.SIGSTOP)
            assert await incarnation.kill() == ()
            assert left(processes) == []
            assert (await incarnation.wait()).why == "warden"


async def test_death_of_one_warden_spares_the_incarnations_beside_it() -> None:
    assert orphans.ensure_subreaper()
    one, other = Ears(), Ears()
    with trio.fail_after(20):
        async with one.open(ALL_KINDS + FOR_EVER) as dying:
            await one.ready()
            async with other.open(ALL_KINDS + FOR_EVER) as living_on:
                processes = await other.ready()
                os.kill(dying.identity.warden.pid, signal.SIGKILL)
                await dying.wait()
                assert living(processes) == list(processes)
                assert living_on.identity.runtime.find() is not None


# After a restart


@pytest.mark.bug("B01")
async def test_old_tree_of_a_killed_supervisor_and_warden_is_ended(level: str) -> None:
    async with open_victim(level) as victim:
        # Both are stopped first, so that neither can clean up.
        victim.process.send_signal(signal.SIGSTOP)
        os.kill(victim.tree.warden.pid, signal.SIGSTOP)
        swept = await end_tree(victim.tree)
        assert swept.survivors == ()
        assert {one.pid for one in swept.ended} >= {
            victim.tree.runtime.pid,
            victim.tree.warden.pid,
            *(one.pid for one in victim.processes.values()),
        }
        assert living(victim.processes) == []


async def test_old_tree_is_known_by_its_start_and_never_by_its_pid() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            tree = incarnation.identity
            stranger = TreeIdentity(
                evolve(tree.warden, ticks=tree.warden.ticks - 1),
                evolve(tree.runtime, ticks=tree.runtime.ticks + 1),
                tree.boot,
            )
            assert (await end_tree(stranger)).ended == ()
            assert (await end_tree(evolve(tree, boot="another"))).ended == ()
            assert living(processes) == list(processes)


async def test_mark_in_the_environment_finds_an_orphan_of_an_old_tree() -> None:
    mark = "AGENTTEAM_INCARNATION=tests-0001"
    env = {**ENVIRONMENT, "AGENTTEAM_INCARNATION": "tests-0001"}
    ears = Ears()
    nobody = ProcessIdentity(2**22 - 1, 1)
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER, env=env) as incarnation:
            processes = await ears.ready()
            tree = TreeIdentity(nobody, nobody, incarnation.identity.boot)
            swept = await end_tree(tree, mark)
            assert swept.survivors == ()
            # Below the runtime, so its cleared environment does not hide it.
            assert set(living(processes)) <= {"double-forked"}


@pytest.mark.skipif(find_cgroup_base() is None, reason="no cgroup may be made here")
async def test_cgroup_finds_what_fled_when_all_who_guarded_it_were_killed() -> None:
    async with open_victim("cgroup") as victim:
        victim.process.send_signal(signal.SIGSTOP)
        os.kill(victim.tree.warden.pid, signal.SIGKILL)
        victim.process.kill()
        await eventually(lambda: victim.tree.runtime.find() is None)
        # Cleared environment, session of its own, no parent of ours: only the
        # cgroup knows it.
        assert "double-forked" in living(victim.processes)
        swept = await end_tree(victim.tree)
        assert swept.survivors == ()
        fled = {one.pid for one in victim.processes.values()}
        assert {one.pid for one in swept.ended} == fled
        assert living(victim.processes) == []
        assert not exists(victim.tree.cgroup)


def test_level_of_containment_is_told() -> None:
    level = containment_level()
    assert level.startswith("cgroup") == (find_cgroup_base() is not None)
    assert level.endswith("subreaper") == (sys.platform == "linux")


# Orphans of ours


@pytest.mark.bug("B34")
async def test_reaping_orphans_steals_no_exit_code_from_a_wait() -> None:
    assert orphans.ensure_subreaper()
    codes: list[int] = []

    async def run(code: int) -> None:
        done = await trio.run_process(["sh", "-c", f"exit {code}"], check=False)
        codes.append(done.returncode)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orphans.reap_orphans, 0.01)
            for code in range(50):
                await run(code)
            # An orphan that falls to us: its parent is gone before it ends.
            orphan = "(setsid sh -c 'sleep 0.05' &) & wait"
            await trio.run_process(["sh", "-c", orphan])
            await eventually(lambda: bool(orphans.strays()), within=2)
            await eventually(lambda: not orphans.strays(), within=5)
            nursery.cancel_scope.cancel()
    assert codes == list(range(50))


# The program itself


def test_signal_reaches_no_stranger_that_has_the_pid_now() -> None:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    sleeper = process_table.read_process(pid)
    assert sleeper is not None
    sleeper.ticks -= 1
    process_table.send_signal(sleeper, signal.SIGKILL)
    pidfd = os.pidfd_open(pid)
    ended = select.poll()
    ended.register(pidfd)
    unhurt = ended.poll(100) == []
    os.close(pidfd)
    sleeper.ticks += 1
    process_table.send_signal(sleeper, signal.SIGKILL)
    assert unhurt
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_program_starts_without_site_packages_and_imports_little() -> None:
    watch = (
        f"import sys; sys.path.append({warden_start.ROOT!r});"
        "from agentteam_runtimes.warden import main;"
        "main(['1', '5', '', '/', 'no-such-program']);"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", watch], capture_output=True, text=True
    )
    report, modules = done.stdout.splitlines()
    assert json.loads(report) == {"report": "failed", "stage": "exec", "errno": 2}
    heavy = {"json", "typing", "signal", "enum", "re", "ctypes", "subprocess", "attr"}
    assert not heavy & set(modules.split())


def test_process_names_of_any_bytes_are_safe_in_a_report() -> None:
    name = printable = process_table.printable('a") {"x":\\ \n\x7fé')
    assert json.loads(f'"{printable}"') == name
    assert not re.search(r'["\\\n]', name)


def test_process_table_is_read_alike_from_proc_and_from_ps() -> None:
    own = process_table.read_process(os.getpid())
    by_ps = next(p for p in process_table.read_ps() if p.pid == os.getpid())
    assert own is not None
    assert (own.ppid, own.pgid) == (by_ps.ppid, by_ps.pgid)
    assert own.key in {p.key for p in process_table.read_table()}
    assert process_table.read_process(2**22 - 1) is None
