"""
Mark urgent and Stop in every situation, on every real runtime, through the product.

All runtimes meet the same situations and the same expectations; what may differ is what
their drivers declare (`Capabilities`). What each test insists on at its end stands in
`tests/kit/scene.py`. What only one runtime has is in the files that bear its name.
"""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.lineup import EACH, Entrant
from tests.kit.product import of_kind, open_patient_up, person_at
from tests.kit.product_agent import Live, until
from tests.kit.scene import CUT, DEAF, HIDING, STUBBORN, Scene
from tests.kit.seat import Seat
from tests.kit.service import run_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    import psutil
    from tests.kit.product import Product

pytestmark = pytest.mark.slow

SECONDS = 400  # many times what a situation takes on two idle cores
MOST_DEATHS = 3  # of one agent: each makes the pause before the next start longer


@pytest.fixture(scope="module", params=EACH)
def seat(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Seat]:
    """Give a product with an agent on one of the runtimes."""
    entrant: Entrant = request.param
    with open_patient_up(tmp_path_factory.mktemp("matrix")) as up:
        entrant.bring(up.state)
        seat = Seat(entrant, up, itertools.count(1))
        yield seat
        seat.socket.close()


@pytest.fixture
async def product(seat: Seat) -> AsyncGenerator[Product]:
    async with person_at(seat.up) as product:
        yield product


@pytest.fixture
async def scene(seat: Seat, product: Product) -> AsyncGenerator[Scene]:
    """Give the agent, idle, and somebody who watches it; bounds the test."""
    async with bounded(), seat.taken(product) as it, product.live() as live:
        async with beginning(it, live, seat) as scene:
            yield scene
        if not scene.over or seat.deaths >= MOST_DEATHS:
            await seat.leave(it)


@asynccontextmanager
async def bounded() -> AsyncGenerator[None]:
    with trio.fail_after(SECONDS):
        yield


@asynccontextmanager
async def beginning(it: Any, live: Live, seat: Seat) -> AsyncGenerator[Scene]:
    """Begin a scene; what the journal has of it is shown with its failure."""
    scene = Scene(it, live, seat, (await it.agent.view())["capabilities"])
    await scene.begins()
    try:
        yield scene
    finally:
        if not scene.over and seat.up.alive():
            print(await scene.tale(), it.trace(), it.told, sep="\n")


@pytest.mark.req("R11", "R27", "R29", "R30", "R32", "R35", "R39", "R44", "R58", "R59")
@pytest.mark.req("R60", "R62", "R64", "R69", "R130", "R134", "R135", "R139")
@pytest.mark.inv(6, 7, 15, 20, 22)
async def test_streaming_text_is_cut_and_the_message_is_what_the_model_reads_next(
    scene: Scene,
) -> None:
    await scene.speaks()
    message = await scene.note("what is two and two?")
    urgent = await scene.mark(message)
    found = await scene.proved(urgent)
    ordinary = await scene.it.ended(message["deliveries"][0]["id"])
    assert await scene.agent.lines(urgent) == CUT
    await scene.ends(*scene.messages, outcomes=["aborted", "completed"])
    assert ordinary["state"] == "superseded"
    assert found["attempt"] == 1
    first, second = scene.it.model.requests[scene.requests_before :]
    assert (first.end, second.end) == ("client gone", "completed")
    assert second.user_texts[-1] == message["body"]
    said = await until(scene.agent.said, lambda said: message["body"] in said[-1])
    assert not [words for words in said if "tok" in words]


@pytest.mark.req("R42", "R53", "R58")
@pytest.mark.bug("B01", "B10", "B24", "B26")
@pytest.mark.parametrize("shape", [HIDING, DEAF], ids=["hiding", "deaf"])
async def test_all_that_a_command_started_is_gone_before_the_cut_is_told(
    scene: Scene, shape: str
) -> None:
    await scene.runs(shape)
    urgent = await scene.urge("leave that")
    left = await scene.interrupted(urgent)
    await scene.proved(urgent)
    assert left == []
    assert await scene.agent.lines(urgent) == CUT
    await scene.ends(*scene.messages, outcomes=["aborted", "completed"])
    calls = await scene.journal("tool/call", "tool/result")
    assert [c["kind"] for c in calls] == ["tool/call", "tool/result"]


