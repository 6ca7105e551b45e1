"""Mark urgent, with the real Claude Code below: what is cut, what is read next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.claude_coder import (
    ASKS,
    ClaudeCoder,
    as_often_as_told,
    open_claude_coder,
)
from tests.kit.claude_home import VERSIONS
from tests.kit.model_server import do
from tests.kit.product import of_kind
from tests.kit.real_agent import STREAM

if TYPE_CHECKING:
    from tests.kit.product import Product
    from tests.kit.product_agent import Live

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "version", [pytest.param(v, marks=pytest.mark.needs(v)) for v in VERSIONS]
    ),
]

CUT = ["requested", "stopping", "interrupted", "started"]


async def shown(live: Live, coder: ClaudeCoder, kind: str) -> int:
    """Wait until a line of this kind is shown live; gives its place."""
    with trio.fail_after(30):
        while True:
            for place, event in enumerate(live.of(coder.agent)):
                if event["kind"] == kind:
                    return place
            await trio.sleep(0.002)


@pytest.mark.req("R11", "R64", "R69", "R130", "R134", "R135")
@pytest.mark.inv(6, 7, 15, 20, 22)
async def test_streaming_text_is_cut_and_the_message_is_what_the_model_reads_next(
    product: Product, version: str
) -> None:
    question = "what is two and two?"
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder, product.live() as live:
            await coder.starts()
            old = (await coder.agent.running())["currentRun"]["id"]
            await shown(live, coder, "progress")
            before = coder.runtime().pid
            message = await coder.agent.send(question)
            urgent = (await coder.agent.mark(message))["id"]
            held = await shown(live, coder, "requested")
            found = await product.surfaced(urgent)
            await coder.agent.idle()
            ordinary = await product.ended(message["deliveries"][0]["id"])
            assert await coder.agent.lines(urgent) == CUT
            assert await coder.agent.outcomes() == ["aborted", "completed"]
            assert coder.runtime().pid == before, "nothing was killed"
    assert coder.cuts == 1
    assert [r.end for r in coder.model.requests] == ["client gone", "completed"]
    assert coder.read == [STREAM, question]
    assert "message_start" in found["evidence"]["kind"]
    assert ordinary["state"] == "superseded"
    late = of_kind(live.of(coder.agent)[held:], "progress")
    assert [e for e in late if e["runId"] == old] == []


@pytest.mark.req("R42", "R53", "R58")
@pytest.mark.bug("B01", "B24")
async def test_a_running_command_is_gone_before_the_cut_is_told(
    product: Product, version: str
) -> None:
    command = "trap '' TERM; (setsid sleep 30 &); touch begun; sleep 2; touch late"
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder, product.live() as live:
            await coder.runs(command, "begun")
            began = trio.current_time()
            urgent = await coder.agent.urge("leave that")
            await shown(live, coder, "interrupted")
            left = [p.cmdline() for p in coder.processes("sleep")]
            await product.surfaced(urgent)
            await coder.agent.idle()
            assert await coder.agent.lines(urgent) == CUT
            await trio.sleep_until(began + 2.3)
            calls = await coder.agent.journal("tool/call", "tool/result")
    assert left == []
    assert not coder.file("late").exists()
    assert [c["kind"] for c in calls] == ["tool/call", "tool/result"]
    assert coder.read[-1] == "leave that"


@pytest.mark.req("R70", "R84", "R120")
@pytest.mark.bug("B07")
@pytest.mark.inv(4, 5)
async def test_a_pending_approval_is_cancelled_and_what_is_allowed_runs_once(
    product: Product, version: str
) -> None:
    with trio.fail_after(90):
        opened = open_claude_coder(product, version, ASKS, approvalPolicy="ask")
        async with opened as coder:
            await coder.agent.deliver(do({"run": "touch asked_for"}))
            approval = await coder.agent.approval()
            urgent = await coder.agent.urge(do({"run": "touch allowed"}))
            await product.surfaced(urgent)
            late = await product.client.post(
                f"/api/approvals/{approval['id']}/decision",
                json={"outcome": "allowed-once"},
            )
            second = await coder.agent.approval()
            await product.decide(second["id"], "allowed-once")
            await coder.agent.idle()
            decided = await coder.agent.journal("approval/decided")
    assert "touch asked_for" in str(approval)
    assert late.status_code == 409
    assert [d["outcome"] for d in decided] == ["cancelled", "allowed-once"]
    assert coder.file("allowed").exists()
    assert not coder.file("asked_for").exists()


@pytest.mark.bug("B30")
@pytest.mark.inv(14, 15, 16, 20)
async def test_two_urgents_at_once_are_both_read_and_what_waited_is_read_once(
    product: Product, version: str
) -> None:
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder:
            await coder.starts()
            note = await coder.agent.send("note. ")
            pair = [await coder.agent.send(body) for body in ("one. ", "two. ")]
            async with trio.open_nursery() as nursery:
                for message in pair:
                    nursery.start_soon(coder.agent.mark, message)
            await as_often_as_told(coder, [note, *pair])
    assert coder.read[0] == STREAM


@pytest.mark.req("R6", "R44", "R60")
@pytest.mark.bug("B30", "B28", "B35")
@pytest.mark.inv(12, 13, 18, 20, 35)
async def test_an_urgent_in_any_moment_of_a_turn_is_read_as_often_as_it_says(
    product: Product, version: str
) -> None:
    """From before the model is asked to after it has answered: it takes some 100 ms."""
    with trio.fail_after(120):
        async with open_claude_coder(product, version) as coder:
            messages: list[Any] = []
            for number in range(10):
                first = await coder.agent.send(
                    f"first {number:02}. " + do({"say": "to the end", "ms": 20})
                )
                await trio.sleep(number * 0.02)
                message = await coder.agent.send(f"urgent {number:02}.")
                marked = (await coder.agent.mark(message))["id"]
                await product.surfaced(marked)
                await coder.agent.idle()
                messages += [first, message]
            await as_often_as_told(coder, messages)
            assert "error" not in await coder.agent.outcomes()
