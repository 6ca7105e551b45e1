"""Urgent messages at the edges: in flight, in groups, with runtimes that can less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
import trio
from tests.kit.product import open_product
from tests.kit.product_agent import until
from tests.kit.service import run_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}
CUT = ["requested", "stopping", "interrupted", "started"]


async def begin(agent: Agent, body: str = "a long task") -> None:
    await agent.person.surfaced(await agent.deliver(body))


@pytest.mark.req("R8", "R45", "R47")
@pytest.mark.bug("B16")
@pytest.mark.inv(12, 13)
async def test_a_message_the_runtime_took_and_dropped_is_read_once_as_urgent(
    product: Product,
) -> None:
    agent = await product.agent([{"wait": 600_000}], [ANSWER])
    await begin(agent)
    message = await agent.send("on second thoughts: now")
    ordinary = message["deliveries"][0]["id"]
    await agent.recorded("delivery/changed", delivery=ordinary, state="accepted")
    assert (await product.delivery(ordinary))["evidence"] is None
    urgent = (await agent.mark(message))["id"]
    await product.surfaced(urgent)
    assert (await product.ended(ordinary))["state"] == "superseded"
    await agent.idle()
    assert await agent.heard() == ["a long task", "on second thoughts: now"]


@pytest.mark.req("R45")
@pytest.mark.bug("B16")
async def test_a_steer_that_the_runtime_loses_is_read_in_the_next_turn(
    product: Product,
) -> None:
    agent = await product.agent([{"lose": "steer"}, {"wait": 700}, ANSWER], [ANSWER])
    await begin(agent)
    delivery = await agent.deliver("lost on its way")
    found = await product.surfaced(delivery)
    await agent.idle()
    assert found["attempt"] == 2
    assert await agent.heard() == ["a long task", "lost on its way"]


@pytest.mark.req("R44", "R56", "R57")
@pytest.mark.inv(9, 13)
async def test_what_nobody_can_know_waits_for_a_person(product: Product) -> None:
    agent = await product.agent(*[[ANSWER]] * 4, config={"evidence": "none"})
    delivery = await agent.deliver("did you get this?")
    found = await product.ended(delivery)
    assert (found["state"], found["evidence"]) == ("unknown", None)
    assert found["diagnostic"]["whatToDo"]
    await agent.idle()
    assert await agent.seen() == []
    again = await product.resolve(delivery, "redeliver")
    assert again["attempt"] == 2
    await until(
        lambda: product.delivery(delivery),
        lambda d: (d["state"], d["attempt"]) == ("unknown", 2),
    )
    gone = await product.resolve(delivery, "dismiss")
    gone = await until(
        lambda: product.delivery(delivery), lambda d: d["state"] == "cancelled"
    )
    assert gone["attempt"] == 2
    await product.resolve(delivery, "redeliver", 409)


@pytest.mark.req("R33", "R65")
async def test_a_runtime_without_an_interrupt_is_stopped_and_resumed(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [ANSWER], config={"interrupt": "none"})
    await begin(agent)
    assert (await agent.view())["capabilities"]["interrupt"] == "none"
    with trio.fail_after(10):
        urgent = await agent.urge("now")
        await product.surfaced(urgent)
    await agent.idle()
    assert await agent.lines(urgent) == CUT
    processes = await agent.journal("run/process")
    assert [p["alive"] for p in processes] == [True, False, True]
    sessions = await agent.journal("run/session")
    assert len({s["token"] for s in sessions}) == 1


@pytest.mark.req("R30")
@pytest.mark.bug("B28")
@pytest.mark.inv(6)
async def test_nothing_is_submitted_before_the_old_turn_has_ended(
    product: Product,
) -> None:
    agent = await product.agent([{"delay": "end", "ms": 1200}, BUSY], [ANSWER])
    await begin(agent)
    urgent = await agent.urge("now")
    await agent.recorded("fence/held")
    assert (await product.delivery(urgent))["state"] == "queued"
    await product.surfaced(urgent)
    await agent.idle()
    events = await agent.journal("turn/end", "turn/start", "user/message")
    order = [e["kind"] for e in events]
    assert order == [
        "turn/start",
        "user/message",
        "turn/end",
        "turn/start",
        "user/message",
        "turn/end",
    ]
    assert await agent.outcomes() == ["aborted", "completed"]


@pytest.mark.req("R42", "R92")
@pytest.mark.bug("B07")
@pytest.mark.inv(4)
async def test_a_question_of_the_cut_run_is_refused_and_nobody_is_asked(
    product: Product, tmp_path: Path
) -> None:
    mark = tmp_path / "never"
    late: list[dict[str, Any]] = [
        {"late": {"ms": 50, "step": {"ask": "shell"}}},
        {"late": {"ms": 100, "step": {"ask": "rm"}}},
    ]
    agent = await product.agent([*late, BUSY], [{"say": "still here " * 9, "ms": 60}])
    async with product.live() as live:
        await begin(agent)
        await product.surfaced(await agent.urge("now"))
        await agent.idle()
    kept = [e for e in await agent.journal("fence/late") if e["what"] == "ask"]
    assert {e["detail"] for e in kept} == {"shell", "rm"}
    assert await agent.journal("approval/asked") == []
    asked = [e for kind, e in live.events if kind == "approval"]
    assert [e for e in asked if e["agentId"] == agent.id] == []
    assert (await agent.view())["pendingApprovals"] == []
    assert not mark.exists()


@pytest.mark.req("R70")
@pytest.mark.bug("B07")
async def test_a_runtime_that_waits_for_an_answer_is_told_no_by_the_cut(
    product: Product, tmp_path: Path
) -> None:
    mark = tmp_path / "never"
    deaf: list[dict[str, Any]] = [
        {"deaf": ["interrupt"]},
        {"ask": "shell"},
        {"run": f"touch {mark}"},
    ]
    agent = await product.agent(deaf, [ANSWER])
    await begin(agent)
    await agent.approval()
    await product.surfaced(await agent.urge("now"))
    await agent.idle()
    assert len(await agent.journal("run/process")) == 1  # it went on and ended
    assert not mark.exists()
    assert await agent.outcomes() == ["aborted", "completed"]


@pytest.mark.req("R76", "R80")
@pytest.mark.bug("B23")
async def test_a_policy_of_never_answers_without_asking(
    product: Product, tmp_path: Path
) -> None:
    mark = tmp_path / "never"
    asking: list[dict[str, Any]] = [{"ask": "shell"}, {"run": f"touch {mark}"}]
    agent = await product.agent(asking, asking, approvalPolicy="never")
    await begin(agent)
    await agent.idle()
    assert not mark.exists()
    decided = await agent.journal("approval/decided")
    assert [d["outcome"] for d in decided] == ["rejected"]
    answer = await product.client.patch(agent.path, json={"approvalPolicy": "ask"})
    assert answer.json()["approvalPolicy"] == "ask"
    await agent.recorded("approval/policy", policy="ask")
    await begin(agent, "once more")
    await product.decide((await agent.approval())["id"], "allowed-once")
    await agent.idle()
    assert mark.exists()


@pytest.mark.req("R2", "R35")
async def test_in_a_group_only_the_named_agent_is_cut(product: Product) -> None:
    one = await product.agent([BUSY], [ANSWER], config={"steer": "none"})
    other = await product.agent([BUSY], [ANSWER], config={"steer": "none"})
    room = f"group-{one.name}"
    members = [one.name, other.name]
    await product.post("/api/targets", {"name": room, "agents": members})
    for agent in (one, other):
        await begin(agent)
    message = await one.send("who can come?", to=room)
    path = f"/api/messages/{message['id']}/agent-delivery"
    body = {"interruptPolicy": "interrupt_current_run"}
    refused = await product.post(path, body, 422)
    assert refused["type"].endswith("agent_required")
    assert all(name in refused["detail"] for name in members)
    urgent = (await one.mark(message))["id"]
    await product.surfaced(urgent)
    await one.idle()
    assert "who can come?" in (await one.heard())[-1]
    assert await other.outcomes() == [None]
    assert await other.journal("fence/held") == []
    await other.stop()
    await other.idle()


@pytest.mark.bug("B30")
async def test_stop_and_urgent_at_the_same_moment_are_one_cut(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [ANSWER], [ANSWER])
    await begin(agent)
    run = (await agent.running())["currentRun"]["id"]
    message = await agent.send("now")
    urgents: list[str] = []
    answers: list[int] = []

    async def mark() -> None:
        urgents.append((await agent.mark(message))["id"])

    async def stop() -> None:
        body = {"action": "interrupt_current_run", "runId": run}
        answer = await product.client.post(f"{agent.path}/control", json=body)
        answers.append(answer.status_code)

    async with trio.open_nursery() as nursery:
        for job in (stop, mark, stop, mark):
            nursery.start_soon(job)
    assert set(answers) <= {202, 409}
    assert len(set(urgents)) == 1

    async def look() -> tuple[str, bool]:
        view = await agent.view()
        return (await product.delivery(urgents[0]))["state"], view["parked"]

    _, parked = await until(look, lambda seen: seen[0] == "surfaced" or seen[1])
    if parked:
        await agent.resume()  # the Stop came last, and covers the urgent before it
    await product.surfaced(urgents[0])
    await agent.idle()
    held = await agent.journal("fence/held")
    assert len(held) == 1
    assert (await agent.heard()).count("now") == 1
    assert (await agent.outcomes())[0] == "aborted"


@pytest.mark.req("R32")
async def test_an_agent_that_is_removed_under_hold_is_gone(product: Product) -> None:
    agent = await product.agent([{"deaf": ["interrupt", "TERM", "stdin"]}, BUSY])
    await begin(agent)
    urgent = await agent.urge("now")
    await agent.recorded("fence/held")
    runtime = (await agent.journal("run/process"))[0]["identity"]
    assert (await product.client.delete(agent.path)).status_code == 204
    found = await product.ended(urgent)
    assert found["state"] in {"cancelled", "failed"}
    assert found["diagnostic"]["whatToDo"]
    pid = int(runtime.split('"runtime": {"pid": ')[1].split(",")[0])
    await until(lambda: _pids(product), lambda pids: pid not in pids, within=20)


async def _pids(product: Product) -> list[int]:
    return [p.pid for p in product.up.processes()]


@pytest.mark.bug("B02", "B04")
async def test_a_run_that_ends_while_the_disk_is_full_is_closed_afterwards(
    tmp_path: Path,
) -> None:
    async with open_product(tmp_path) as product:
        agent = await product.agent([{"wait": 700}, ANSWER], [ANSWER])
        await begin(agent)
        assert product.up.process is not None
        top = psutil.Process(product.up.process.pid)
        top.rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
        with trio.fail_after(10):
            while product.named("rehearsal"):  # noqa: ASYNC110 - fails closed: killed
                await trio.sleep(0.02)
        top.rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY,) * 2)
        await agent.until(lambda runs: runs[0]["outcome"], "runs")
        await product.surfaced(await agent.deliver("next"))
        await agent.idle()
        assert (await agent.heard())[0] == "a long task"
        told = [line["text"] for line in await agent.activity()]
        assert any("the log is not writable" in text for text in told)
        product.up.forget_log()  # a log on a full disk complains of itself


def test_the_command_shows_a_failed_start_with_what_to_do(tmp_path: Path) -> None:
    refused = run_command(tmp_path, "urgent", "--last")
    assert refused.code != 0
    assert "Traceback" not in refused.stderr
    assert "agentteam up" in refused.stderr