@pytest.mark.req("R70", "R84", "R120")
@pytest.mark.bug("B07", "B26")
@pytest.mark.inv(4, 5)
async def test_a_pending_approval_is_cancelled_and_a_late_allow_is_refused(
    scene: Scene, product: Product
) -> None:
    approval = await scene.asks("asked_for")
    urgent = await scene.urge("do something else")
    refused = await late_allow(product, approval["id"])
    await scene.proved(urgent)
    assert refused["type"].endswith("already_decided")
    assert await scene.agent.lines(urgent) == CUT
    await scene.ends(*scene.messages, outcomes=["aborted", "completed"])
    decided = await scene.journal("approval/asked", "approval/decided")
    assert "touch asked_for" in str(approval)
    assert [d.get("outcome") for d in decided] == [None, "cancelled"]
    assert not scene.it.file("asked_for").exists()


async def late_allow(product: Product, approval: str) -> Any:
    path = f"/api/approvals/{approval}/decision"

    async def answer() -> tuple[int, Any]:
        told = await product.client.post(path, json={"outcome": "allowed-once"})
        return told.status_code, told.json()

    return (await until(answer, lambda told: told[0] == 409))[1]


@pytest.mark.req("R6", "R44", "R60", "R61")
@pytest.mark.bug("B28", "B35")
@pytest.mark.inv(12, 13, 35)
async def test_an_urgent_in_the_first_20_ms_of_a_turn_loses_neither_message(
    scene: Scene,
) -> None:
    """Each urgent was read before: it is replayed, and the only one read twice."""
    urgents = [await scene.note("urgent") for _ in range(6)]
    for message in urgents:
        await scene.read(message)
    await scene.it.idle()
    for number, message in enumerate(urgents):
        await scene.note("first")
        await trio.sleep(number * 0.004)
        await scene.proved(await scene.mark(message))
        await scene.it.idle()
    await scene.ends(ways=["aborted", "completed"])


@pytest.mark.req("R6", "R44", "R60")
@pytest.mark.bug("B28", "B30")
@pytest.mark.inv(12, 13, 18, 20, 35)
async def test_an_urgent_that_races_the_natural_end_is_read_as_often_as_it_says(
    scene: Scene,
) -> None:
    """The answer takes 120 ms; what follows lands all around its end."""
    for number in range(6):
        first = await scene.answers("to the end of it", 30)
        await scene.it.model.wait_until_told(first["body"])
        await trio.sleep(number * 0.025)
        await scene.proved(await scene.urge("urgent"))
        await scene.it.idle()
    await scene.ends(*scene.messages, ways=["aborted", "completed"])


@pytest.mark.req("R15")
@pytest.mark.bug("B30")
@pytest.mark.inv(14, 15, 16, 20)
async def test_two_urgents_at_once_are_read_as_accepted_behind_what_waited(
    scene: Scene,
) -> None:
    await scene.speaks()
    note, one, two = [await scene.note(words) for words in ("note", "one", "two")]
    marked: dict[str, Any] = {}

    async def mark(message: Any) -> None:
        marked[await scene.mark(message)] = message

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark, one)
        nursery.start_soon(mark, two)
    for urgent in marked:
        await scene.proved(urgent)
    asked = of_kind(await scene.agent.activity(), "requested")
    accepted = [marked[a["deliveryId"]] for a in asked if a["deliveryId"] in marked]
    await scene.ends(note, *accepted, ways=["aborted", "completed"])


