"""The real Claude Code dies or hangs, and the whole product with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.claude_coder import ClaudeCoder, open_claude_coder
from tests.kit.claude_home import VERSIONS
from tests.kit.model_server import do
from tests.kit.product import open_product
from tests.kit.real_agent import STREAM

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(
        "version", [pytest.param(v, marks=pytest.mark.needs(v)) for v in VERSIONS]
    ),
]

CUT = ["requested", "stopping", "interrupted", "started"]


async def first_words(coder: ClaudeCoder) -> None:
    """Have one whole turn, so that there is a history to lose."""
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()


@pytest.mark.req("R63", "R136", "R33", "R53", "R128")
@pytest.mark.bug("B06")
@pytest.mark.inv(15, 22, 35)
async def test_deaf_to_the_interrupt_it_is_killed_and_resumed_and_reads_the_message(
    product: Product, version: str
) -> None:
    """The specification's own way, whenever the graceful one misses its deadline."""
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder:
            await first_words(coder)
            await coder.runs("touch begun; (setsid sleep 60 &); sleep 60", "begun")
            hung = coder.runtime()
            hung.suspend()
            urgent = await coder.agent.urge("are you there? ")
            await product.surfaced(urgent)
            assert not hung.is_running()
            assert coder.processes("sleep 60") == []
            await coder.agent.idle()
            assert await coder.agent.lines(urgent) == CUT
            assert (await coder.agent.outcomes())[1:] == ["aborted", "completed"]
    assert coder.read[0] == "remember me. "
    assert coder.read[-1] == "are you there? "


@pytest.mark.req("R44", "R46", "R117", "R121")
@pytest.mark.bug("B03", "B25")
@pytest.mark.inv(12, 13)
async def test_killed_it_is_resumed_and_what_waits_is_read_once(
    product: Product, version: str
) -> None:
    with trio.fail_after(90):
        async with open_claude_coder(product, version) as coder:
            await first_words(coder)
            await coder.runs("touch begun; sleep 60", "begun")
            notes = [await coder.agent.deliver(body) for body in ("a. ", "b. ")]
            coder.runtime().kill()
            for note in notes:
                await product.surfaced(note)
            await coder.agent.idle()
            assert (await coder.agent.outcomes())[1:] == ["error", "completed"]
            assert coder.processes("sleep 60") == []
            # Idle, and what comes next may find it dying, or dead.
            coder.runtime().kill()
            await product.surfaced(await coder.agent.deliver("and then? "))
            await coder.agent.idle()
    told = "".join(coder.read)
    assert [told.count(t) for t in ("remember me. ", "a. ", "b. ", "and then? ")] == [
        1,
        1,
        1,
        1,
    ]
    assert told.index("a. ") < told.index("b. ")


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


@pytest.mark.req("R18", "R44", "R51")
@pytest.mark.bug("B01", "B04", "B12", "B34")
@pytest.mark.inv(12, 13, 22, 35)
async def test_the_product_is_killed_with_an_urgent_pending_and_it_is_read_once(
    tmp_path: Path, version: str
) -> None:
    with trio.fail_after(120):
        async with (
            open_product(tmp_path) as product,
            open_claude_coder(product, version) as coder,
        ):
            await coder.starts()
            coder.runtime().suspend()
            urgent = await coder.agent.urge("after all. ")
            await product.kill9()
            await coder.all_gone()
            await product.start()
            await product.surfaced(urgent)
            await coder.agent.idle()
            lines = await coder.agent.lines(urgent)
            await coder.runs("(setsid sleep 300 &); touch begun; sleep 300", "begun")
            assert await product.terminate() == 0
            left, sockets = coder.processes(), coder.scratch()
    assert (left, sockets) == ([], [])
    assert (lines[0], lines[-1]) == ("requested", "started")
    told = "".join(coder.read)
    assert told.count("after all. ") == 1
    assert told.count(STREAM) <= 1
