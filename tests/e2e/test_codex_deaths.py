"""The real Codex dies, hangs or fails, and the whole product with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.coder import open_coder
from tests.kit.model_server import do
from tests.kit.product import of_kind, open_product
from tests.kit.product_agent import until
from tests.kit.real_agent import STREAM
from tests.kit.service import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.coder import Coder

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

CUT = ["requested", "stopping", "interrupted", "started"]


async def first_words(coder: Coder) -> None:
    """Have one whole turn, so that there is a history to lose."""
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()


@pytest.mark.req("R44", "R46")
@pytest.mark.bug("B03", "B25")
@pytest.mark.inv(12, 13)
async def test_killed_while_idle_it_is_resumed_with_its_history(
    coder: Coder,
) -> None:
    await first_words(coder)
    coder.runtime().kill()
    await coder.agent.recorded("run/process", alive=False)
    await coder.product.surfaced(await coder.agent.deliver("and then? "))
    await coder.agent.idle()
    assert coder.read == ["remember me. ", "and then? "]
    assert coder.home.calls.count("thread/resume") == 1


@pytest.mark.req("R44", "R117", "R121")
@pytest.mark.bug("B03", "B25")
@pytest.mark.inv(12, 13)
async def test_killed_while_it_speaks_the_run_fails_and_what_waits_is_read(
    coder: Coder,
) -> None:
    await coder.runs("touch begun; sleep 20", "begun")
    notes = [await coder.agent.deliver(body) for body in ("a. ", "b. ")]
    coder.runtime().kill()
    for note in notes:
        await coder.product.surfaced(note)
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["error", "completed"]
    left = coder.processes("sleep")
    assert left == []
    told = "".join(coder.read[1:])
    assert (told.count("a. "), told.count("b. ")) == (1, 1)
    assert told.index("a. ") < told.index("b. ")


@pytest.mark.req("R33", "R53", "R62", "R128")
@pytest.mark.bug("B06")
@pytest.mark.inv(15, 22, 35)
async def test_stopped_dead_while_it_speaks_it_is_killed_and_resumed(
    coder: Coder,
) -> None:
    await first_words(coder)
    await coder.says()
    hung = coder.runtime()
    hung.suspend()
    urgent = await coder.agent.urge("are you there? ")
    await coder.product.surfaced(urgent)
    assert not hung.is_running()
    await coder.agent.idle()
    assert await coder.agent.lines(urgent) == CUT
    assert (await coder.agent.outcomes())[1:] == ["aborted", "completed"]
    assert coder.read == ["remember me. ", STREAM, "are you there? "]


@pytest.mark.req("R33", "R53")
@pytest.mark.bug("B03", "B06")
@pytest.mark.inv(12, 13, 15, 22, 35)
async def test_killed_in_the_middle_of_the_interrupt_the_message_is_read_next(
    coder: Coder,
) -> None:
    await first_words(coder)
    await coder.says()
    hung = coder.runtime()
    hung.suspend()
    urgent = await coder.agent.urge("are you there? ")

    async def interrupted() -> bool:
        return "turn/interrupt" in coder.home.calls

    await until(interrupted, bool)
    hung.kill()
    await coder.product.surfaced(urgent)
    await coder.agent.idle()
    assert await coder.agent.lines(urgent) == CUT
    assert coder.read == ["remember me. ", STREAM, "are you there? "]


# What the model does, and a part of what is told of it.
FAILURES: dict[str, tuple[dict[str, int], str]] = {
    "HTTP 500": ({"http": 500}, "high demand"),
    "HTTP 401": ({"http": 401}, "401 Unauthorized"),
    "a cut answer": ({"cut": 3}, "disconnected"),
}


@pytest.mark.req("R56", "R117")
@pytest.mark.bug("B25")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failing_model_fails_the_turn_and_a_person_reads_why(
    coder: Coder, failure: str
) -> None:
    await coder.agent.deliver(do(FAILURES[failure][0]))
    await coder.agent.until(bool, "outcomes")
    view = await coder.agent.idle()
    (run,) = await coder.agent.runs()
    items = await coder.agent.activity()
    await coder.product.surfaced(await coder.agent.deliver("again"))
    await coder.agent.idle()
    assert await coder.agent.outcomes() == ["error", "completed"]
    (ended,) = of_kind(items, "run_ended")
    assert ended["detail"]["detail"] == run["detail"]
    assert FAILURES[failure][1] in run["detail"]
    assert view["currentRun"] is None


@pytest.mark.req("R18", "R44", "R51")
@pytest.mark.bug("B01", "B04", "B12")
@pytest.mark.inv(12, 13, 22, 35)
@pytest.mark.parametrize("moment", ["before the interrupt", "in the interrupt"])
async def test_the_product_is_killed_with_an_urgent_pending_and_it_is_read_once(
    tmp_path: Path, moment: str
) -> None:
    with trio.fail_after(90):
        async with open_product(tmp_path) as product, open_coder(product) as coder:
            await coder.says()
            if moment == "in the interrupt":
                coder.runtime().suspend()
            urgent = await coder.agent.urge("after all. ")
            await product.kill9()
            await coder.all_gone()
            await product.start()
            found = await product.surfaced(urgent)
            await coder.agent.idle()
            lines = await coder.agent.lines(urgent)
    told = "".join(coder.read)
    assert told.count("after all. ") == 1
    assert found["interruptPolicy"] == "interrupt_current_run"
    assert (lines[0], lines[-1]) == ("requested", "started")
    assert len(lines) == len(set(lines))


@pytest.mark.bug("B01", "B34")
@pytest.mark.parametrize("how", ["SIGTERM", "down"])
async def test_nothing_is_alive_after_the_end_of_the_service(
    tmp_path: Path, how: str
) -> None:
    command = "(setsid sleep 300 &); trap '' TERM; touch begun; sleep 300"
    with trio.fail_after(90):
        async with open_product(tmp_path) as product, open_coder(product) as coder:
            await coder.runs(command, "begun")
            assert coder.processes("sleep 300")
            if how == "down":
                done = await trio.to_thread.run_sync(
                    run_command, product.up.state, "down"
                )
                assert (done.code, product.up.alive()) == (0, False)
            else:
                assert await product.terminate() == 0
            left = coder.processes()
    assert left == []
