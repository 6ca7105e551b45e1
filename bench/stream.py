"""
Rows 5 and 6: what a runtime says, from its pipe to one subscriber; and into the log.

The clock runs from the submission of the turn to its end, on both sides.
"""

from __future__ import annotations

import gc
from time import perf_counter
from typing import TYPE_CHECKING

import orjson
from tests.kit.memory_journal import MemoryJournal

from agentteam_protocol.journal import AssistantMessage
from agentteam_supervisor.journal.log import open_journal
from bench.measure import Bounds, Goal, Line, Samples, Scale, alternate, compare, spread
from bench.raw import RawDriver, RawLog
from bench.session import Watched, open_session

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 512
SHORT, LONG = 200, 1 << 20


async def row_5(scale: Scale, place: Path) -> list[Line]:
    return [
        await _stream(scale, place, scale.of(50_000, 500), SHORT),
        await _stream(scale, place, scale.of(64, 2), LONG),
    ]


async def _stream(scale: Scale, place: Path, count: int, size: int) -> Line:
    raw = RawDriver()
    text = f"#send {count} {size} delta"
    read = _read_split if size == SHORT else _read_lines

    def floor() -> Samples:
        return [count / read(raw, text, count)]

    try:
        async with open_session(place, MemoryJournal(), reports=False) as watched:

            async def ours() -> Samples:
                gc.collect()
                return [count / await _subscribe(watched, text, count)]

            taken = await alternate(scale, floor, ours)
    finally:
        raw.child.close()
    long = size == LONG
    return compare(
        "5",
        f"{'lines of 1 MiB' if long else 'events of 200 B'} to one subscriber",
        "1/s",
        taken,
        Bounds(rate=0.8 if long else 0.5),
        floor_is=f"blocking {'readline' if long else 'read, split'}, orjson",
        notes=[f"{count} a round, all there and in order (checked)"],
    )


def _read_split(raw: RawDriver, text: str, count: int) -> float:
    began, seen = perf_counter(), 0
    raw.start(text)
    while True:
        message = raw.child.read()
        if message["type"] == "delta":
            assert int(message["text"][1:9]) == seen % 1000
            seen += 1
        elif message["type"] == "turn_ended":
            assert seen == count
            return perf_counter() - began


def _read_lines(raw: RawDriver, text: str, count: int) -> float:
    """Read with the standard library's own line reader, for lines that are long."""
    began, seen = perf_counter(), 0
    raw.start(text)
    while raw.child.read()["type"] != "surfaced":
        pass
    for message in raw.child.lines():
        if message["type"] == "turn_ended":
            break
        assert int(message["text"][1:9]) == seen % 1000
        seen += 1
    assert seen == count
    return perf_counter() - began


async def _subscribe(watched: Watched, text: str, count: int) -> float:
    watched.progress.clear()
    seconds = await _play(watched, text)
    shown = "".join(told.text for told in watched.progress)
    numbers = [int(piece[:8]) for piece in shown.split("#")[1:]]
    assert numbers == [n % 1000 for n in range(count)], "lost or out of order"
    return seconds


async def row_6(scale: Scale, place: Path) -> list[Line]:
    count = scale.of(10_000, 200)
    log = RawLog(place / "floor.db")
    row = ("agt_bench", orjson.dumps({"kind": "assistant/message", "text": "x" * 120}))

    def floor() -> Samples:
        began = perf_counter()
        for _ in range(count // BATCH + 1):
            log.commit([row] * BATCH)
        return [(count // BATCH + 1) * BATCH / (perf_counter() - began)]

    async with (
        open_journal(place / "journal.db") as journal,
        open_session(place, journal, reports=False) as watched,
    ):

        async def ours() -> Samples:
            gc.collect()
            before = journal.last(watched.actor.session.ledger.agent)
            began = perf_counter()
            await _play(watched, f"#send {count} {SHORT} said")
            await journal.flushed()
            seconds = perf_counter() - began
            after = await journal.entries(
                watched.session.ledger.agent, before, 10 * count
            )
            said = [e.event for e in after if isinstance(e.event, AssistantMessage)]
            numbers = [int(event.text[1:9]) for event in said]
            assert numbers == [n % 1000 for n in range(count)], "lost or out of order"
            return [count / seconds]

        taken = await alternate(scale, floor, ours)
    log.close()
    rate = spread(taken.ours).p50
    return [
        compare(
            "6",
            "the same, each of them durable",
            "1/s",
            taken,
            Bounds(rate=0.7),
            floor_is=f"SQLite FULL, bulk insert of {BATCH} rows a commit",
            goals=[Goal("150k/s", rate, 150_000, at_least=True)],
            notes=[
                f"{count} whole messages a round, each a record (deltas never are);"
                " all durable and in order (checked)"
            ],
        )
    ]


async def _play(watched: Watched, text: str) -> float:
    """Let a turn run to its end; the seconds."""
    before = watched.accepted
    began = perf_counter()
    watched.deliver(text)
    await watched.submitted(before)
    await watched.idle()
    return perf_counter() - began
