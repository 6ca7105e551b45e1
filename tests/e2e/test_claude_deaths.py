"""The real Claude Code dies before it answers, or knows no interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.claude_coder import ClaudeCoder, open_claude_coder
from tests.kit.claude_home import DEAF, REFUSING, VERSIONS

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from tests.kit.product import Product

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "version", [pytest.param(v, marks=pytest.mark.needs(v)) for v in VERSIONS]
    ),
]


async def first_words(coder: ClaudeCoder) -> None:
    """Have one whole turn, so that there is a history to lose."""
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()


@pytest.mark.inv(12, 13)
async def test_killed_before_the_model_answers_it_is_asked_again_and_told_once(
    product: Product, version: str
) -> None:
    silent = do({"wait": 60})
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder:
            await first_words(coder)
            delivery = await coder.agent.deliver(silent)
            await coder.model.wait_until_told(silent)
            coder.runtime().kill()
            await coder.agent.recorded("run/process", alive=False)
            await product.surfaced(delivery)
            await coder.agent.idle()
            assert (await coder.agent.outcomes())[1:] == ["error", "completed"]
    assert coder.read == ["remember me. ", silent]


@pytest.mark.req("R63", "R65", "R69", "R136")
@pytest.mark.inv(12, 13, 15, 22)
@pytest.mark.parametrize("hears", [REFUSING, DEAF], ids=["refuses", "is silent"])
async def test_without_an_interrupt_it_is_ended_and_resumed_and_reads_the_message(
    product: Product, version: str, hears: str
) -> None:
    """Whether it says that it knows no interrupt, or nothing: it lives, and works on."""
    command = "touch begun; (setsid sleep 60 &); sleep 60"
    with trio.fail_after(90):
        async with open_claude_coder(product, version, hears=hears) as coder:
            await first_words(coder)
            working = await coder.agent.deliver(do({"run": command}))
            await coder.appears("begun")
            note = await coder.agent.deliver("by the way. ")
            old = coder.runtime()
            urgent = await coder.agent.urge("are you there? ")
            for delivery in (urgent, note, working):
                await product.surfaced(delivery)
            left, new = coder.processes("sleep 60"), coder.runtime().cmdline()
            await coder.agent.idle()
            lines = await coder.agent.lines(urgent)
            outcomes = (await coder.agent.outcomes())[1:]
    assert coder.home.told.count("interrupt") >= 1
    assert not old.is_running()
    assert (left, "--resume" in new) == ([], True)
    assert lines == ["requested", "stopping", "interrupted", "started"]
    assert outcomes == ["aborted", "completed"]
    told = "".join(coder.read)
    words = ["remember me. ", command, "by the way. ", "are you there? "]
    assert [told.count(w) for w in words] == [1, 1, 1, 1]
    assert [told.index(w) for w in words] == sorted(told.index(w) for w in words)
