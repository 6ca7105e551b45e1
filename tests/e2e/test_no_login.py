"""A runtime without a login: the message is not lost, and a person is told what to do."""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import define
from tests.kit.claude_home import make_claude_home
from tests.kit.codex_home import make_codex_home
from tests.kit.opencode_home import make_opencode_home
from tests.kit.product import Product
from tests.kit.product_agent import Agent, until

from agentteam_supervisor.chaos.models.chat import open_chat_model
from agentteam_supervisor.chaos.models.messages import open_messages_model
from agentteam_supervisor.chaos.models.responses import ModelServer, open_model_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.slow

OPENERS: dict[str, tuple[Any, Any]] = {
    "claude": (open_messages_model, make_claude_home),
    "codex": (open_model_server, make_codex_home),
    "opencode": (open_chat_model, make_opencode_home),
}
KEYS = ("ANTHROPIC_API_KEY", "SCRIPTED_MODEL_KEY")
LOG_IN = {
    "claude": "log in to Claude Code",
    "codex": "log in to Codex",
    "opencode": "set the key of the model's provider",
}
_numbers = itertools.count(1)
ASKED = "are you there? "

runtimes = pytest.mark.parametrize(
    "runtime", [pytest.param(name, marks=pytest.mark.needs(name)) for name in OPENERS]
)
keepers = pytest.mark.parametrize(
    "runtime",
    [pytest.param(n, marks=pytest.mark.needs(n)) for n in ("claude", "opencode")],
)


@define(eq=False)
class Stranger:
    """An agent whose model does not know it, until `let_in`."""

    product: Product
    agent: Agent
    model: ModelServer

    def let_in(self) -> None:
        self.model.script(ASKED, {"say": "now I am. "})

    def times_asked(self) -> list[int]:
        """How often each request of the model held the message."""
        return ["".join(r.user_texts).count(ASKED) for r in self.model.requests]

    async def is_refused(self) -> tuple[str, Any]:
        """Ask it in vain; gives the delivery, and the agent with its problem."""
        delivery = await self.agent.deliver(ASKED)
        return delivery, await self.troubled()

    async def goes_on(self) -> list[int]:
        """Log in and resume; gives how often each request since held the message."""
        before = len(self.model.requests)
        self.let_in()
        await self.agent.resume()
        await until(self.agent.said, bool, 90)
        await self.agent.idle(60)
        return self.times_asked()[before:]

    async def troubled(self) -> Any:
        async def look() -> Any:
            view = await self.agent.view()
            if view["problem"] and "not ready within" in view["problem"]["problem"]:
                await self.agent.resume()  # a slow machine, which is not meant here
                return {**view, "problem": None}
            return view

        view = await until(look, lambda v: v["problem"], 120)
        await self.agent.idle(90)
        return view


@asynccontextmanager
async def stranger(
    product: Product, runtime: str, *, key: bool = True
) -> AsyncGenerator[Stranger]:
    open_model, make_home = OPENERS[runtime]
    async with open_model() as model:
        place = product.up.place / f"{runtime}-stranger-{next(_numbers)}"
        home = make_home(place, model.base_url)
        options = home.options()
        if not key:
            kept = {k: v for k, v in options["env"].items() if k not in KEYS}
            options["env"] = kept
        model.script(ASKED, *[{"http": 401}] * 20)
        agent = await product.agent(
            runtime=runtime, workdir=str(home.workdir), options=options
        )
        try:
            yield Stranger(product, agent, model)
        finally:
            if product.up.alive():
                await product.client.delete(agent.path)


@pytest.mark.req("R55")
@runtimes
async def test_a_refused_key_is_told_live_with_the_runtimes_words_and_what_to_do(
    product: Product, runtime: str
) -> None:
    with trio.fail_after(150):
        async with stranger(product, runtime) as there:
            delivery, view = await there.is_refused()
            ended = await product.ended(delivery)
            lines = [i["text"] for i in await there.agent.activity()]
    problem = view["problem"]
    assert runtime in problem["problem"]
    assert any(word in problem["problem"] for word in ("401", "scripted failure"))
    assert LOG_IN[runtime] in problem["whatToDo"]
    assert "agentteam resume" in problem["whatToDo"]
    assert problem["problem"] in lines
    # Codex records what it is given before it asks: there that much is proven.
    assert ended["state"] == ("surfaced" if runtime == "codex" else "failed")
    assert ended["diagnostic"] == (None if runtime == "codex" else problem)


@pytest.mark.needs("claude")
@pytest.mark.req("R55")
async def test_without_any_key_claude_names_the_login_itself(product: Product) -> None:
    with trio.fail_after(90):
        async with stranger(product, "claude", key=False) as there:
            delivery, _ = await there.is_refused()
            ended = await product.ended(delivery)
    assert ended["state"] == "failed"
    assert "Not logged in" in ended["diagnostic"]["problem"]
    assert LOG_IN["claude"] in ended["diagnostic"]["whatToDo"]
    assert there.model.requests == []


@runtimes
async def test_after_the_login_a_resume_has_it_read_once(
    product: Product, runtime: str
) -> None:
    with trio.fail_after(180):
        async with stranger(product, runtime) as there:
            delivery, _ = await there.is_refused()
            times = await there.goes_on()
            found = await product.delivery(delivery)
            view = await there.agent.view()
    assert found["state"] == "surfaced"
    assert not view["problem"]
    assert not view["parked"]
    assert times == [1]


@keepers
async def test_after_a_restart_a_resume_has_it_read_once(
    product: Product, runtime: str
) -> None:
    with trio.fail_after(240):
        async with stranger(product, runtime) as there:
            delivery, _ = await there.is_refused()
            await product.restart()
            again = await there.agent.until(lambda v: v["problem"], within=60)
            times = await there.goes_on()
            found = await product.delivery(delivery)
    assert LOG_IN[runtime] in again["problem"]["whatToDo"]
    assert found["state"] == "surfaced"
    assert times == [1]


@keepers
async def test_a_person_can_deliver_it_again_or_let_it_go(
    product: Product, runtime: str
) -> None:
    with trio.fail_after(180):
        async with stranger(product, runtime) as there:
            delivery, _ = await there.is_refused()
            there.model.script("never mind. ", *[{"http": 401}] * 20)
            dropped = await there.agent.deliver("never mind. ")
            await until(lambda: product.delivery(dropped), _failed, 60)
            await product.resolve(dropped, "dismiss")
            before = len(there.model.requests)
            there.let_in()
            there.model.script("never mind. ", {"say": "well then. "})
            await product.resolve(delivery, "redeliver")
            found = await product.ended(delivery)
            await there.agent.idle(60)
            gone = await product.delivery(dropped)
    assert found["state"] == "surfaced"
    assert found["attempt"] == 2
    assert gone["state"] == "cancelled"
    assert "keeps it" in str(gone["history"])
    assert there.times_asked()[before:] == [1]


def _failed(delivery: Any) -> bool:
    return bool(delivery["state"] == "failed")
