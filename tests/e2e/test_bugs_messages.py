"""Real reports about messages, stores and locks, through the whole product."""

from __future__ import annotations

import json
import platform
import resource
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.product import open_product
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}


# --- B22 -----------------------------------------------------------------------------


async def queue_up(product: Product, *first: dict[str, Any]) -> tuple[Agent, list[str]]:
    """Give an agent a run, an injected note, and two messages that wait."""
    agent = await product.agent(
        [*first, BUSY], [ANSWER], [ANSWER], [ANSWER], config={"steer": "none"}
    )
    await product.surfaced(await agent.deliver("running"))
    await agent.intervene("inject", messages=["a note"])
    sent = [await agent.deliver(body) for body in ("a", "b")]
    await agent.received(sent[-1])
    return agent, sent


@pytest.mark.bug("B22")
async def test_cancel_says_of_each_message_that_it_was_dropped(
    product: Product,
) -> None:
    agent, sent = await queue_up(product)
    await agent.intervene("cancel", cause="enough")
    for delivery in sent:
        found = await product.ended(delivery)
        assert found["state"] == "cancelled"
        assert found["diagnostic"]["whatToDo"]
    await agent.idle()
    await product.surfaced(await agent.deliver("after it"))
    assert await agent.heard() == ["running", "after it"]


@pytest.mark.bug("B22")
async def test_cancel_that_keeps_the_inbox_keeps_all_of_it_in_order(
    product: Product,
) -> None:
    agent, sent = await queue_up(product)
    await agent.intervene("cancel", keepInbox=True)
    view = await agent.idle()
    assert view["parked"]
    assert {(await product.delivery(d))["state"] for d in sent} == {"queued"}
    await agent.resume()
    for delivery in sent:
        await product.surfaced(delivery)
    await agent.idle()
    assert await agent.heard() == ["running", "a note", "a", "b"]


@pytest.mark.bug("B22")
@pytest.mark.parametrize(
    "end", [{"die": "KILL"}, {"exit": 1}, {"fail": "overloaded"}], ids=str
)
async def test_what_waits_outlives_the_end_of_the_run(
    product: Product, end: dict[str, Any]
) -> None:
    agent = await product.agent(
        [{"wait": 700}, end], [ANSWER], [ANSWER], config={"steer": "none"}
    )
    await product.surfaced(await agent.deliver("running"))
    await agent.intervene("inject", messages=["a note"])
    sent = [await agent.deliver(body) for body in ("a", "b")]
    await agent.until(lambda runs: runs[0]["outcome"] == "error", "runs")
    if "fail" in end:  # an error of the turn parks what waits: a person decides
        view = await agent.idle()
        assert view["parked"]
        assert {(await product.delivery(d))["state"] for d in sent} == {"queued"}
        await agent.resume()
    for delivery in sent:
        await product.surfaced(delivery)
    await agent.idle()
    assert await agent.heard() == ["running", "a note", "a", "b"]


@pytest.mark.bug("B22", "B06")
async def test_what_waits_outlives_the_kill_of_a_deaf_runtime(
    product: Product,
) -> None:
    agent, sent = await queue_up(product, {"refuse": "interrupt"})
    urgent = await agent.urge("u")
    await product.surfaced(urgent)
    for delivery in sent:
        await product.surfaced(delivery)
    await agent.idle()
    # Older messages of the same target are the urgent one's context. A note wakes
    # nobody: it goes along with the next turn.
    assert await agent.heard() == ["running", "a", "b", "u"]
    await product.surfaced(await agent.deliver("c"))
    assert await agent.heard() == ["running", "a", "b", "u", "a note", "c"]


# --- B36 -----------------------------------------------------------------------------


