"""The whole product is killed in every phase, and goes on where it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.product import do, of_kind, open_product
from tests.kit.service import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}
CUT = ["requested", "stopping", "interrupted", "started"]
DEAF = {"deaf": ["interrupt", "TERM", "stdin"]}


async def read_once_or_said(
    agent: Agent, sent: list[str], again: frozenset[str] = frozenset()
) -> None:
    """
    Every body reached the model once; again only with a note that says so.

    `again`: read as an ordinary message before it was marked urgent, and so once more.
    """
    heard = await agent.heard()
    assert set(sent) <= set(heard)
    twice = {b for b in heard if heard.count(b) > (2 if b in again else 1)}
    noted = [e for e in await agent.journal("delivery/changed") if e["note"]]
    assert not twice or noted, (heard, noted)


@pytest.mark.req("R11", "R118", "R121", "R132")
@pytest.mark.bug("B01", "B02", "B22", "B36")
@pytest.mark.inv(12, 13, 27, 31)
async def test_killed_in_every_phase_at_once_nothing_is_lost(tmp_path: Path) -> None:
    """Agents in many phases, one kill: each goes on by its own rule."""
    async with open_product(tmp_path) as product:
        queued = await _queued(product)
        surfaced = await _surfaced(product)
        submitted = await _submitted(product)
        held = await _held(product)
        asking = await _asking(product)
        parked = await _parked(product)
        starting = await _starting(product)
        idle = await product.agent([ANSWER], [ANSWER])
        await product.surfaced(await idle.deliver("only this"))
        await idle.idle()
        before = product.up.processes()
        assert len(before) > 8
        await product.kill9()
        await product.all_gone()
        await product.start()
        await _queued_went_on(product, *queued)
        await _surfaced_stays(product, *surfaced)
        await _submitted_settles(product, *submitted)
        await _held_is_answered(product, *held)
        await _asking_is_closed(product, *asking)
        await _parked_stays(product, *parked)
        await _starting_goes_on(product, *starting)
        assert await idle.heard() == ["only this"]
        await product.surfaced(await idle.deliver("and this"))


async def _queued(product: Product) -> tuple[Agent, list[str]]:
    agent = await product.agent([BUSY], [ANSWER], [ANSWER], config={"steer": "none"})
    await product.surfaced(await agent.deliver("running"))
    sent = [await agent.deliver(body) for body in ("a", "b")]
    await agent.received(sent[-1])
    return agent, sent


async def _queued_went_on(product: Product, agent: Agent, sent: list[str]) -> None:
    for delivery in sent:
        await product.surfaced(delivery)
    await agent.idle()
    # The turn that the crash cut is not run again.
    assert await agent.heard() == ["running", "a", "b"]
    assert (await agent.outcomes())[0] == "interrupted"


async def _surfaced(product: Product) -> tuple[Agent, str]:
    agent = await product.agent([BUSY], [ANSWER])
    delivery = await agent.deliver("in the middle of it")
    await product.surfaced(delivery)
    await agent.running()
    return agent, delivery


async def _surfaced_stays(product: Product, agent: Agent, delivery: str) -> None:
    await agent.idle()
    assert (await product.delivery(delivery))["state"] == "surfaced"
    assert await agent.heard() == ["in the middle of it"]
    ended = of_kind(await agent.activity(), "run_ended")
    assert len(ended) == 1
    await product.surfaced(await agent.deliver("next"))


async def _submitted(product: Product) -> tuple[Agent, str]:
    """Accepted by the runtime, and not read when the kill comes."""
    agent = await product.agent([BUSY], [ANSWER], config={"surfaceMs": 600_000})
    delivery = await agent.deliver("on its way")
    await agent.recorded("delivery/changed", delivery=delivery, state="accepted")
    assert await agent.seen() == []
    return agent, delivery


async def _submitted_settles(product: Product, agent: Agent, delivery: str) -> None:
    """The runtime's own record says that it was not read: it is delivered again."""
    await agent.recorded("delivery/changed", delivery=delivery, state="queued")
    await agent.recorded("turn/end", outcome="interrupted")
    found = await product.delivery(delivery)
    assert found["state"] in {"queued", "accepted"}
    assert found["attempt"] == 2


