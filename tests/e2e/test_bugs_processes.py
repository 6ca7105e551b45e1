"""Real reports about processes, played through the whole product."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.product import open_product
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}
CUT = ["requested", "stopping", "interrupted", "started"]
_numbers = itertools.count(1)


def nap() -> str:
    """Make a command that sleeps for long and can be told from any other."""
    return f"sleep 600.{next(_numbers)}"


async def begin(agent: Agent) -> None:
    await agent.person.surfaced(await agent.deliver("a long task"))


async def goes_on(agent: Agent) -> None:
    """The agent takes the next message, and a Stop of nothing is refused."""
    view = await agent.idle()
    last = (await agent.runs())[-1]
    await agent.control(last["id"], 409)
    assert view["currentRun"] is None
    await agent.person.surfaced(await agent.deliver("next"))
    await agent.idle()
    assert (await agent.outcomes())[-1] == "completed"


# --- B01 -----------------------------------------------------------------------------


@pytest.mark.bug("B01")
@pytest.mark.parametrize("how", ["stop", "urgent"])
async def test_children_end_with_the_cut_run(product: Product, how: str) -> None:
    own, deaf, front = nap(), nap(), nap()
    shell = f"(trap '' TERM; {deaf}) & (setsid {own} &); {front}"
    agent = await product.agent([{"spawn": own}, {"run": shell}], [ANSWER])
    await begin(agent)
    await _running(product, own, deaf, front)
    if how == "stop":
        await agent.stop()
        await agent.idle()
    else:
        await product.surfaced(await agent.urge("now"))
    assert [product.named(part) for part in (own, deaf, front)] == [[], [], []]
    await goes_on(agent)


@pytest.mark.bug("B01", "B02")
@pytest.mark.parametrize("end", [{"exit": 0}, {"die": "KILL"}, {"die": "SEGV"}])
async def test_children_end_with_a_runtime_that_leaves(
    product: Product, end: dict[str, Any]
) -> None:
    own, deaf = nap(), nap()
    shell = f"(trap '' TERM; exec setsid {deaf}) >/dev/null 2>&1 &"
    agent = await product.agent(
        [{"spawn": own}, {"run": shell}, {"wait": 300}, end], [ANSWER]
    )
    await begin(agent)
    await _running(product, own, deaf)
    await agent.until(lambda runs: runs[0]["outcome"], "runs")
    assert product.named(own) + product.named(deaf) == []
    run = (await agent.runs())[0]
    assert run["outcome"] == "error"
    assert run["detail"]
    await goes_on(agent)


@pytest.mark.bug("B01", "B24")
async def test_a_server_of_an_earlier_turn_outlives_the_cut(product: Product) -> None:
    server, shell = nap(), nap()
    agent = await product.agent([{"spawn": server}], [{"run": shell}], [ANSWER])
    await begin(agent)
    await agent.idle()
    await begin(agent)
    await _running(product, server, shell)
    await product.surfaced(await agent.urge("now"))
    assert product.named(server)
    assert product.named(shell) == []
    await agent.idle()
    answer = await product.client.delete(agent.path)
    assert answer.status_code == 204
    with trio.fail_after(10):
        while product.named(server):  # noqa: ASYNC110 - a process tells no event
            await trio.sleep(0.02)


async def _running(product: Product, *commands: str) -> None:
    with trio.fail_after(10):
        while not all(map(product.named, commands)):  # noqa: ASYNC110 - no event
            await trio.sleep(0.02)


# --- B02, B06, B08 -------------------------------------------------------------------


@pytest.mark.req("R53", "R30")
@pytest.mark.bug("B06")
async def test_every_way_of_not_answering_a_stop_ends_by_the_ladder(
    product: Product,
) -> None:
    """They hang at the same time, so that the deadlines pass only once."""
    ways: dict[str, list[Any]] = {
        "answers and never ends": [{"lose": "end"}, BUSY],
        "answers nothing": [{"lose": "ack"}, {"deaf": ["interrupt"]}, BUSY],
        "refuses": [{"refuse": "interrupt"}, BUSY],
        "stands still": [{"wait": 200}, {"die": "STOP"}, BUSY],
        "takes its time": [
            {"deaf": ["interrupt"]},
            {"last": "famous last words", "ms": 300},
            BUSY,
        ],
    }
    agents = {how: await product.agent(steps, [ANSWER]) for how, steps in ways.items()}

    async def cut(how: str, agent: Agent) -> None:
        await begin(agent)
        if how == "stands still":
            await _stopped(product, agent)
        urgent = await agent.urge("now")
        later = await agent.deliver("later")
        await product.surfaced(urgent)
        await product.surfaced(later)
        await agent.idle()
        assert await agent.lines(urgent) == CUT, how
        assert (await agent.outcomes())[0] == "aborted", how
        heard = await agent.heard()
        assert sorted(heard) == ["a long task", "later", "now"], (how, heard)

    with trio.fail_after(70):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_replace_a_mute_one, product)
            for how, agent in agents.items():
                nursery.start_soon(cut, how, agent)
    late = await agents["takes its time"].journal("fence/late")
    assert any("famous last words" in event["detail"] for event in late)


async def _replace_a_mute_one(product: Product) -> None:
    """It takes no word any more: its next message is read by its successor."""
    agent = await product.agent([{"deaf": ["stdin"]}, ANSWER], [ANSWER])
    await begin(agent)
    await agent.idle()
    delivery = await agent.deliver("next")
    found = await until(
        lambda: product.delivery(delivery), lambda d: d["evidence"], within=60
    )
    assert found["attempt"] == 2
    await agent.idle()
    assert await agent.heard() == ["a long task", "next"]
    assert await agent.outcomes() == ["completed", "aborted", "completed"]


async def _stopped(product: Product, agent: Agent) -> None:
    runtime = await _runtime(agent)
    with trio.fail_after(10):
        while runtime.status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - no event
            await trio.sleep(0.02)


async def _runtime(agent: Agent) -> psutil.Process:
    """Find the process of the agent's runtime by what its journal says of it."""
    opened = [p for p in await agent.journal("run/process") if p["alive"]]
    return psutil.Process(json.loads(opened[-1]["identity"])["runtime"]["pid"])