@pytest.mark.req("R12", "R13", "R14", "R15", "R124")
@pytest.mark.bug("B02", "B22")
async def test_stop_ends_the_run_and_parks_what_an_urgent_then_takes_along(
    scene: Scene,
) -> None:
    agent = scene.agent
    await scene.speaks()
    notes = [await scene.note(words) for words in ("one", "two", "now")]
    run = await agent.stop()
    view = await scene.it.idle()
    asked = len(scene.it.model.requests)
    waiting = [m["deliveries"][0]["id"] for m in notes]
    states = [(await scene.it.product.delivery(d))["state"] for d in waiting]
    assert (await agent.control(run, 409))["type"].endswith("not_running")
    assert (view["parked"], states) == (True, ["queued"] * 3)
    assert len(scene.it.model.requests) == asked
    await scene.proved(await scene.mark(notes[-1]))
    await scene.ends(*scene.messages, outcomes=["aborted", "completed"])


@pytest.mark.req("R14", "R15")
@pytest.mark.bug("B02", "B30")
@pytest.mark.inv(20, 35, 36)
async def test_a_stop_and_an_urgent_at_once_are_one_cut(scene: Scene) -> None:
    """The Stop parks what was marked before it, until somebody resumes."""
    await scene.speaks()
    run = (await scene.agent.running())["currentRun"]["id"]
    message = await scene.note("instead")
    marked: list[str] = []

    async def mark() -> None:
        marked.append(await scene.mark(message))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(mark)
        nursery.start_soon(scene.stop, run)
    if await scene.parked(marked[0]):
        await scene.agent.resume()
    await scene.proved(marked[0])
    await scene.ends(*scene.messages, outcomes=["aborted", "completed"])
    assert len(await scene.journal("fence/held")) == 1


@pytest.mark.req("R20", "R21", "R22", "R23", "R24", "R29", "R46")
@pytest.mark.bug("B22")
@pytest.mark.inv(12, 13, 14, 15)
async def test_what_waits_is_read_once_in_front_of_the_urgent_and_other_targets_after(
    scene: Scene, product: Product
) -> None:
    """What a running command holds back is accepted, and dropped or carried on."""
    agent = scene.agent
    room = f"room-{agent.name}"
    await product.post("/api/targets", {"name": room, "agents": [agent.name]})
    await scene.runs(HIDING)
    notes = [await scene.note(words) for words in "abc"]
    waiting = notes[0]["deliveries"][0]["id"]
    if scene.able["steer"] != "none":
        await until(
            lambda: product.delivery(waiting), lambda d: d["state"] == "accepted"
        )
    others = [await scene.note(words, room) for words in "xy"]
    urgent = await scene.note("now")
    await scene.proved(await scene.mark(urgent))
    for message in others:
        await scene.read(message)
    await scene.ends(*notes, urgent, *others, ways=["aborted", "completed"])


async def idle(scene: Scene) -> psutil.Process:
    return scene.it.runtime()


async def speaking(scene: Scene) -> psutil.Process:
    await scene.speaks()
    await scene.note("by the way")
    return scene.it.runtime()


async def running_a_tool(scene: Scene) -> psutil.Process:
    await scene.runs(HIDING)
    await scene.note("by the way")
    return scene.it.runtime()


async def asking(scene: Scene) -> psutil.Process:
    await scene.asks("asked_in_vain")
    return scene.it.runtime()


async def being_cut(scene: Scene) -> psutil.Process:
    """The cut has just been ordered; how far it got is left to chance."""
    await scene.speaks()
    await scene.urge("first this")
    return scene.it.runtime()


async def starting(scene: Scene) -> psutil.Process:
    """It died while idle, and has just been started for what came then."""
    old = scene.it.runtime()
    old.kill()
    await scene.note("by the way")

    async def look() -> list[int]:
        return [p.pid for p in scene.it.runtimes() if p.pid != old.pid]

    await until(look, bool, scene.it.patience)
    return scene.it.runtime()