async def _held(product: Product) -> tuple[Agent, str]:
    """Between requested and started: the runtime does not let go."""
    agent = await product.agent([DEAF, BUSY], [ANSWER])
    await product.surfaced(await agent.deliver("a long task"))
    urgent = await agent.urge("now")
    await agent.recorded("fence/held")
    await agent.until(lambda lines: len(of_kind(lines, "stopping")) == 1, "activity")
    return agent, urgent


async def _held_is_answered(product: Product, agent: Agent, urgent: str) -> None:
    await product.surfaced(urgent)
    await agent.idle()
    lines = await agent.lines(urgent)
    assert [k for k in lines if k in CUT] == CUT
    assert (await agent.heard()).count("now") == 1


async def _asking(product: Product) -> tuple[Agent, str]:
    agent = await product.agent([{"ask": "shell"}, {"say": "never"}], [ANSWER])
    await product.surfaced(await agent.deliver("ask me"))
    return agent, (await agent.approval())["id"]


async def _asking_is_closed(product: Product, agent: Agent, approval: str) -> None:
    await agent.idle()
    refused = await product.decide(approval, "allowed-once", 409)
    assert refused["type"].endswith("already_decided")
    assert (await agent.view())["pendingApprovals"] == []
    decided = await agent.journal("approval/decided")
    assert [(d["id"], d["outcome"]) for d in decided] == [(approval, "cancelled")]


async def _parked(product: Product) -> tuple[Agent, str]:
    agent = await product.agent([BUSY], [ANSWER], config={"steer": "none"})
    await product.surfaced(await agent.deliver("a long task"))
    waiting = await agent.deliver("waits for a person")
    await agent.received(waiting)
    await agent.stop()
    await agent.idle()
    return agent, waiting


async def _parked_stays(product: Product, agent: Agent, waiting: str) -> None:
    view = await agent.idle()
    assert view["parked"]
    assert (await product.delivery(waiting))["state"] == "queued"
    await agent.resume()
    await product.surfaced(waiting)


async def _starting(product: Product) -> tuple[Agent, str]:
    """The handshake hangs when the kill comes."""
    agent = await product.agent([ANSWER], config={"start": [{"wait": 1500}]})
    delivery = await agent.deliver("be there")
    await agent.running()
    return agent, delivery


async def _starting_goes_on(product: Product, agent: Agent, delivery: str) -> None:
    await product.surfaced(delivery)
    await agent.idle()
    assert await agent.heard() == ["be there"]


