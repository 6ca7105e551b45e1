"""
Rows 1 to 3: from an urgent message in the session to its submission's acknowledgement.

In between: the generation is held, the turn is interrupted and has ended, what it
left running is swept, its generation is fenced, and (2, 3) the records that the
submission rests on are durable.
"""

from __future__ import annotations

import gc
import statistics
from contextlib import AsyncExitStack
from time import perf_counter
from typing import TYPE_CHECKING

import trio
from tests.kit.fake_driver import FakeDriver
from tests.kit.memory_journal import MemoryJournal
from tests.kit.session_bench import Bench, bench
from trio.testing import wait_all_tasks_blocked

from agentteam_protocol.delivery import DeliveryState
from agentteam_supervisor.journal.log import open_journal
from bench.measure import (
    Bounds,
    Goal,
    Line,
    Samples,
    Scale,
    Taken,
    alternate,
    compare,
    percentile,
    spread,
)
from bench.raw import RawDriver, RawLog
from bench.session import Watched, hold, open_durable, open_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentteam_protocol.inbox import Item

ROWS_OF_A_COMMIT = [("agt_bench", b"x" * 200)] * 4


async def urge(watched: Watched, text: str) -> tuple[float, Item]:
    """Mark a message urgent; the seconds until the runtime has acknowledged it."""
    before = watched.accepted
    began = perf_counter()
    item = watched.deliver(text, urgent=True)
    await watched.submitted(before)
    return perf_counter() - began, item


def cut_by_hand(raw: RawDriver, text: str, after: Callable[[], None]) -> float:
    began = perf_counter()
    raw.interrupt()
    after()
    raw.start(text)
    return perf_counter() - began


async def urges(watched: Watched, text: str, count: int) -> Samples:
    """Take so many in a row; each of them must have been surfaced in the end."""
    taken = [await urge(watched, text) for _ in range(count)]
    items = [item for _, item in taken]
    await watched.until(lambda: _surfaced(watched, items[-1]))
    assert all(_surfaced(watched, item) for item in items)
    return [seconds * 1e6 for seconds, _ in taken]


def _surfaced(watched: Watched, item: Item) -> bool:
    assert item.delivery is not None
    view = watched.session.ledger.deliveries[item.delivery]
    return view.state is DeliveryState.surfaced


async def row_1(scale: Scale, place: Path) -> list[Line]:
    count = scale.of(300, 5)
    raw = RawDriver()
    raw.start("work")

    def floor() -> Samples:
        return [cut_by_hand(raw, "work", nothing) * 1e6 for _ in range(count)]

    journal = MemoryJournal()
    try:
        async with open_session(place, journal, reports=False) as watched:
            await watched.runs("work")

            async def ours() -> Samples:
                journal.events.clear()
                gc.collect()
                return await urges(watched, "work", count)

            taken = await alternate(scale, floor, ours)
    finally:
        raw.child.close()
    return [
        compare(
            "1",
            "urgent to submitted, nothing durable",
            "us",
            taken,
            Bounds(p50=3, p99=8),
            floor_is="blocking driver, same child: interrupt, wait, start",
            notes=[f"{count} urgents a round, each surfaced"],
        )
    ]


def nothing() -> None:
    """The floor of row 1 has no commit."""


async def row_2(scale: Scale, place: Path) -> list[Line]:
    count = scale.of(200, 5)
    raw, log = RawDriver(), RawLog(place / "floor.db")
    raw.start("work")

    def commits() -> None:
        for _ in range(3):
            log.commit(ROWS_OF_A_COMMIT)

    def floor() -> Samples:
        return [cut_by_hand(raw, "work", commits) * 1e6 for _ in range(count)]

    try:
        async with open_durable(place) as watched:
            await watched.runs("work")

            async def ours() -> Samples:
                gc.collect()
                return await urges(watched, "work", count)

            taken = await alternate(scale, floor, ours)
    finally:
        raw.child.close()
        log.close()
    return [
        compare(
            "2",
            "urgent to submitted, durable",
            "us",
            taken,
            Bounds(p50=1.5, p99=3),
            floor_is="blocking driver, same child, 3 FULL commits of 4 rows",
            notes=[
                f"{count} urgents a round, each surfaced, with reports to the server"
            ],
        )
    ]