@pytest.mark.req("R12")
@pytest.mark.bug("B36")
async def test_a_repeated_request_is_one_message_however_it_is_repeated(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER], [ANSWER])
    answers: list[Any] = []

    async def send() -> None:
        answers.append(await agent.send("seven", key=f"seven-{agent.name}"))

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(send)
    await product.surfaced(answers[0]["deliveries"][0]["id"])
    await agent.idle()
    await send()
    assert {a["id"] for a in answers} == {answers[0]["id"]}
    assert await agent.heard() == ["seven"]
    path = f"/api/targets/@{agent.name}/messages"
    key = f"seven-{agent.name}"
    refused = await product.post(path, {"body": "other"}, 409, key)
    assert refused["type"].endswith("idempotency_conflict")
    found = await product.get(path)
    assert len([m for m in found["messages"] if m["body"] == "seven"]) == 1


# --- B04 -----------------------------------------------------------------------------


@pytest.mark.req("R92")
@pytest.mark.bug("B04")
async def test_a_disk_that_fills_up_grants_nothing_and_loses_nothing(
    tmp_path: Path,
) -> None:
    mark = tmp_path / "granted"
    async with open_product(tmp_path) as product:
        asking: list[dict[str, Any]] = [
            {"ask": "shell"},
            {"run": f"touch {mark}"},
            ANSWER,
        ]
        agent = await product.agent(asking, [ANSWER], [ANSWER])
        first = await agent.deliver("ask me")
        await product.surfaced(first)
        approval = (await agent.approval())["id"]
        _limit_files(product, 1)
        granted = await product.client.post(
            f"/api/approvals/{approval}/decision", json={"outcome": "allowed-once"}
        )
        refused = await product.client.post(
            f"/api/targets/@{agent.name}/messages", json={"body": "lost?"}
        )
        for answer in (granted, refused):
            assert answer.status_code >= 500, answer.text
            assert "disk" in answer.json()["detail"], answer.text
        assert not mark.exists()
        assert (await product.client.get("/healthz")).status_code == 200
        _limit_files(product, resource.RLIM_INFINITY)
        sent = await until(
            lambda: product.client.post(
                f"/api/targets/@{agent.name}/messages", json={"body": "after it"}
            ),
            lambda answer: answer.status_code == 201,
        )
        assert not mark.exists()
        await product.decide(approval, "allowed-once")
        await product.surfaced(sent.json()["deliveries"][0]["id"])
        await agent.idle()
        assert mark.exists()
        assert (await product.delivery(first))["state"] == "surfaced"
        bodies = [
            m["body"]
            for m in (await product.get(f"/api/targets/@{agent.name}/messages"))[
                "messages"
            ]
        ]
        assert "lost?" not in bodies  # it was refused, and nothing claimed it
        await product.restart()
        await product.surfaced(await agent.deliver("and after a restart"))
        heard = await agent.heard()
        assert heard == ["ask me", "after it", "and after a restart"]


def _limit_files(product: Product, size: int) -> None:
    """Let no file of the running product grow past this size."""
    assert product.up.process is not None
    hard = resource.RLIM_INFINITY
    psutil.Process(product.up.process.pid).rlimit(psutil.RLIMIT_FSIZE, (size, hard))


@pytest.mark.bug("B04")
async def test_a_damaged_journal_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent([ANSWER], [ANSWER])
        await product.surfaced(await agent.deliver("before"))
        await agent.idle()
        await product.kill9()
        await product.all_gone()
        journal = product.up.state / "journal.sqlite3"
        wal = journal.with_name("journal.sqlite3-wal")
        with (wal if wal.exists() else journal).open("ab") as file:
            file.write(b"\0torn" * 100)
        await product.start()
        await product.surfaced(await agent.deliver("after"))
        assert (await agent.heard())[-1] == "after"


# --- B12 -----------------------------------------------------------------------------


@pytest.mark.bug("B12")
@pytest.mark.parametrize("host", [platform.node(), "another-host"])
async def test_what_a_dead_owner_wrote_keeps_nobody_out(
    tmp_path: Path, host: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    alive = {"pid": psutil.Process().pid, "host": host, "born": 1.5}
    for role in ("server", "supervisor"):
        (state / f"{role}.lock").write_text(json.dumps(alive))
    async with open_product(tmp_path) as product:
        agent = await product.agent([ANSWER])
        await product.surfaced(await agent.deliver("hello"))