@pytest.mark.req("R10", "R132")
@pytest.mark.bug("B36")
async def test_a_request_repeated_after_a_restart_has_no_second_effect(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent([BUSY], [ANSWER])
        first = await agent.send("once", key="send-once")
        await product.surfaced(first["deliveries"][0]["id"])
        message = await agent.send("now", key="send-now")
        urgent = await agent.mark(message, key="mark-now")
        await product.surfaced(urgent["id"])
        await agent.idle()
        await product.restart()
        assert (await agent.send("once", key="send-once"))["id"] == first["id"]
        assert (await agent.mark(message, key="mark-now"))["id"] == urgent["id"]
        await agent.idle()
        assert await agent.heard() == ["once", "now"]
        refused = await product.client.post(
            f"/api/targets/@{agent.name}/messages",
            json={"body": "other"},
            headers={"Idempotency-Key": "send-once"},
        )
        assert refused.status_code == 409
        assert refused.json()["type"].endswith("idempotency_conflict")


@pytest.mark.req("R121")
@pytest.mark.inv(13, 32)
async def test_killed_again_and_again_while_it_works_no_message_is_lost(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent(config={"surfaceMs": 30})
        sent: list[tuple[str, str]] = []
        urgents: dict[str, str] = {}
        for life in range(4):
            for n in range(3):
                body = f"message {life}.{n} " + "x " * 20
                sent.append((body, await agent.deliver(body)))
            if life % 2:
                body = f"urgent {life}"
                message = await agent.send(body)
                urgents[body] = message["id"]
                sent.append((body, (await agent.mark(message))["id"]))
            await product.restart()
        for _, delivery in sent:
            found = await product.ended(delivery)
            assert found["state"] in {"surfaced", "unknown"}, found
        await agent.idle()
        surfaced = [
            body
            for body, delivery in sent
            if (await product.delivery(delivery))["state"] == "surfaced"
        ]
        again: set[str] = set()
        for body, message in urgents.items():
            found = await product.get(f"/api/messages/{message}")
            states = [delivery["state"] for delivery in found["deliveries"]]
            again |= {body} if states.count("surfaced") == 2 else set()
        await read_once_or_said(agent, surfaced, frozenset(again))


@pytest.mark.req("R11")
@pytest.mark.bug("B01", "B34")
async def test_a_clean_end_leaves_nothing_and_keeps_what_waits(tmp_path: Path) -> None:
    async with open_product(tmp_path) as product:
        spawn = {"spawn": "sleep 600"}
        agent = await product.agent(
            [spawn, {"run": "sleep 601"}], [ANSWER], config={"steer": "none"}
        )
        deaf = await product.agent([DEAF, BUSY])
        for each in (agent, deaf):
            await product.surfaced(await each.deliver("a long task"))
        await agent.recorded("tool/call", name="shell")
        waiting = await agent.deliver("afterwards")
        await agent.received(waiting)
        assert product.named("sleep 600")
        assert product.named("sleep 601")
        assert await product.terminate() == 0
        await product.all_gone(within=0.5)
        await product.start()
        await product.surfaced(waiting)
        await agent.idle()
        assert (await agent.outcomes())[0] in {"aborted", "interrupted"}
        assert await deaf.heard() == ["a long task"]


@pytest.mark.bug("B12")
async def test_a_second_product_on_the_same_state_is_refused_by_name(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent([BUSY], [ANSWER])
        await product.surfaced(await agent.deliver("a long task"))
        arguments = ("up", "--port", "0", "--state-dir", str(product.up.state))
        refused: Any = run_command(tmp_path, *arguments)
        assert refused.code != 0
        assert product.up.process is not None
        assert f"pid {product.up.process.pid}" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert (await agent.view())["currentRun"]
        urgent = await agent.urge("still there?")
        await product.surfaced(urgent)


@pytest.mark.bug("B02", "B08")
async def test_a_death_of_every_process_but_its_own_is_survived(
    tmp_path: Path,
) -> None:
    """Wardens and runtimes alike are killed from outside, in one go."""
    async with open_product(tmp_path) as product:
        agents = [await product.agent([BUSY], [ANSWER]) for _ in range(3)]
        for agent in agents:
            await product.surfaced(await agent.deliver("a long task"))
        for process in product.up.processes():
            process.kill()
        for agent in agents:
            await agent.until(lambda runs: runs[0]["outcome"], "runs")
            await agent.idle()
            await product.surfaced(await agent.deliver("and now?"))
            await agent.idle()
            assert await agent.heard() == ["a long task", "and now?"]
            assert await agent.outcomes() == ["error", "completed"]


@pytest.mark.inv(31)
async def test_the_ledger_before_and_after_a_restart_is_the_same(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent()
        await product.surfaced(await agent.deliver(do({"say": "one", "ms": 0})))
        await agent.idle()
        before = await agent.journal(), await agent.runs(), await agent.activity()
        await product.restart()
        await agent.until(lambda view: view["daemon"]["connected"])
        journal = await agent.journal()
        assert journal[: len(before[0])] == before[0]
        assert (await agent.runs(), await agent.activity()) == before[1:]
