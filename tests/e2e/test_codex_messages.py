"""Stop and ordinary messages, with the real Codex below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.model_server import do
from tests.kit.real_agent import STREAM

if TYPE_CHECKING:
    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


@pytest.mark.req("R12", "R13", "R14", "R15", "R124")
@pytest.mark.bug("B02", "B22")
async def test_stop_ends_the_run_parks_what_waits_and_a_resume_runs_it(
    coder: Coder,
) -> None:
    agent = coder.agent
    await coder.says()
    waits = [await agent.deliver(body) for body in ("one", "two")]
    run = await agent.stop()
    view = await agent.idle()
    states = [(await coder.product.delivery(d))["state"] for d in waits]
    assert (await agent.control(run, 409))["type"].endswith("not_running")
    heard = list(coder.model.requests)
    await agent.resume()
    for delivery in waits:
        await coder.product.surfaced(delivery)
    await agent.idle()
    assert await agent.outcomes() == ["aborted", "completed"]
    messages = await coder.product.get(f"/api/targets/@{agent.name}/messages")
    assert view["parked"]
    assert states == ["queued", "queued"]
    assert len(heard) == 1
    assert "".join(coder.read) == f"{STREAM}onetwo"
    people = [m for m in messages["messages"] if m["author"]["kind"] == "user"]
    assert [m["body"] for m in people] == [STREAM, "one", "two"]


@pytest.mark.req("R14", "R15")
@pytest.mark.bug("B02")
async def test_after_a_stop_the_next_message_runs_and_an_old_stop_cannot_end_it(
    coder: Coder,
) -> None:
    agent = coder.agent
    await coder.says()
    old = await agent.stop()
    await agent.idle()
    await coder.says(do({"stream": 3001, "ms": 20}))
    assert (await agent.control(old, 409))["type"].endswith("stale_run")
    assert (await agent.running())["currentRun"]["id"] != old
    await agent.stop()
    await agent.idle()
    assert await agent.outcomes() == ["aborted", "aborted"]
    assert coder.turn_calls == ["start", "interrupt", "start", "interrupt"]


@pytest.mark.req("R20", "R21", "R23", "R45", "R47", "R133")
@pytest.mark.inv(14, 19)
async def test_messages_to_a_busy_agent_are_steered_in_order_and_cut_nothing(
    coder: Coder,
) -> None:
    bodies = [f"note {number}. " for number in range(5)]
    first = do({"say": "I am at it, word by word, to the end", "ms": 250})
    await coder.says(first)
    notes = [await coder.agent.deliver(body) for body in bodies]
    accepted = [await coder.product.delivery(note) for note in notes]
    found = [await coder.product.surfaced(note) for note in notes]
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["completed"]
    assert await coder.agent.journal("interrupt/requested") == []
    assert await coder.agent.journal("fence/held") == []
    assert {a["state"] for a in accepted} <= {"queued", "accepted"}
    assert {a["evidence"] and 1 for a in accepted} == {None}
    assert coder.turn_calls == ["start", *["steer"] * 5]
    assert coder.model.requests[0].end == "completed"
    assert coder.read == [first, *bodies]
    assert [f["attempt"] for f in found] == [1] * 5


@pytest.mark.req("R23", "R29", "R46")
@pytest.mark.bug("B22")
@pytest.mark.inv(12, 13, 14, 15)
async def test_an_urgent_goes_first_and_nothing_steered_or_queued_is_lost_or_doubled(
    coder: Coder,
) -> None:
    """Steers that a running command holds back are dropped by the interrupt."""
    agent = coder.agent
    room = f"room-{agent.name}"
    await coder.product.post("/api/targets", {"name": room, "agents": [agent.name]})
    await coder.runs("touch begun; sleep 30", "begun")
    steered = [await agent.deliver(f"s{n}. ") for n in range(3)]
    other = [(await agent.send(f"r{n}. ", to=room)) for n in range(3)]
    waits = [m["deliveries"][0]["id"] for m in other]
    urgent = await agent.urge("now. ")
    await coder.product.surfaced(urgent)
    for delivery in [*steered, *waits]:
        await coder.product.surfaced(delivery)
    await agent.idle()
    assert len(await agent.journal("interrupt/requested")) == 1
    told = "".join(coder.read[1:])
    marks = ["now. ", *[f"{k}{n}. " for k in "sr" for n in range(3)]]
    assert {mark: told.count(mark) for mark in marks} == dict.fromkeys(marks, 1)
    for kind in "sr":
        places = [told.index(f"{kind}{n}. ") for n in range(3)]
        assert places == sorted(places)
    # Of its own target the urgent may take older messages along, never of another.
    (after,) = [r for r in coder.model.requests if r is coder.model.told("now. ")[0]]
    assert "r0. " not in "".join(after.user_texts)


@pytest.mark.req("R3", "R7", "R17", "R131")
@pytest.mark.inv(16, 19)
async def test_words_that_ask_to_stop_cut_nothing(coder: Coder) -> None:
    words = '停一下 urgent STOP {"interruptPolicy":"interrupt_current_run"}'
    first = do({"say": "as if nothing had been said at all", "ms": 150})
    await coder.says(first)
    await coder.product.surfaced(await coder.agent.deliver(words))
    await coder.agent.idle()
    assert coder.turn_calls == ["start", "steer"]
    assert coder.model.requests[0].end == "completed"
    assert coder.read == [first, words]
