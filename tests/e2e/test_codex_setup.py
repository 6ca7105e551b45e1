"""An agent on Codex is made: with a program that cannot run, or on a thread."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.coder import Coder, open_coder
from tests.kit.codex_desk import CodexDesk
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.kit.product import Product

pytestmark = [pytest.mark.slow, pytest.mark.needs("codex")]

# What stands where the program should be, and a part of what is said of it.
PROGRAMS = {
    "missing": (None, "there is no program"),
    "of an old version": ("#!/bin/sh\necho codex-cli 0.98.0\n", "older than"),
    "another program": ("#!/bin/sh\necho GNU sed 4.9\n", "is no Codex"),
    "garbage": ("\x7fELF this is no program", "does not run"),
    "one that leaves": (
        "#!/bin/sh\n[ $1 = --version ] && echo codex-cli 0.171.0 && exit 0\n"
        "echo no such setting: x >&2\nexit 3\n",
        "exited with 3 during its start: no such setting: x",
    ),
}


@pytest.mark.req("R49", "R55", "R56", "R57", "R137")
@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_program_that_is_no_codex_is_named_with_what_to_do(
    coder: Coder, kind: str
) -> None:
    text, part = PROGRAMS[kind]
    program = coder.home.path / "codex"
    program.unlink()
    if text is not None:
        program.write_text(text)
        program.chmod(0o755)
    urgent = await coder.agent.urge("are you there?")
    found = await coder.product.ended(urgent)
    view = await coder.agent.idle()
    assert (await coder.agent.lines(urgent))[-1] == "failed"
    assert found["state"] == "failed"
    assert found["evidence"] is None
    assert part in found["diagnostic"]["problem"]
    assert found["diagnostic"]["whatToDo"]
    assert part in view["problem"]["problem"]
    assert coder.model.requests == []


@pytest.mark.req("R55", "R56")
async def test_without_a_key_the_turn_fails_and_the_variable_is_named(
    product: Product,
) -> None:
    keyless: dict[str, Any] = {"env": {"PATH": "/usr/local/bin:/usr/bin:/bin"}}
    with trio.fail_after(60):
        async with open_coder(product, options=keyless) as coder:
            await coder.agent.deliver("are you there?")
            runs = await until(
                coder.agent.runs, lambda runs: runs and runs[0]["outcome"]
            )
            await coder.agent.idle()
    assert runs[0]["outcome"] == "error"
    assert "SCRIPTED_MODEL_KEY" in runs[0]["detail"]
    assert coder.model.requests == []


@pytest.mark.req("R23", "R24")
async def test_a_thread_that_a_person_already_has_goes_on_as_an_agent(
    product: Product,
) -> None:
    with trio.fail_after(90):
        async with open_coder(product) as first:
            desk = CodexDesk(first.model, first.home)
            async with desk.open() as runtime:
                await desk.ended(await desk.begin(runtime, desk.item("said by hand. ")))
            async with made_on(first, desk.session) as second:
                await product.surfaced(await second.agent.deliver("and as an agent. "))
                await second.agent.idle()
                told = second.read
                await product.post("/api/agents", theirs(first, desk.session), 409)
                second.runtime().kill()
                await second.agent.recorded("run/process", alive=False)
                forget(second)
                await product.surfaced(await second.agent.deliver("who am I? "))
                await second.agent.idle()
                notices = await second.agent.journal("run/notice")
    assert told == ["said by hand. ", "and as an agent. "]
    # What is lost is begun anew, once, and said to be.
    (anew,) = second.read
    assert anew.endswith("who am I? ")
    assert "history of this session is not available" in anew
    assert sum("history not available" in n["text"] for n in notices) == 1


async def test_a_thread_that_is_open_elsewhere_is_waited_for(product: Product) -> None:
    with trio.fail_after(90):
        async with open_coder(product) as first:
            desk = CodexDesk(first.model, first.home)
            async with AsyncExitStack() as closing:
                async with desk.open() as runtime:
                    turn = await desk.begin(runtime, desk.item("said by hand. "))
                    await desk.ended(turn)
                    coming = made_on(first, desk.session)
                    second = await closing.enter_async_context(coming)
                    note = await second.agent.deliver("are you there? ")
                    view = await second.agent.until(lambda v: v["problem"])
                await second.agent.resume()
                await product.surfaced(note)
                await second.agent.idle()
    assert "already has an active writer" in view["problem"]["problem"]
    assert second.read == ["said by hand. ", "are you there? "]


@pytest.mark.inv(13)
async def test_a_thread_that_is_not_there_is_told_and_not_replaced(
    product: Product,
) -> None:
    nowhere = "0b9526d0-0000-7000-8000-000000000000"
    with trio.fail_after(60):
        async with (
            open_coder(product) as first,
            made_on(first, nowhere) as second,
        ):
            found = await product.ended(await second.agent.urge("are you there?"))
    assert found["state"] == "failed"
    assert "no rollout found" in found["diagnostic"]["problem"]
    assert first.model.requests == []


@asynccontextmanager
async def made_on(coder: Coder, thread: str) -> AsyncGenerator[Coder]:
    """Make a second agent in the home of the first, on a thread that is there."""
    agent = await coder.product.agent(**theirs(coder, thread))
    yield Coder(coder.product, coder.model, coder.home, agent)
    await coder.product.client.delete(agent.path)


def theirs(coder: Coder, thread: str) -> dict[str, Any]:
    return {
        "name": f"on-{coder.agent.name}",
        "runtime": "codex",
        "workdir": str(coder.home.workdir),
        "options": {**coder.home.options(), "resume": thread},
    }


def forget(coder: Coder) -> None:
    """Delete what Codex has kept of its threads."""
    for record in (coder.home.path / ".codex" / "sessions").rglob("*.jsonl"):
        record.unlink()
