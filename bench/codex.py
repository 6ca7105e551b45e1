"""
Row R: the real Codex, from Mark urgent over HTTP to the new message at the model.

The model is scripted and lives in this process; `agentteam up` is a process of its
own. The floor speaks the same requests to the same binary: interrupt, wait until the
turn is completed, start. It neither keeps anything nor ends what the turn left behind.
"""

# ruff: noqa: ASYNC110 - a file of another process appears, and nobody tells
from __future__ import annotations

import itertools
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from attrs import frozen
from tests.kit.codex_home import CodexHome, make_codex_home
from tests.kit.parts import find_part
from tests.kit.product import open_product

from agentteam_runtimes.codex import wire
from agentteam_supervisor.chaos.models.responses import (
    ModelServer,
    do,
    open_model_server,
)
from bench.measure import Bounds, Goal, Line, Scale, Taken, compare, spread
from bench.raw import RawChild
from bench.table import say

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

PEER = 64.0  # ms: the best peer's median, text streaming (PEERS.md)
OPEN = {"sandbox_mode": "danger-full-access"}
_numbers = itertools.count(1)


@frozen
class Moment:
    """What the agent does when the urgent message comes."""

    name: str
    config: dict[str, Any]
    asks: bool = False

    def work(self, home: CodexHome, number: int) -> str:
        if self.name == "text streaming":
            return do({"stream": 3000, "ms": 20})
        mark = self.mark(home, number)
        return do({"run": f"touch {mark}; sleep 60"})

    def mark(self, home: CodexHome, number: int) -> Path:
        return home.workdir / f"began{number}"


MOMENTS = (
    Moment("text streaming", OPEN),
    Moment("shell command running", OPEN),
    Moment(
        "approval pending",
        {"approval_policy": "untrusted", "sandbox_mode": "danger-full-access"},
        asks=True,
    ),
)


async def row_r(scale: Scale, place: Path) -> list[Line]:
    if find_part("codex") is None:
        say("row R needs codex: npm install --prefix .parts @openai/codex@0.171.0")
        return []
    lines: list[Line] = []
    async with open_product(place) as product, open_model_server() as model:
        for moment in MOMENTS if not scale.quick else MOMENTS[:1]:
            below = place / moment.name.partition(" ")[0]
            below.mkdir()
            lines.append(await _moment(scale, below, product, model, moment))
    return lines


async def _moment(
    scale: Scale, place: Path, product: Product, model: ModelServer, moment: Moment
) -> Line:
    each = scale.of(6, 1)
    taken = Taken()
    mine = make_codex_home(place / "ours", model.base_url)
    theirs = make_codex_home(place / "floor", model.base_url)
    agent = await _make_agent(product, mine, moment)
    raw = await trio.to_thread.run_sync(RawCodex, theirs, moment)
    try:
        for number in range(scale.rounds + (0 if scale.quick else 1)):
            floor = [await _by_hand(raw, model, moment, theirs) for _ in range(each)]
            ours = [await _urged(agent, model, moment, mine) for _ in range(each)]
            if number or scale.quick:
                taken.floor.append(floor)
                taken.ours.append(ours)
    finally:
        await trio.to_thread.run_sync(raw.child.close)
    await _check(agent, moment, mine)
    await product.client.delete(agent.path)
    text = moment.name == "text streaming"
    p50 = spread(taken.ours).p50
    goals = [Goal("ahead of the best peer, 64 ms", p50, PEER)] if text else []
    return compare(
        "R",
        f"urgent to the model, {moment.name}",
        "ms",
        taken,
        Bounds(p50=1.2),
        floor_is="a bare script: turn/interrupt, turn/completed, turn/start",
        goals=goals,
        notes=[
            f"{each} a round; each at the model once, surfaced, the cut turn's command"
            " gone (checked); the floor keeps nothing and ends nothing"
        ],
    )


async def _make_agent(product: Product, home: CodexHome, moment: Moment) -> Agent:
    options = home.options(moment.config) | {"bin": str(home.bin)}
    return await product.agent(
        runtime="codex",
        workdir=str(home.workdir),
        options=options,
        approvalPolicy="ask" if moment.asks else "never",
    )


# --- ours -----------------------------------------------------------------------------