async def row_3(scale: Scale, place: Path) -> list[Line]:
    count = scale.of(30, 3)
    idle, runnable = scale.of(1000, 20), scale.of(100, 5)
    alone: list[Samples] = []
    loaded: list[Samples] = []
    async with AsyncExitStack() as stack:
        lone = await stack.enter_async_context(open_durable(_below(place, "lone")))
        loud = await stack.enter_async_context(open_durable(_below(place, "loud")))
        await lone.runs("work")
        await loud.runs("work")
        seats = await stack.enter_async_context(trio.open_nursery())
        await _seat_idle(seats, idle)
        for _ in range(scale.rounds):
            gc.collect()
            alone.append(await urges(lone, "work", count))
            async with trio.open_nursery() as crowd:
                for _ in range(runnable):
                    crowd.start_soon(_keep_busy)
                loaded.append(await _urges_in_a_flood(loud, count))
                crowd.cancel_scope.cancel()
            await urge(loud, "work")  # the flood is over
        seats.cancel_scope.cancel()
    taken = Taken(alone, loaded)
    p99 = spread(loaded).p99 or 0.0
    return [
        compare(
            "3",
            "the same while it streams at full speed",
            "us",
            taken,
            Bounds(),
            floor_is="row 2 in the same process without the load",
            goals=[Goal("p99 10 ms", p99 / 1000, 10)],
            notes=[
                f"{idle} sessions idle, {runnable} tasks runnable, {count} urgents a"
                " round; 0 late outputs shown as live (checked)"
            ],
        )
    ]


def _below(place: Path, name: str) -> Path:
    made = place / name
    made.mkdir()
    return made


async def _seat_idle(seats: trio.Nursery, count: int) -> None:
    """Fill the process with sessions that have a runtime and nothing to do."""
    started: list[Bench] = []
    for number in range(count):
        session = bench(agent=f"agt_idle{number}", driver=FakeDriver())
        started.append(await seats.start(hold, session))
    for each in started:
        each.deliver("a1")
    await wait_all_tasks_blocked()
    for each in started:
        each.driver.runtime.surface()
        each.driver.runtime.finish()
    await wait_all_tasks_blocked()
    assert all(each.session.quiescent for each in started)


async def _keep_busy() -> None:
    while True:
        await trio.lowlevel.checkpoint()


async def _urges_in_a_flood(watched: Watched, count: int) -> Samples:
    """Cut a run that streams, again and again; nothing of a cut one may show."""
    taken: Samples = []
    await urge(watched, "#flood")
    for _ in range(count):
        watched.progress.clear()
        await watched.until(lambda: len(watched.progress) > 3)
        turn = watched.session.ledger.turn
        assert turn is not None
        watched.progress.clear()
        seconds, _ = await urge(watched, "#flood")
        taken.append(seconds * 1e6)
        late = [told for told in watched.progress if told.run_id == turn.run_id]
        assert late == [], f"{len(late)} outputs of a cut run were shown as live"
    return taken


async def row_50(scale: Scale, place: Path) -> list[Line]:
    """Urge all sessions of a daemon in the same moment, each of them talking."""
    count = scale.of(50, 4)
    lone: list[Samples] = []
    crowd: list[Samples] = []
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(place / "journal.db"))
        seats = await stack.enter_async_context(trio.open_nursery())
        sessions: list[Watched] = []
        for n in range(count):
            opened = open_session(_below(place, f"{n}"), journal, agent=f"agt_{n}")
            sessions.append(await seats.start(hold, opened))
        await sessions[0].runs("#talk")
        for _ in range(scale.rounds):
            lone.append(await urges(sessions[0], "#talk", scale.of(20, 2)))
        for session in sessions[1:]:
            await session.runs("#talk")
        for _ in range(scale.rounds):
            crowd.append(await _all_at_once(sessions))
        seats.cancel_scope.cancel()
    p95 = statistics.median(percentile(r, 0.95) for r in crowd)
    ratio = p95 / statistics.median(percentile(r, 0.95) for r in lone)
    return [
        compare(
            "50",
            f"{count} sessions talk, one urgent each at once",
            "us",
            Taken(lone, crowd),
            Bounds(),
            floor_is="one of them alone, in the same run",
            goals=[Goal("p95 10x", ratio, 10)],
            notes=[f"p95 {p95 / 1000:.1f} ms, {ratio:.1f}x of one alone; all surfaced"],
        )
    ]


async def _all_at_once(sessions: list[Watched]) -> Samples:
    taken: Samples = []

    async def one(watched: Watched) -> None:
        taken.extend(await urges(watched, "#talk", 1))

    async with trio.open_nursery() as nursery:
        for watched in sessions:
            nursery.start_soon(one, watched)
    assert len(taken) == len(sessions)
    return taken
