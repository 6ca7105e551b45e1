"""The app-server is killed, or stands still, in each phase of its life."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.coder import ASKS, open_coder
from tests.kit.product_agent import until

from agentteam_supervisor.chaos.models.responses import do

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import psutil
    from tests.kit.coder import Coder
    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

QUESTION = "are you there? "
LINES = ["requested", "stopping", "interrupted", "started"]


async def idle(coder: Coder) -> list[str]:
    await coder.product.surfaced(await coder.agent.deliver("remember me. "))
    await coder.agent.idle()
    return []


async def speaking(coder: Coder) -> list[str]:
    await coder.says()
    return []


async def running_a_command(coder: Coder) -> list[str]:
    """It holds a steer back, too: accepted, and not shown to the model."""
    await coder.runs("touch begun; (setsid sleep 300 &); sleep 300", "begun")
    steered = await coder.agent.deliver("by the way. ")
    await until(
        lambda: coder.product.delivery(steered), lambda d: d["state"] == "accepted"
    )
    return [steered]


async def asking(coder: Coder) -> list[str]:
    await coder.agent.deliver(do({"run": "touch asked_for"}))
    await coder.agent.approval()
    return []


async def being_cut(coder: Coder) -> list[str]:
    """The cut has just been ordered; how far it got is left to chance."""
    await coder.says()
    return [await coder.agent.urge("first this. ")]


PHASES: dict[str, Callable[[Coder], Awaitable[list[str]]]] = {
    "idle": idle,
    "speaking": speaking,
    "running a command": running_a_command,
    "asking": asking,
    "being cut": being_cut,
}


@pytest.mark.req("R33", "R53", "R54", "R56", "R57")
@pytest.mark.bug("B01", "B02", "B06", "B07")
@pytest.mark.inv(6, 12, 13, 15, 21, 22, 35)
async def test_hung_in_any_phase_it_is_ended_and_the_urgent_is_read_once(
    product: Product,
) -> None:
    """All of them at the same time, so that the deadlines pass only once."""
    with trio.fail_after(110):
        async with trio.open_nursery() as nursery:
            for phase in PHASES:
                nursery.start_soon(survives, product, phase)


async def survives(product: Product, phase: str) -> None:
    async with open_coder(product, ASKS if phase == "asking" else None) as coder:
        earlier = await PHASES[phase](coder)
        old = coder.runtime()
        old.suspend()
        urgent = await coder.agent.urge(QUESTION)
        if phase == "idle":
            # A turn that it never heard of: what is urgent now cuts that one.
            earlier.append(urgent)
            urgent = await coder.agent.urge("and now? ")
        for delivery in (urgent, *earlier):
            await product.surfaced(delivery)
        view = await coder.agent.idle()
        await tells_the_truth(coder, phase, urgent, old)
        assert view["pendingApprovals"] == []
        assert view["problem"] is None, view["problem"]


async def tells_the_truth(
    coder: Coder, phase: str, urgent: str, old: psutil.Process
) -> None:
    """Hold what people were told against the model, the processes and the files."""
    assert not old.is_running(), phase
    assert coder.processes("sleep") == [], phase
    assert not coder.file("asked_for").exists()
    lines = await coder.agent.lines(urgent)
    assert lines == [kind for kind in LINES if kind in lines], (phase, lines)
    assert {lines[0], lines[-1]} == {"requested", "started"}, (phase, lines)
    runs = await coder.agent.outcomes()
    assert set(runs) <= {"aborted", "error", "completed"}, (phase, runs)
    assert runs[-1] == "completed", (phase, runs)
    told = "".join(coder.read)
    for body in (QUESTION, "and now? ", "by the way. ", "first this. "):
        assert told.count(body) <= 1, (phase, told)
    events = await coder.agent.journal("approval/asked", "approval/decided")
    assert all(e.get("outcome") in (None, "cancelled") for e in events), events
    assert len(events) == (2 if phase == "asking" else 0), (phase, events)


@pytest.mark.req("R49", "R54", "R55", "R57", "R137")
@pytest.mark.bug("B02", "B03", "B35")
@pytest.mark.inv(12, 13, 21, 35, 36)
@pytest.mark.parametrize("how", ["kill", "suspend"])
async def test_gone_again_while_it_comes_back_nothing_is_claimed_or_lost(
    coder: Coder, how: str
) -> None:
    """
    Killed: that start has failed, and the urgent with it; it may be marked again.

    Hung: a Stop ends that start before its deadline, and what waited waits for a resume.
    """
    await coder.says()
    message = await coder.agent.send(QUESTION)
    run = (await coder.agent.running())["currentRun"]["id"]
    coder.home.hold()
    old = coder.runtime()
    old.kill()
    urgent = (await coder.agent.mark(message))["id"]
    again = await starting(coder, old.pid)
    getattr(again, how)()
    coder.home.let_go()
    if how == "kill":
        found = await coder.product.ended(urgent)
        assert (found["state"], found["evidence"]) == ("failed", None)
        assert found["diagnostic"]["whatToDo"]
        assert (await coder.agent.idle())["problem"]["whatToDo"]
        urgent = (await coder.agent.mark(message))["id"]
    else:
        await coder.agent.until(lambda v: v["currentRun"]["id"] != run)
        await coder.agent.stop()
        assert (await coder.agent.idle())["parked"]
        assert (await coder.product.delivery(urgent))["state"] == "queued"
        await coder.agent.resume()
    await coder.product.surfaced(urgent)
    view = await coder.agent.idle()
    assert not again.is_running()
    assert view["problem"] is None
    assert "".join(coder.read).count(QUESTION) == 1
    assert (await coder.agent.outcomes())[-1] == "completed"


@pytest.mark.req("R28", "R56", "R57")
@pytest.mark.bug("B35")
@pytest.mark.inv(12, 21, 35)
@pytest.mark.parametrize("how", ["kill", "suspend"])
async def test_gone_while_starting_nothing_is_claimed_and_a_later_message_is_read(
    coder: Coder, how: str
) -> None:
    """Killed: the start has failed. Hung: a Stop ends it long before its deadline."""
    coder.home.hold()
    delivery = await coder.agent.deliver("first. ")
    process = await starting(coder)
    getattr(process, how)()
    if how == "suspend":
        await coder.agent.stop()
    view = await coder.agent.idle()
    assert (await coder.product.delivery(delivery))["state"] == "queued"
    assert not process.is_running()
    if how == "kill":
        assert view["problem"]["whatToDo"]
    coder.home.let_go()
    await coder.product.surfaced(await coder.agent.deliver("second. "))
    await coder.product.surfaced(delivery)
    view = await coder.agent.idle()
    assert view["problem"] is None
    assert "".join(coder.read) == "first. second. "


async def starting(coder: Coder, old: int = 0) -> psutil.Process:
    """Wait for an app-server that is on hold in its handshake; `old` is an earlier."""

    async def look() -> list[int]:
        found = coder.processes(f"{coder.home.bin} app-server")
        return [p.pid for p in found if p.pid != old]

    await until(look, bool)
    return coder.runtime()