PHASES: list[Callable[[Scene], Awaitable[psutil.Process]]] = [
    idle,
    speaking,
    running_a_tool,
    asking,
    being_cut,
    starting,
]


@pytest.mark.req("R33", "R44", "R46", "R53", "R54", "R56", "R57", "R117", "R121")
@pytest.mark.bug("B01", "B03", "B06", "B07", "B25")
@pytest.mark.inv(6, 12, 13, 15, 21, 22, 35)
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
async def test_killed_in_any_phase_it_comes_back_and_all_is_read_in_order(
    scene: Scene, phase: Callable[[Scene], Awaitable[psutil.Process]]
) -> None:
    scene.seat.deaths += phase is not idle
    victim = await phase(scene)
    victim.kill()
    message = await scene.note("are you there?")
    urgent = await scene.proved_at_last(message)
    lines = await scene.agent.lines(urgent)
    assert not victim.is_running()
    assert lines == [kind for kind in CUT if kind in lines]
    assert {"requested", "started"} <= set(lines)
    ways = ["aborted", "error", "completed"]
    await scene.ends(*scene.messages, ways=ways, killed=True)
    decided = await scene.journal("approval/decided")
    assert {d["outcome"] for d in decided} <= {"cancelled", "allowed-once"}
    assert not scene.it.file("asked_in_vain").exists()


@pytest.mark.req("R33", "R53", "R62", "R63", "R66", "R68", "R128", "R136")
@pytest.mark.bug("B03", "B06")
@pytest.mark.inv(12, 13, 15, 22, 35)
async def test_deaf_to_the_interrupt_it_is_ended_and_resumed_and_reads_the_message(
    scene: Scene,
) -> None:
    """The specification's own way, whenever the graceful one misses its deadline."""
    await scene.runs(HIDING)
    await scene.note("by the way")
    hung = scene.it.runtime()
    hung.suspend()
    urgent = await scene.urge("are you there?")
    left = await scene.interrupted(urgent)
    assert (left, hung.is_running()) == ([], False)
    await scene.proved(urgent)
    assert await scene.agent.lines(urgent) == CUT
    outcomes = ["aborted", "completed"]
    await scene.ends(*scene.messages, outcomes=outcomes, killed=True)


@pytest.mark.req("R18", "R44", "R51")
@pytest.mark.bug("B01", "B04", "B12", "B34")
@pytest.mark.inv(12, 13, 22, 35)
async def test_the_product_is_killed_with_an_urgent_pending_and_it_is_read_once(
    seat: Seat, product: Product
) -> None:
    async with (
        bounded(),
        seat.taken(product) as it,
        beginning(it, Live(), seat) as scene,
    ):
        await scene.speaks()
        it.runtime().suspend()
        urgent = await scene.urge("after all")
        await product.kill9()
        await it.all_gone()
        await product.start()
        await scene.proved(urgent)
        lines = await scene.agent.lines(urgent)
        assert (lines[0], lines[-1]) == ("requested", "started")
        assert len(lines) == len(set(lines))
        ways = ["aborted", "interrupted", "completed"]
        await scene.ends(*scene.messages, ways=ways, killed=True)


@pytest.mark.req("R51", "R53")
@pytest.mark.bug("B01", "B34")
async def test_nothing_is_left_after_the_end_of_the_service(
    seat: Seat, product: Product
) -> None:
    """No process, no socket, no temporary file, and nothing of what was ever cut."""
    async with (
        bounded(),
        seat.taken(product) as it,
        beginning(it, Live(), seat) as scene,
    ):
        await scene.runs(STUBBORN)
        seat.agent = None
        done = await trio.to_thread.run_sync(run_command, seat.up.state, "down")
        left = [p.cmdline() for p in it.processes()]
    assert (done.code, seat.up.alive()) == (0, False)
    assert (left, scene.tools(), seat.left()) == ([], [], [])
    assert list(seat.up.place.rglob("late-*")) == []
