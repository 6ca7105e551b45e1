"""No word of a message decides anything: only the explicit call interrupts."""

from __future__ import annotations

import itertools
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import trio

if TYPE_CHECKING:
    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

BODIES = [
    "停一下",
    "别做了，先停下来！！",
    "urgent!!! STOP NOW",
    "/interrupt",
    '{"interruptPolicy": "interrupt_current_run"}',
    '{"action": "interrupt_current_run", "runId": null}',
    "interrupt_current_run",
    "[note: the current run was interrupted]",
    "^C\x1b[2J\x03",
]
TALK = [{"say": "one two three four five six", "ms": 120}]
ASKING: list[dict[str, Any]] = [{"ask": "shell"}, {"wait": 600_000}]


@pytest.mark.req("R3", "R7", "R13", "R131", "R133")
@pytest.mark.bug("B40")
@pytest.mark.inv(19)
async def test_no_body_interrupts_a_run(product: Product) -> None:
    agent = await product.agent(TALK, config={"steer": "none"})
    first = await agent.deliver("talk")
    await product.surfaced(first)
    for body in BODIES:
        await agent.send(body)
    await agent.until(lambda runs: runs[0]["outcome"], "runs")
    for message in (await product.get(f"/api/targets/@{agent.name}/messages"))[
        "messages"
    ]:
        for delivery in message["deliveries"]:
            await product.surfaced(delivery["id"])
    await agent.idle()
    assert set(await agent.outcomes()) == {"completed"}
    assert await agent.journal("fence/held", "interrupt/requested") == []
    assert [b for b in await agent.heard() if b != "talk"] == BODIES


@pytest.mark.req("R3", "R13")
@pytest.mark.bug("B40")
async def test_no_body_closes_a_question(product: Product) -> None:
    agent = await product.agent([{"ask": "shell"}, {"say": "done", "ms": 0}])
    await product.surfaced(await agent.deliver("ask me"))
    approval = await agent.approval()
    sent = [await agent.deliver(body) for body in BODIES[:5]]
    for delivery in sent:  # handed over, not read: the runtime is busy asking
        await agent.recorded("delivery/changed", delivery=delivery, state="accepted")
    assert (await agent.approval())["id"] == approval["id"]
    await product.decide(approval["id"], "allowed-once")
    for delivery in sent:
        await product.surfaced(delivery)
    await agent.idle()
    decided = await agent.journal("approval/decided")
    assert [d["outcome"] for d in decided] == ["allowed-once"]
    assert set(await agent.outcomes()) == {"completed"}
    assert await agent.journal("interrupt/requested") == []


@pytest.mark.req("R3")
@pytest.mark.inv(16)
async def test_noise_instead_of_bodies_leaves_the_trace_as_it_is(
    product: Product,
) -> None:
    seed = random.Random(20261130)
    noise = [_noise(seed) for _ in BODIES]
    traces: list[list[Any]] = []
    with trio.fail_after(90):
        for bodies in (BODIES, noise, [b.upper()[::-1] for b in BODIES]):
            agent = await product.agent(
                TALK, TALK, ASKING, TALK, config={"steer": "none"}
            )
            await _act(product, agent, bodies)
            traces.append(normalised(await agent.journal(), bodies))
    assert traces[0] == traces[1] == traces[2]
    kinds = {event["kind"] for event in traces[0]}
    assert {"fence/closed", "approval/decided", "run/parked"} <= kinds


async def _act(product: Product, agent: Agent, bodies: list[str]) -> None:
    """Do the same whatever the bodies are: each step waits for the one before."""
    await product.surfaced(await agent.deliver(bodies[0]))
    queued = await agent.send(bodies[1])
    await agent.received(queued["deliveries"][0]["id"])
    urgent = (await agent.mark(queued))["id"]
    await product.surfaced(urgent)
    await agent.answered(1)
    await agent.idle()
    await product.surfaced(await agent.deliver(bodies[2]))
    await agent.approval()
    waiting = await agent.deliver(bodies[3])
    await agent.received(waiting)
    await agent.stop()
    await agent.idle()
    await agent.deliver(bodies[4])
    await product.surfaced(waiting)
    await agent.answered(2)
    await agent.idle()


def _noise(seed: random.Random) -> str:
    return "".join(chr(seed.randrange(0x4E00, 0x9FFF)) for _ in range(40))


_ID = re.compile(r"\b(?:agt|tgt|msg|dlv|run|apr|snd|bat|itm|ctl)_[0-9a-zA-Z_.]+")


def normalised(events: list[Any], bodies: list[str]) -> list[Any]:
    """
    Take out of a trace what may differ: ids (by order of appearance) and moments.

    Bodies become their numbers, so that a body in the wrong place shows.
    """
    names: dict[str, str] = {}
    fresh = itertools.count(1)

    def name(found: re.Match[str]) -> str:
        prefix = found[0].split("_")[0]
        return names.setdefault(found[0], f"{prefix} {next(fresh)}")

    def walk(key: str, value: Any) -> Any:
        if key == "body":
            return bodies.index(value)
        if isinstance(value, dict):
            return {k: walk(k, v) for k, v in value.items() if k not in _APART}
        if isinstance(value, list):
            return [walk("", each) for each in value]
        return _ID.sub(name, value) if isinstance(value, str) else value

    return [walk("", event) for event in events if not _depends_on_the_moment(event)]


# A process's identity, the runtime's own name of the session, the agent's name.
_APART = {"identity", "token", "targetName"}


def _depends_on_the_moment(event: dict[str, Any]) -> bool:
    """How much of a cut answer was said, before the cut and after it."""
    is_prefix = event["kind"] == "assistant/message" and event["partial"]
    return bool(is_prefix) or event["kind"] == "fence/late"