@pytest.mark.bug("B02")
async def test_a_runtime_killed_while_idle_is_replaced_by_the_next_message(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER], [ANSWER])
    await begin(agent)
    await agent.idle()
    (await _runtime(agent)).kill()
    await agent.recorded("run/process", alive=False)
    await goes_on(agent)
    (await _runtime(agent)).kill()
    # The message may find it before or after its death is known.
    await product.surfaced(await agent.deliver("and again"))
    await agent.idle()


@pytest.mark.bug("B08")
async def test_a_write_to_a_dying_runtime_fails_its_agent_only(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        words = [f"word{n}" for n in range(60)]
        sibling = await product.agent([{"say": " ".join(words), "ms": 50}])
        quits: list[dict[str, Any]] = [{"close": "stdin"}, {"wait": 400}, {"exit": 1}]
        closing = await product.agent(quits, [ANSWER])
        dying = await product.agent([BUSY], [ANSWER])
        gone = await product.agent(options={"bin": "/nonexistent/python"})
        async with product.live() as live:
            await begin(sibling)
            for agent in (closing, dying):
                await begin(agent)
            big = "x" * 300_000
            sent = [await agent.deliver(big) for agent in (closing, dying, gone)]
            (await _runtime(dying)).kill()
            for agent, delivery in zip((closing, dying), sent, strict=False):
                await agent.until(lambda runs: runs[0]["outcome"] == "error", "runs")
                found = await product.ended(delivery)
                assert found["state"] in {"surfaced", "unknown"}, found
                heard = await agent.heard()
                assert heard.count(big) == (found["state"] == "surfaced")
            assert (await product.delivery(sent[2]))["state"] == "queued"
            await sibling.idle()
            await sibling.until(lambda said: said == [" ".join(words)], "said")
            run = (await sibling.runs())[0]["id"]
        assert live.progress(sibling, run).split() == words
        assert len(product.up.log) < 20_000


@pytest.mark.bug("B02")
async def test_every_message_to_a_runtime_that_always_dies_comes_to_an_end(
    product: Product,
) -> None:
    turns: list[list[dict[str, Any]]] = [[{"exit": 3}] for _ in range(20)]
    agent = await product.agent(*turns)
    sibling = await product.agent([ANSWER])
    sent = [await agent.deliver(f"message {n}") for n in range(3)]
    await product.surfaced(await sibling.deliver("hello"))
    for delivery in sent:
        assert (await product.ended(delivery))["state"] in {"surfaced", "unknown"}
    await agent.idle()
    ended = {run["outcome"] for run in await agent.runs()}
    assert ended == {"error"}
    assert all("3" in run["detail"] for run in await agent.runs())


# --- B34 -----------------------------------------------------------------------------


@pytest.mark.bug("B34")
async def test_nothing_defunct_and_no_descriptor_is_left_behind(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        assert product.up.process is not None
        supervisor = psutil.Process(product.up.process.pid)
        first = await product.agent([ANSWER])
        await begin(first)
        await first.idle()
        assert (await product.client.delete(first.path)).status_code == 204
        await product.all_gone()
        before = await _count(supervisor)
        forks: dict[str, Any] = {"run": "for i in $(seq 50); do (setsid true &); done"}
        agents = [
            await product.agent(*[[forks, {"exit": code}]] * 2) for code in range(4)
        ]
        missing = await product.agent(options={"bin": "/nonexistent/python"})

        async def play(code: int, agent: Agent) -> None:
            for turn in range(2):
                await agent.deliver(f"turn {turn}")
                await agent.until(lambda runs: len(runs) > turn, "runs")  # noqa: B023
                await agent.until(lambda runs: runs[turn]["outcome"], "runs")  # noqa: B023
            for run in await agent.runs():
                assert f"exit code {code}" in run["detail"], run

        async with trio.open_nursery() as nursery:
            for code, agent in enumerate(agents):
                nursery.start_soon(play, code, agent)
            for n in range(20):
                await missing.deliver(f"try {n}")
                await missing.resume()
        assert _defunct(supervisor) == []
        for agent in (*agents, missing):
            assert (await product.client.delete(agent.path)).status_code == 204
        await product.all_gone()
        await until(lambda: _count(supervisor), lambda fds: fds <= before, 10)


def _defunct(top: psutil.Process) -> list[int]:
    found: list[int] = []
    for process in top.children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


async def _count(process: psutil.Process) -> int:
    return _pipes(process)


def _pipes(process: psutil.Process) -> int:
    """Count its pipes and sockets; files and clients have bounded pools of theirs."""
    found = 0
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += str(descriptor.readlink()).startswith(("pipe:", "socket:"))
    return found - len(process.net_connections("tcp"))
