"""
Row 10: what an idle session costs, our side of it, and with its warden.

The runtime is the same little child everywhere; the floor is that child with its three
pipes and nothing around it.
"""

from __future__ import annotations

import gc
from time import perf_counter, process_time
from typing import TYPE_CHECKING

import psutil
import trio
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import Bench, bench
from trio.testing import wait_all_tasks_blocked

from bench.measure import Goal, Line, Scale, Spread
from bench.raw import RawChild
from bench.session import Watched, hold, open_session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

WATCHED_SECONDS = 4.0


class Footprint:
    """What this process and its children use, now."""

    def __init__(self) -> None:
        gc.collect()
        me = psutil.Process()
        self.rss = me.memory_full_info().uss
        self.fds = me.num_fds()
        self.wardens = [p for p in me.children() if _is_warden(p)]

    def per(self, before: Footprint, count: int) -> tuple[float, float]:
        """KB and file descriptors of each of so many."""
        return (self.rss - before.rss) / 1024 / count, (self.fds - before.fds) / count


async def row_10(scale: Scale, place: Path) -> list[Line]:
    count, many = scale.of(100, 4), scale.of(5000, 50)
    bare_kb, bare_fds = await trio.to_thread.run_sync(_bare, count)
    async with trio.open_nursery() as seats:
        before = Footprint()
        await _seat(seats, place, count)
        after = Footprint()
        kb, fds = after.per(before, count)
        ours, wardens = await _cpu(scale, after.wardens)
        pss = sum(p.memory_full_info().pss for p in after.wardens) / 1024 / count
        seats.cancel_scope.cancel()
    gone = await _all_gone(after.wardens)
    assert gone, "wardens outlived their sessions"
    assert len(after.wardens) == count
    cpu = f"{ours / count:.1f} us of CPU a second here"
    return [
        _line(
            "idle session, our side",
            "KB",
            Spread(bare_kb),
            Spread(kb),
            (
                Goal("32 KB", kb, 32),
                Goal("4 fds", fds, 4),
                Goal("2 us CPU/s", ours / count, 2),
            ),
            f"{count} sessions with a child each; {fds:.1f} fds (bare {bare_fds:.1f});"
            f" {cpu}",
        ),
        _line(
            "idle session with its warden",
            "KB",
            Spread(bare_kb),
            Spread(kb + pss),
            (),
            f"a warden is {pss:.0f} KB of PSS and {wardens / count:.1f} us of CPU a"
            " second",
        ),
        await _many(many),
    ]


def _line(
    what: str,
    unit: str,
    floor: Spread | None,
    ours: Spread,
    goals: tuple[Goal, ...],
    note: str,
) -> Line:
    return Line(
        row="10",
        what=what,
        unit=unit,
        ours=ours,
        floor=floor,
        floor_is="the same child with its pipes" if floor else "",
        goals=goals,
        notes=(note,),
    )


def _bare(count: int) -> tuple[float, float]:
    before = Footprint()
    children = [RawChild() for _ in range(count)]
    used = Footprint().per(before, count)
    for child in children:
        child.close()
    return used


async def _seat(seats: trio.Nursery, place: Path, count: int) -> None:
    for number in range(count):
        own = place / f"{number}"
        own.mkdir()
        opened = open_session(
            own, MemoryJournal(), agent=f"agt_{number}", reports=False
        )
        watched: Watched = await seats.start(hold, opened)
        await watched.runs("#send 1 100 delta")
        await watched.idle()


async def _cpu(scale: Scale, wardens: list[psutil.Process]) -> tuple[float, float]:
    """Microseconds of CPU a second, of this process and of the wardens."""
    await trio.sleep(0.1)
    theirs = _all_used(wardens)  # looking costs us more than all we want to see
    mine, began = process_time(), perf_counter()
    await trio.sleep(0.2 if scale.quick else WATCHED_SECONDS)
    used, seconds = process_time() - mine, perf_counter() - began
    return used / seconds * 1e6, (_all_used(wardens) - theirs) / seconds * 1e6


def _all_used(processes: list[psutil.Process]) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in processes)


async def _all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = await trio.to_thread.run_sync(psutil.wait_procs, processes, 5)
    return not alive


def _is_warden(process: psutil.Process) -> bool:
    try:
        return any("agentteam_runtimes.warden" in word for word in process.cmdline())
    except psutil.ZombieProcess:
        return False  # of another row, and not yet reaped


async def _many(count: int) -> Line:
    """Start and stop very many; their runtimes are in memory, for want of memory."""
    before = Footprint()
    took: dict[str, float] = {}
    async with trio.open_nursery() as seats:
        began = perf_counter()
        sessions: list[Bench] = [
            await seats.start(hold, bench(agent=f"agt_{n}", driver=FakeDriver()))
            for n in range(count)
        ]
        for session in sessions:
            session.deliver("a1")
        await wait_all_tasks_blocked()
        assert all(s.session.running for s in sessions)
        took["start"] = perf_counter() - began
        kb, _ = Footprint().per(before, count)
        for session in sessions:
            session.driver.runtime.finish()
        await wait_all_tasks_blocked()
        began = perf_counter()
        await _shut_down([s.handle.shutdown for s in sessions])
        assert all(s.actor.ended and s.actor.failure is None for s in sessions)
        assert all(not s.driver.runtime.alive for s in sessions)
        took["stop"] = perf_counter() - began
        seats.cancel_scope.cancel()
    return _line(
        f"{count} sessions start, run, stop",
        "s",
        None,
        Spread(took["start"] + took["stop"]),
        (Goal("clean", 0, 0),),
        f"start and run {took['start']:.1f} s, stop {took['stop']:.1f} s, {kb:.0f} KB"
        " each while a turn runs, over a runtime in memory; each ended by itself and"
        " without a fault (checked)",
    )


async def _shut_down(ends: list[Callable[[], Awaitable[None]]]) -> None:
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            for end in ends:
                nursery.start_soon(end)
