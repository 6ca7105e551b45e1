"""The whole product with the real OpenCode below: cuts, races, deaths, fences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.model_server import do
from tests.kit.opencoder import FIRST, OpenCoder, open_opencoder
from tests.kit.parts import find_part
from tests.kit.product import of_kind, open_product
from tests.kit.product_agent import until
from tests.kit.real_agent import STREAM
from tests.kit.service import run_command

from agentteam_runtimes.opencode import managed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Live

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencode")]

CUT = ["requested", "stopping", "interrupted", "started"]
ASKS = {"permission": {"bash": "ask"}}
SECONDS = 400  # many times what it takes on two idle cores


async def shown(live: Live, coder: OpenCoder, kind: str) -> int:
    """Wait until a line of this kind is shown live; gives its place."""
    with trio.fail_after(60):
        while True:
            for place, event in enumerate(live.of(coder.agent)):
                if event["kind"] == kind:
                    return place
            await trio.sleep(0.005)


@pytest.mark.req("R11", "R27", "R29", "R30", "R32", "R35", "R39", "R44", "R58", "R134")
@pytest.mark.bug("B01", "B24")
@pytest.mark.inv(6, 7, 15, 20, 22)
async def test_text_and_commands_are_cut_and_the_message_is_what_the_model_reads_next(
    product: Product,
) -> None:
    command = (
        "trap '' TERM INT HUP; (setsid sleep 99 &); touch begun; sleep 8; touch late"
    )
    with trio.fail_after(SECONDS):
        async with open_opencoder(product) as coder, product.live() as live:
            await coder.says()
            old = (await coder.agent.running())["currentRun"]["id"]
            await shown(live, coder, "progress")
            message = await coder.agent.send("what is two and two?")
            urgent = (await coder.agent.mark(message))["id"]
            held = await shown(live, coder, "requested")
            found = await coder.surfaced(urgent)
            await coder.idle()
            server = coder.runtime().pid
            ordinary = await product.ended(message["deliveries"][0]["id"])
            assert await coder.agent.lines(urgent) == CUT
            said = await until(coder.agent.said, lambda said: len(said) > 1)
            late = of_kind(live.of(coder.agent)[held:], "progress")
            read = coder.model.requests[2].user_texts
            # Now a command that hears no signal, and one that hides.
            await coder.runs(command, "begun")
            assert coder.processes("sleep")
            second = await coder.agent.urge("leave that. ")
            await coder.surfaced(second)
            left = [p.cmdline() for p in coder.processes("sleep")]
            await coder.idle()
            assert await coder.agent.lines(second) == CUT
            outcomes = await coder.agent.outcomes()
            same = coder.runtime().pid
    assert coder.model.requests[1].end == "client gone"
    assert read == [FIRST, STREAM, "what is two and two?"]
    assert said[1:] == ["Heard: what is two and two?"]
    assert (found["state"], ordinary["state"]) == ("surfaced", "superseded")
    assert found["evidence"]["kind"] == "step-start of the answer"
    assert [e for e in late if e["runId"] == old] == []
    assert outcomes[1:] == ["aborted", "completed", "aborted", "completed"]
    assert server == same, "nothing was killed but what the cut turn had started"
    assert left == []
    assert not coder.file("late").exists()
    assert coder.read.count("leave that. ") == 1


@pytest.mark.req("R70", "R78", "R84", "R120")
@pytest.mark.bug("B07", "B26")
@pytest.mark.inv(4, 5)
async def test_an_ask_is_decided_once_and_a_cut_takes_it_back(
    product: Product,
) -> None:
    with trio.fail_after(SECONDS):
        async with open_opencoder(product, ASKS, approvalPolicy="ask") as coder:
            await coder.agent.deliver(do({"run": "touch allowed"}))
            first = await coder.agent.approval()
            await product.decide(first["id"], "allowed-once")
            await coder.idle()
            await coder.agent.deliver(do({"run": "touch asked_for"}))
            approval = await coder.agent.approval()
            urgent = await coder.agent.urge("do something else")
            refused = await late_allow(product, approval["id"])
            await coder.surfaced(urgent)
            view = await coder.idle()
            assert await coder.agent.lines(urgent) == CUT
            decided = await coder.agent.journal("approval/decided")
    assert "touch asked_for" in str(approval)
    assert refused["type"].endswith("already_decided")
    assert view["pendingApprovals"] == []
    assert [d["outcome"] for d in decided] == ["allowed-once", "cancelled"]
    assert coder.file("allowed").exists()
    assert not coder.file("asked_for").exists()
    assert coder.read.endswith("do something else")


async def late_allow(product: Product, approval: str) -> Any:
    path = f"/api/approvals/{approval}/decision"
    body = {"outcome": "allowed-once"}

    async def answer() -> tuple[int, Any]:
        told = await product.client.post(path, json=body)
        return told.status_code, told.json()

    return (await until(answer, lambda told: told[0] == 409))[1]


@pytest.mark.req("R6", "R15", "R21", "R44")
@pytest.mark.bug("B28", "B30", "B35")
@pytest.mark.inv(12, 13, 14, 16, 18, 20, 35)
async def test_whatever_races_each_message_is_read_as_often_as_it_says(
    product: Product,
) -> None:
    with trio.fail_after(SECONDS):
        async with open_opencoder(product) as coder:
            messages: list[Any] = []
            # Around the natural end of an answer that takes 90 ms.
            for number in range(6):
                script = do({"say": f"to the end {number}", "ms": 30})
                messages.append(await coder.agent.send(script))
                await coder.model.wait_until_told(f"to the end {number}")
                await trio.sleep(number * 0.03)
                messages.append(await urged(coder, f"urgent {number:02}."))
            # In the first moments of a turn, and in those before it.
            for number in range(4):
                messages.append(await coder.agent.send(f"first {number:02}."))
                await trio.sleep(number * 0.02)
                messages.append(await urged(coder, f"at once {number:02}."))
            # Two at once while it speaks, with an ordinary one that waits.
            await coder.says()
            messages.append(await coder.agent.send("in between. "))
            pair = [await coder.agent.send(body) for body in ("one. ", "two. ")]
            async with trio.open_nursery() as nursery:
                for message in pair:
                    nursery.start_soon(coder.agent.mark, message)
            await as_often_as_told(coder, [*messages, *pair])
            outcomes = await coder.agent.outcomes()
    assert "error" not in outcomes


async def urged(coder: OpenCoder, body: str) -> Any:
    """Send a message and mark it urgent; wait until the agent has read it."""
    message = await coder.agent.send(body)
    await coder.surfaced((await coder.agent.mark(message))["id"])
    await coder.idle()
    return message


async def as_often_as_told(coder: OpenCoder, messages: list[Any]) -> None:
    """Insist that the model was told each message as often as its deliveries say."""
    states = {m["id"]: await states_of(coder, m) for m in messages}
    await coder.idle()
    for message in messages:
        told, found = coder.read.count(message["body"]), states[message["id"]]
        assert told == found.count("surfaced"), (message, found)
        assert not set(found) - {"surfaced", "superseded"}, (message, found)
        assert found.count("surfaced") >= 1, (message, found)


async def states_of(coder: OpenCoder, message: Any) -> list[str]:
    found = await coder.product.get(f"/api/messages/{message['id']}")
    ended = [await coder.product.ended(d["id"]) for d in found["deliveries"]]
    return [delivery["state"] for delivery in ended]


@pytest.mark.req("R33", "R44", "R46", "R53", "R66", "R121")
@pytest.mark.bug("B03", "B06", "B25")
@pytest.mark.inv(12, 13, 15, 22, 35)
async def test_killed_or_hung_it_is_started_again_and_goes_on_with_its_session(
    product: Product,
) -> None:
    with trio.fail_after(SECONDS):
        async with open_opencoder(product) as coder:
            await coder.runs("touch begun; sleep 60", "begun")
            notes = [await coder.agent.deliver(body) for body in ("a. ", "b. ")]
            coder.runtime().kill()
            for note in notes:
                await coder.surfaced(note)
            await coder.idle()
            left = coder.processes("sleep 60")
            told = coder.read
            # Hung: the interrupt gets no answer, so the process is ended.
            await coder.says()
            hung = coder.runtime()
            hung.suspend()
            urgent = await coder.agent.urge("are you there? ")
            await coder.surfaced(urgent)
            assert not hung.is_running()
            await coder.idle()
            assert await coder.agent.lines(urgent) == CUT
            outcomes = await coder.agent.outcomes()
    assert left == []
    assert (told.count("a. "), told.count("b. ")) == (1, 1)
    assert told.index("a. ") < told.index("b. ")
    assert outcomes[1:] == ["error", "completed", "aborted", "completed"]
    assert coder.read.count("are you there? ") == 1
    assert coder.read.startswith(FIRST)


@pytest.mark.req("R65", "R68")
async def test_builtin_is_told_to_be_missing_and_works_once_it_is_installed(
    product: Product,
) -> None:
    with trio.fail_after(SECONDS):
        missing = await product.agent(runtime="builtin")
        found = await product.ended(await missing.urge("are you there?"))
        await trio.to_thread.run_sync(install, product)
        async with open_opencoder(product, runtime="builtin") as coder:
            await coder.says()
            urgent = await coder.agent.urge("what is two and two?")
            await coder.surfaced(urgent)
            await coder.idle()
            version = (await coder.agent.view())["capabilities"]["version"]
            program = coder.runtime().exe()
    assert found["state"] == "failed"
    assert "runtimes install builtin" in found["diagnostic"]["whatToDo"]
    assert version == managed.VERSION
    assert program == str(managed.program(product.up.state))
    assert coder.read.endswith("what is two and two?")


def install(product: Product) -> None:
    source = find_part("opencode")
    words = ("runtimes", "install", "builtin", "--from", str(source))
    done = run_command(product.up.state, *words)
    assert done.code == 0, done


@pytest.mark.req("R18", "R44", "R51")
@pytest.mark.bug("B01", "B04", "B12", "B34")
@pytest.mark.inv(12, 13, 22, 35)
async def test_the_product_is_killed_with_an_urgent_pending_and_it_is_read_once(
    tmp_path: Path,
) -> None:
    with trio.fail_after(SECONDS):
        async with (
            open_product(tmp_path) as product,
            open_opencoder(product) as coder,
        ):
            await coder.says()
            coder.runtime().suspend()
            urgent = await coder.agent.urge("after all. ")
            await product.kill9()
            await coder.all_gone()
            await product.start()
            found = await coder.surfaced(urgent)
            await coder.idle()
            lines = await coder.agent.lines(urgent)
            # And the end of the service is the end of what it started.
            await coder.runs("(setsid sleep 300 &); touch begun; sleep 300", "begun")
            assert coder.processes("sleep 300")
            assert await product.terminate() == 0
            left = coder.processes()
    assert left == []
    assert coder.model.told("after all. ")
    assert coder.read.count("after all. ") == 1
    assert found["interruptPolicy"] == "interrupt_current_run"
    assert (lines[0], lines[-1]) == ("requested", "started")
    assert len(lines) == len(set(lines))
    assert left_behind(tmp_path) == []


def left_behind(place: Path) -> list[Path]:
    return list(place.rglob("opencode-tmp"))
