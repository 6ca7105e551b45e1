"""
Row 4: the fallback on the real Codex: kill the tree, resume the thread, submit.

Ours is the session's own ladder with deadlines of zero: the interrupt gets no time,
SIGTERM gets none, so SIGKILL ends the incarnation and the next one resumes.
"""

# ruff: noqa: ASYNC110, ASYNC240 - a file of another process appears, and nobody tells
from __future__ import annotations

import os
import signal
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psutil
import trio
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.parts import find_part

from agentteam_runtimes.codex import wire
from agentteam_runtimes.codex.driver import CodexDriver
from agentteam_runtimes.driver import Options
from agentteam_supervisor.chaos.models.responses import do, open_model_server
from agentteam_supervisor.session.deadlines import Limits
from bench.codex import MOMENTS, RawCodex
from bench.measure import Bounds, Goal, Line, Scale, Taken, compare
from bench.session import Watched, open_durable
from bench.table import say

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE = Limits(interrupt=0.0, terminate=0.0, kill=10.0)
# It leaves its session and its parent: a group kill does not reach it.
ESCAPES = "(setsid sh -c 'touch began{}; sleep 60' &); sleep 60"


async def row_4(scale: Scale, place: Path) -> list[Line]:
    if find_part("codex") is None:
        say("row 4 needs codex: npm install --prefix .parts @openai/codex@0.171.0")
        return []
    each = scale.of(3, 1)
    taken, left_by_hand = Taken(), 0
    async with open_model_server() as model:
        homes = [make_codex_home(place / n, model.base_url) for n in ("ours", "floor")]
        mine, theirs = homes
        options = Options(**_options(mine))
        session = open_durable(
            place,
            driver=CodexDriver(),
            options=options,
            workdir=mine.workdir,
            limits=AT_ONCE,
        )
        async with session as watched:
            await watched.runs(_work(0))
            for number in range(1, scale.rounds + 1):
                start = number * 100
                floor = [
                    await trio.to_thread.run_sync(_by_hand, theirs, start + n)
                    for n in range(each)
                ]
                left_by_hand += _end(theirs)
                ours = [await _killed(watched, mine, start + n) for n in range(each)]
                taken.floor.append(floor)
                taken.ours.append(ours)
    return [
        compare(
            "4",
            "kill, sweep, resume, submitted",
            "ms",
            taken,
            Bounds(p50=1.2),
            floor_is="Popen, killpg(SIGKILL), Popen, thread/resume, turn/start by hand",
            goals=[Goal("0 survivors", 0, 0)],
            notes=[
                f"{each} a round, a command that had left its session each time; after"
                f" ours none of it lived (checked), after the floor {left_by_hand} did"
            ],
        )
    ]


def _options(home: CodexHome) -> dict[str, Any]:
    return home.options() | {"bin": str(home.bin)}


def _work(number: int) -> str:
    return do({"run": ESCAPES.format(number)})


async def _killed(watched: Watched, home: CodexHome, number: int) -> float:
    before = watched.accepted
    watched.deliver(_work(number), urgent=True)  # a turn with a command of its own
    await watched.submitted(before)
    await _appears(home.workdir / f"began{number}")
    old = _living(home)
    assert len(old) >= 2, "there is nothing to kill"
    before, began = watched.accepted, perf_counter()
    watched.deliver("go on with this", urgent=True)
    await watched.submitted(before)
    seconds = perf_counter() - began
    alive = [p for p in old if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert alive == [], f"processes of the killed incarnation are alive: {alive}"
    await watched.idle()
    return seconds * 1e3


def _by_hand(home: CodexHome, number: int) -> float:
    raw = RawCodex(home, MOMENTS[0])
    raw.start(_work(number))
    while not (home.workdir / f"began{number}").exists():
        raw.child.read()
    began = perf_counter()
    os.killpg(raw.child.process.pid, signal.SIGKILL)
    raw.child.close()
    again = RawCodex(home, MOMENTS[0], resume=raw.thread)
    again.start("go on with this")
    seconds = perf_counter() - began
    again.wait_for(wire.TURN_COMPLETED)
    again.child.close()
    return seconds * 1e3


async def _appears(path: Path) -> None:
    with trio.fail_after(60):
        while not path.exists():
            await trio.sleep(0.002)


def _living(home: CodexHome) -> list[psutil.Process]:
    """Find what lives with this home, whoever its parent is."""
    mark = f"HOME={home.path}".encode()
    return [psutil.Process(pid) for pid in _marked(psutil.pids(), mark)]


def _marked(pids: Sequence[int], mark: bytes) -> list[int]:
    found: list[int] = []
    for pid in pids:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(pid)
    return found


def _end(home: CodexHome) -> int:
    """End what the floor has left alive; how many there were."""
    left = _living(home)
    for process in left:
        process.kill()
    return len(left)
