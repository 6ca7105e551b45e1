"""
An urgent message at the worst moments of the real Codex.

The model is the outside checker: what its last request holds of a message is counted
against the deliveries of that message that say `surfaced`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.model_server import do
from tests.kit.product import of_kind

if TYPE_CHECKING:
    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


async def settled(coder: Coder, message: Any) -> Counter[str]:
    """Wait until every delivery of a message has ended; counts their states."""
    found = await coder.product.get(f"/api/messages/{message['id']}")
    for delivery in found["deliveries"]:
        await coder.product.ended(delivery["id"])
    found = await coder.product.get(f"/api/messages/{message['id']}")
    return Counter(d["state"] for d in found["deliveries"])


async def as_often_as_told(coder: Coder, messages: list[Any]) -> None:
    """Insist that the model was told each message as often as its deliveries say."""
    await coder.agent.idle()
    told = "\n".join(coder.read)
    for message in messages:
        states = await settled(coder, message)
        assert told.count(message["body"]) == states["surfaced"], (message, states)
        assert states["surfaced"] >= 1, (message, states)
        assert not set(states) - {"surfaced", "superseded"}, (message, states)


@pytest.mark.req("R6", "R44", "R60")
@pytest.mark.bug("B30", "B28")
@pytest.mark.inv(12, 13, 18, 20, 35)
async def test_an_urgent_that_races_the_natural_end_is_read_as_often_as_it_says(
    coder: Coder,
) -> None:
    rounds = 20
    urgents: list[Any] = []
    for number in range(rounds):
        script = do({"say": "to the end", "ms": 30})
        await coder.agent.deliver(script)
        await coder.model.wait_for_requests(len(coder.model.requests) + 1)
        # The whole answer takes 90 ms; what follows lands all around its end.
        await trio.sleep(number * 0.008)
        message = await coder.agent.send(f"urgent {number:02}.")
        urgent = (await coder.agent.mark(message))["id"]
        await coder.product.surfaced(urgent)
        await coder.agent.idle()
        urgents.append(message)
    await as_often_as_told(coder, urgents)
    turns = Counter(await coder.agent.outcomes())
    interrupts = [m for m in coder.home.wire if m.get("method") == "turn/interrupt"]
    named = [m["params"]["turnId"] for m in interrupts]
    assert len(set(named)) == len(named), "one interrupt for each turn"
    assert turns["error"] == 0


@pytest.mark.req("R60", "R61")
@pytest.mark.bug("B35")
@pytest.mark.inv(12, 13, 35)
async def test_an_urgent_in_the_first_moments_of_a_turn_loses_neither_message(
    coder: Coder,
) -> None:
    """Before `turn/started` Codex refuses an interrupt, or drops the turn's input."""
    messages: list[Any] = []
    for number in range(8):
        urgent = await coder.agent.send(f"urgent {number:02}.")
        await settled(coder, urgent)
        await coder.agent.idle()
        first = await coder.agent.send(f"first {number:02}.")
        await trio.sleep(number * 0.006)
        marked = (await coder.agent.mark(urgent))["id"]
        await coder.product.surfaced(marked)
        await coder.agent.idle()
        messages += [urgent, first]
    await as_often_as_told(coder, messages)


@pytest.mark.bug("B30")
@pytest.mark.inv(14, 15, 16, 20)
async def test_two_urgents_at_once_are_both_read_in_the_order_of_their_acceptance(
    coder: Coder,
) -> None:
    await coder.says()
    pair = [await coder.agent.send(body) for body in ("one. ", "two. ")]
    marked: dict[int, str] = {}

    async def mark(number: int) -> None:
        marked[number] = (await coder.agent.mark(pair[number]))["id"]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark, 0)
        nursery.start_soon(mark, 1)
    for delivery in marked.values():
        await coder.product.surfaced(delivery)
    await as_often_as_told(coder, pair)
    held = await coder.agent.journal("fence/held")
    asked = of_kind(await coder.agent.activity(), "requested")
    accepted = [item["deliveryId"] for item in asked]
    told = "".join(coder.read)
    order = sorted(marked, key=lambda n: told.index(pair[n]["body"]))
    assert [marked[n] for n in order] == accepted
    # One for each cut, but for a turn that was cut before anything of it was sent.
    assert 1 <= coder.turn_calls.count("interrupt") <= len(held)


@pytest.mark.req("R15")
@pytest.mark.bug("B30")
@pytest.mark.inv(20, 35, 36)
async def test_a_stop_and_an_urgent_at_once_make_one_interrupt(
    coder: Coder,
) -> None:
    await coder.says()
    run = (await coder.agent.running())["currentRun"]["id"]
    message = await coder.agent.send("instead. ")
    control = f"{coder.agent.path}/control"
    stop = {"action": "interrupt_current_run", "runId": run}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coder.agent.mark, message)
        nursery.start_soon(_post, coder, control, stop)
    await as_often_as_told(coder, [message])
    assert coder.turn_calls.count("interrupt") == 1


async def _post(coder: Coder, path: str, body: Any) -> None:
    await coder.product.client.post(path, json=body)
