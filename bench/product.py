"""Row M: `agentteam up` alone: memory, and the time until it can be used."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import httpx
import psutil
import trio
from tests.kit.product import Up

from bench.measure import (
    Bounds,
    Goal,
    Line,
    Samples,
    Scale,
    Taken,
    alternate,
    compare,
    spread,
)

if TYPE_CHECKING:
    from pathlib import Path

# What any program on this stack pays before it does anything.
BARE = """\
import sys
import hypercorn.trio, starlette.applications, starlette.routing, trio
print("ready", flush=True)
sys.stdin.read()
"""

popen = partial(
    subprocess.Popen,  # noqa: TID251 - a program of nobody's, as the floor
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
)


async def row_m(scale: Scale, place: Path) -> list[Line]:
    memory: dict[str, list[Samples]] = {"floor": [], "ours": []}
    rss: list[Samples] = []
    numbers = iter(range(1000))

    def floor() -> Samples:
        began = perf_counter()
        process = popen([sys.executable, "-c", BARE])
        assert process.stdout is not None
        process.stdout.readline()
        seconds = perf_counter() - began
        memory["floor"].append([_pss([psutil.Process(process.pid)])])
        process.communicate()
        return [seconds]

    def start() -> Samples:
        below = place / f"up{next(numbers)}"
        below.mkdir()
        up = Up(below)
        began = perf_counter()
        up.start()
        httpx.get(f"{up.url}/readyz").raise_for_status()
        seconds = perf_counter() - began
        assert up.process is not None
        first = psutil.Process(up.process.pid)
        everything = [first, *first.children(recursive=True)]
        memory["ours"].append([_pss(everything)])
        rss.append([first.memory_info().rss / 1e6])
        up.close()
        return [seconds]

    async def ours() -> Samples:
        return await trio.to_thread.run_sync(start)

    taken = await alternate(scale, floor, ours)
    used = Taken(*(memory[n][-scale.rounds :] for n in ("floor", "ours")))
    floor_is = "Python with Starlette, Hypercorn and trio imported"
    return [
        compare(
            "M",
            "start of `agentteam up` to usable",
            "s",
            taken,
            Bounds(),
            floor_is=floor_is,
            goals=[Goal("1 s", spread(taken.ours).p50, 1)],
            notes=["the first start of a state directory, its agent `demo` included"],
        ),
        compare(
            "M",
            "memory of `agentteam up`, idle",
            "MB",
            used,
            Bounds(),
            floor_is=floor_is,
            goals=[Goal("60 MB", spread(used.ours).p50, 60)],
            notes=[f"PSS of all its processes; RSS {spread(rss).p50:.0f} MB"],
        ),
    ]


def _pss(processes: list[psutil.Process]) -> float:
    """Sum what they use, shared pages counted once, in MB."""
    return sum(process.memory_full_info().pss for process in processes) / 1e6
