"""Row 7: agents that each wait for their own delivery to be durable, all at once."""

# ruff: noqa: ASYNC240 - before anything is timed
from __future__ import annotations

import gc
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from agentteam_protocol.frames import DeliveryReceived
from agentteam_protocol.ids import AgentId
from agentteam_protocol.journal import InboxSpliced, SpliceReason
from agentteam_supervisor.journal.log import open_journal
from agentteam_supervisor.journal.records import encode, encode_frame
from bench.measure import (
    Bounds,
    Goal,
    Line,
    Samples,
    Scale,
    alternate,
    compare,
    percentile,
)
from bench.raw import RawLog
from bench.session import make_item

if TYPE_CHECKING:
    from pathlib import Path

    from agentteam_protocol.inbox import Item
    from agentteam_supervisor.journal.log import Journal

BODY = "Please have a look at the failing test when you are done with this."


async def row_7(scale: Scale, place: Path) -> list[Line]:
    return [
        await _deliveries(scale, place / f"{agents}", agents)
        for agents in ((1, 8, 64, 256) if not scale.quick else (1, 8))
    ]


async def _deliveries(scale: Scale, place: Path, agents: int) -> Line:
    place.mkdir()
    each = scale.of(max(8, min(300, 4000 // agents)), 4)
    log = RawLog(place / "floor.db")
    commits: list[Samples] = []
    waits: list[Samples] = []
    item = make_item(BODY)
    row, frame = encode(_arrival(item)), encode_frame(_receipt(item))
    rows = [(f"agt_{n}", row) for n in range(agents)]

    def floor() -> Samples:
        took: Samples = []
        began = perf_counter()
        for _ in range(each):
            at = perf_counter()
            log.commit(rows, [frame] * agents)
            took.append(perf_counter() - at)
        commits.append(took)
        return [agents * each / (perf_counter() - began)]

    async with open_journal(place / "journal.db") as journal:

        async def ours() -> Samples:
            gc.collect()
            took: Samples = []
            began = perf_counter()
            async with trio.open_nursery() as nursery:
                for number in range(agents):
                    nursery.start_soon(_deliver, journal, number, each, took)
            seconds = perf_counter() - began
            waits.append(took)
            return [agents * each / seconds]

        taken = await alternate(scale, floor, ours)
        await _check(journal, agents, len(waits) * each)
    log.close()
    ratio = _median_p99(waits) / _median_p99(commits)
    return compare(
        "7",
        f"durable deliveries, {agents} agents",
        "1/s",
        taken,
        Bounds(rate=0.6),
        floor_is=f"SQLite FULL, {agents} deliveries and receipts a commit",
        goals=[Goal("p99 5x of a commit", ratio, 5)],
        notes=[
            f"a wait is p99 {_median_p99(waits) * 1e6:.0f} us, a commit"
            f" {_median_p99(commits) * 1e6:.0f} us; all in order (checked)"
        ],
    )


async def _deliver(journal: Journal, number: int, count: int, took: Samples) -> None:
    """Be one agent: take a delivery when the one before it is durable."""
    agent = AgentId(f"agt_{number}")
    for _ in range(count):
        item = make_item(BODY)
        at = perf_counter()
        await journal.append(agent, [_arrival(item)], [_receipt(item)]).wait()
        took.append(perf_counter() - at)


async def _check(journal: Journal, agents: int, count: int) -> None:
    for number in range(agents):
        agent = AgentId(f"agt_{number}")
        assert journal.last(agent) == count, "a delivery is missing"
    entries = await journal.entries(AgentId("agt_0"), limit=count)
    order = [entry.event.added[0].seq or 0 for entry in entries]  # type: ignore[union-attr]  # all of one kind
    assert len(order) == count
    assert order == sorted(order), "deliveries are out of order"


def _arrival(item: Item) -> InboxSpliced:
    return InboxSpliced(SpliceReason.accepted, added=(item,))


def _receipt(item: Item) -> DeliveryReceived:
    assert item.delivery is not None
    return DeliveryReceived(item.delivery, item.attempt)


def _median_p99(rounds: list[Samples]) -> float:
    ordered = sorted(percentile(each, 0.99) for each in rounds)
    return ordered[len(ordered) // 2]
