"""
Row R-claude: the real Claude Code, from Mark urgent over HTTP to the message at the model.

The floor speaks the same requests to the same binary: interrupt, wait for the result,
one user line. It neither keeps anything nor ends what the turn left behind.
"""

# ruff: noqa: ASYNC110 - a file of another process appears, and nobody tells
from __future__ import annotations

import itertools
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

import orjson
import trio
from tests.kit.claude_home import ClaudeHome, make_claude_home
from tests.kit.parts import PARTS, find_part
from tests.kit.product import open_product

from agentteam_runtimes.claude import command, wire
from agentteam_runtimes.driver import Options
from agentteam_supervisor.chaos.models.messages import (
    MessagesModel,
    open_messages_model,
)
from agentteam_supervisor.chaos.models.responses import do
from bench.measure import Bounds, Goal, Line, Scale, Taken, compare, spread
from bench.raw import RawChild
from bench.table import say

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product_agent import Agent

PEER = 43.0  # ms: the best peer's median, text streaming (PEERS.md)
TEXT, SHELL = "text streaming", "shell command running"
_numbers = itertools.count(1)


async def row_r(scale: Scale, place: Path) -> list[Line]:
    if find_part("claude") is None:
        say(f"row R-claude needs claude: {PARTS['claude'].install}")
        return []
    async with open_product(place) as product, open_messages_model() as model:
        lines: list[Line] = []
        for moment in (TEXT,) if scale.quick else (TEXT, SHELL):
            below = place / moment.partition(" ")[0]
            mine = make_claude_home(below / "ours", model.base_url)
            theirs = make_claude_home(below / "floor", model.base_url)
            agent = await product.agent(
                runtime="claude",
                workdir=str(mine.workdir),
                options=_options(mine),
                approvalPolicy="never",
            )
            taken = await _take(scale, _Stage(model, moment), agent, mine, theirs)
            await _check(agent)
            await product.client.delete(agent.path)
            lines.append(_line(scale, moment, taken))
    return lines


def _options(home: ClaudeHome) -> dict[str, object]:
    """Give the options without the pipe that records: both sides start the binary."""
    return home.options() | {"bin": str(home.bin)}


def _line(scale: Scale, moment: str, taken: Taken) -> Line:
    p50 = spread(taken.ours).p50
    ahead = [Goal("ahead of the best peer, 43 ms", p50, PEER)]
    return compare(
        "R-claude",
        f"urgent to the model, {moment}",
        "ms",
        taken,
        Bounds(p50=1.2),
        floor_is="a bare script: interrupt, result, user line",
        goals=ahead if moment == TEXT else [],
        notes=[
            f"{scale.of(6, 1)} a round; each at the model once and surfaced, the cut"
            " turn's command gone (checked); the floor keeps nothing and ends nothing"
        ],
    )


async def _take(
    scale: Scale, stage: _Stage, agent: Agent, mine: ClaudeHome, theirs: ClaudeHome
) -> Taken:
    each, taken = scale.of(6, 1), Taken()
    raw = await trio.to_thread.run_sync(RawClaude, theirs)
    try:
        for number in range(scale.rounds + (0 if scale.quick else 1)):
            floor = [await stage.by_hand(raw, theirs) for _ in range(each)]
            ours = [await stage.urged(agent, mine) for _ in range(each)]
            if number or scale.quick:
                taken.floor.append(floor)
                taken.ours.append(ours)
    finally:
        await trio.to_thread.run_sync(raw.child.close)
    return taken


async def _check(agent: Agent) -> None:
    """Every run was cut or completed, by turns; nothing of a cut one is left."""
    outcomes = await agent.outcomes()
    assert set(outcomes) == {"aborted", "completed"}, outcomes
    assert outcomes.count("aborted") == outcomes.count("completed")
    left = [line for line in agent.person.up.commands() if "sleep 60" in line]  # type: ignore[attr-defined]  # a product's person
    assert left == [], f"commands of cut turns are alive: {left}"


class _Stage:
    """The model, and what the agent does when the urgent message comes."""

    def __init__(self, model: MessagesModel, moment: str) -> None:
        self._model = model
        self._moment = moment

    async def urged(self, agent: Agent, home: ClaudeHome) -> float:
        number = next(_numbers)
        work, question = self._work(home, number), f"question {number} is urgent"
        with trio.fail_after(60):
            first = await agent.deliver(work)
            await agent.person.surfaced(first)
            await self._has_begun(home, number, work)
            message = await agent.send(question)
            await trio.sleep(0.05)  # it is with the runtime: the hard case
            began = trio.current_time()
            urgent = await agent.mark(message)
            request = await self._model.wait_until_told(question)
            await agent.person.surfaced(urgent["id"])
            await agent.idle()
        assert len(self._model.told(question)) == 1, "it came to the model twice"
        return (request.at - began) * 1e3

    async def by_hand(self, raw: RawClaude, home: ClaudeHome) -> float:
        number = next(_numbers)
        work, question = self._work(home, number), f"question {number} is urgent"
        run = partial(trio.to_thread.run_sync, abandon_on_cancel=False)
        with trio.fail_after(60):
            await run(raw.start, work)
            await self._has_begun(home, number, work)
            await trio.sleep(0.05)
            shift = trio.current_time() - time.perf_counter()
            began = await run(raw.cut_and_start, question)
            request = await self._model.wait_until_told(question)
            await run(raw.ended)
        return (request.at - (began + shift)) * 1e3

    def _work(self, home: ClaudeHome, number: int) -> str:
        if self._moment == TEXT:
            return f"work {number}: {do({'stream': 3000, 'ms': 20})}"
        return do({"run": f"touch {_mark(home, number)}; sleep 60"})

    async def _has_begun(self, home: ClaudeHome, number: int, work: str) -> None:
        if self._moment == TEXT:
            await self._model.wait_until_told(work)
            return
        while not _mark(home, number).exists():
            await trio.sleep(0.002)


def _mark(home: ClaudeHome, number: int) -> Path:
    return home.workdir / f"began{number}"


class RawClaude:
    """A script on Claude's pipes: it knows one session and nothing else."""

    def __init__(self, home: ClaudeHome) -> None:
        options = Options(**_options(home))  # type: ignore[arg-type]  # as its JSON has it
        words = [
            *(str(home.bin), *command.STREAMS, "--session-id", str(uuid.uuid4())),
            *("--settings", orjson.dumps(command.settings(options.config)).decode()),
        ]
        env = command.environment(options)
        self.child = RawChild(words, env, home.workdir, patience=30)
        self._write(wire.request("hello", wire.INITIALIZE))
        self.child.until(type=wire.RESPONSE)

    def start(self, text: str) -> None:
        self._write(wire.user_line(str(uuid.uuid4()), [text]))

    def ended(self) -> None:
        self.child.until(type=wire.RESULT)

    def cut_and_start(self, text: str) -> float:
        """The path that is measured; the clock's time at its beginning."""
        began = time.perf_counter()
        self._write(wire.request(str(uuid.uuid4()), wire.INTERRUPT))
        self.ended()
        self.start(text)
        return began

    def _write(self, line: bytes) -> None:
        self.child.write(orjson.loads(line))
