"""Stop and ordinary messages, with the real Codex below."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]


@pytest.mark.req("R14", "R15", "R59", "R60")
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