async def _urged(
    agent: Agent, model: ModelServer, moment: Moment, home: CodexHome
) -> float:
    number = next(_numbers)
    work, question = moment.work(home, number), f"question {number} is urgent"
    with trio.fail_after(60):
        first = await agent.deliver(work)
        await agent.person.surfaced(first)
        await _has_begun(model, moment, home, number, work)
        if moment.asks:
            await agent.approval()
        message = await agent.send(question)
        await trio.sleep(0.05)  # it is with the runtime: the hard case
        began = trio.current_time()
        urgent = await agent.mark(message)
        request = await model.wait_until_told(question)
        await agent.person.surfaced(urgent["id"])
        await agent.idle()
    assert len(model.told(question)) == 1, "it came to the model more than once"
    return (request.at - began) * 1e3


async def _check(agent: Agent, moment: Moment, home: CodexHome) -> None:
    """Every run was cut or completed, by turns; nothing of a cut one is left."""
    outcomes = await agent.outcomes()
    assert set(outcomes) == {"aborted", "completed"}, outcomes
    assert outcomes.count("aborted") == outcomes.count("completed")
    left = [line for line in agent.person.up.commands() if "sleep 60" in line]  # type: ignore[attr-defined]  # a product's person
    assert left == [], f"commands of cut turns are alive: {left}"
    del moment, home


async def _has_begun(
    model: ModelServer, moment: Moment, home: CodexHome, number: int, work: str
) -> None:
    if moment.asks or moment.name == "text streaming":
        await model.wait_until_told(work)
        return
    while not moment.mark(home, number).exists():
        await trio.sleep(0.002)


# --- the floor ------------------------------------------------------------------------


class RawCodex:
    """A script on the app-server's pipes: it knows one thread and nothing else."""

    def __init__(
        self, home: CodexHome, moment: Moment, resume: str | None = None
    ) -> None:
        self._ids = 0
        self.turn = ""
        self._heard: list[dict[str, Any]] = []
        command = [str(home.bin), "app-server"]
        self.child = RawChild(command, home.env, home.workdir, patience=30)
        self.call(wire.INITIALIZE, wire.initialize("bench"))
        self.child.write({"method": wire.INITIALIZED, "params": {}})
        settings: dict[str, Any] = {
            "cwd": str(home.workdir),
            "approvalPolicy": "untrusted" if moment.asks else "never",
            "sandbox": "danger-full-access",
        }
        if resume is None:
            opened = self.call(wire.THREAD_START, settings)
        else:
            again = settings | {"threadId": resume, "excludeTurns": True}
            opened = self.call(wire.THREAD_RESUME, again)
        self.thread = opened["thread"]["id"]

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._ids += 1
        self.child.write({"id": self._ids, "method": method, "params": params})
        return self._ids

    def call(self, method: str, params: dict[str, Any]) -> Any:
        number = self.send(method, params)
        while "method" in (answer := self.child.read()) or answer["id"] != number:
            self._heard.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def start(self, text: str) -> None:
        params = wire.turn_start(self.thread, [text], f"key-{self._ids}")
        self.turn = self.call(wire.TURN_START, params)["turn"]["id"]

    def wait_for(self, method: str) -> None:
        """Wait for the next of this kind, told already or not; skips what is before."""
        while self._heard:
            if self._heard.pop(0).get("method") == method:
                return
        self.child.until(method=method)

    def cut_and_start(self, text: str) -> float:
        """The path that is measured; the clock's time at its beginning."""
        began = time.perf_counter()
        self.send(wire.TURN_INTERRUPT, wire.turn_interrupt(self.thread, self.turn))
        self.wait_for(wire.TURN_COMPLETED)
        self.start(text)
        return began


async def _by_hand(
    raw: RawCodex, model: ModelServer, moment: Moment, home: CodexHome
) -> float:
    number = next(_numbers)
    work, question = moment.work(home, number), f"question {number} is urgent"
    run = partial(trio.to_thread.run_sync, abandon_on_cancel=False)
    with trio.fail_after(60):
        await run(raw.start, work)
        await run(raw.wait_for, wire.TURN_STARTED)
        await _has_begun(model, moment, home, number, work)
        if moment.asks:
            await run(raw.wait_for, wire.ASK_COMMAND)
        await trio.sleep(0.05)
        shift = trio.current_time() - time.perf_counter()
        began = await run(raw.cut_and_start, question)
        request = await model.wait_until_told(question)
        await run(raw.wait_for, wire.TURN_COMPLETED)
    return (request.at - (began + shift)) * 1e3
