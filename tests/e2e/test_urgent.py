"""The journey of one urgent message, through the whole product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.product import of_kind
from tests.kit.product_agent import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.product import Product
    from tests.kit.product_agent import Agent, Live

pytestmark = pytest.mark.slow

BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}
CUT = ["requested", "stopping", "interrupted", "started"]


async def busy(agent: Agent, body: str = "a long task") -> Any:
    """Give the agent work and wait until the model has it; gives the message."""
    message = await agent.send(body)
    await agent.person.surfaced(message["deliveries"][0]["id"])
    return message


def after(live: Live, agent: Agent, kind: str) -> list[Any]:
    """List what was shown of an agent after its first activity of a kind."""
    shown = live.of(agent)
    at = next(n for n, event in enumerate(shown) if event["kind"] == kind)
    return shown[at + 1 :]


@pytest.mark.req("R11", "R27", "R29", "R32", "R39", "R44", "R126", "R134", "R139")
@pytest.mark.inv(15, 22)
async def test_what_is_being_said_is_cut_and_the_message_is_read_next(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [ANSWER])
    async with product.live() as live:
        await agent.deliver("write a long poem")
        run = (await agent.running())["currentRun"]["id"]
        await until(lambda: _async(live.progress(agent)), lambda text: len(text) > 20)
        urgent = await agent.urge("what is two and two?")
        found = await product.surfaced(urgent)
        await agent.idle()
        await until(lambda: _async(live.progress(agent)), lambda t: "at once" in t)
    assert found["interruptPolicy"] == "interrupt_current_run"
    assert [step["state"] for step in found["history"]] == [
        "queued",
        "accepted",
        "surfaced",
    ]
    assert await agent.lines(urgent) == CUT
    assert await agent.outcomes() == ["aborted", "completed"]
    assert await agent.heard() == ["write a long poem", "what is two and two?"]
    assert await agent.said() == ["at once"]
    assert (await agent.seen())[:2] == [1, 2]
    shown = of_kind(after(live, agent, "requested"), "progress")
    assert [e["runId"] for e in shown if e["runId"] == run] == []


@pytest.mark.req("R126", "R127", "R128")
async def test_the_four_lines_are_said_in_chinese_and_english(product: Product) -> None:
    agent = await product.agent([BUSY], [ANSWER])
    await busy(agent)
    urgent = await agent.urge("now")
    await product.surfaced(urgent)
    spoken: dict[str, list[str]] = {}
    for language in ("zh", "en"):
        headers = {"Accept-Language": language}
        found = await product.get(f"{agent.path}/activity", headers=headers)
        mine = [i for i in found["items"] if i["deliveryId"] == urgent]
        spoken[language] = [item["text"] for item in mine]
    assert spoken["zh"] == [
        "@user 请求打断当前 run",
        "正在停止当前 run…",
        "当前 run 已打断",
        "正在处理 @user 的新请求",
    ]
    assert spoken["en"] == [
        "@user asked to interrupt the current run",
        "Stopping the current run…",
        "The current run was interrupted",
        "Working on the new request of @user",
    ]


@pytest.mark.req("R11", "R42")
@pytest.mark.bug("B01")
async def test_a_running_command_is_gone_before_the_message_is_read(
    product: Product, tmp_path: Path
) -> None:
    mark = tmp_path / "side-effect"
    shell = {"run": f"sleep 5; touch {mark}"}
    agent = await product.agent([shell, {"say": "never"}], [ANSWER])
    await busy(agent)
    await agent.recorded("tool/call")
    assert product.named(str(mark))
    urgent = await agent.urge("leave that")
    await product.surfaced(urgent)
    assert product.named(str(mark)) == []  # so nothing can come of it any more
    await agent.idle()
    assert not mark.exists()
    calls = await agent.journal("tool/call", "tool/result")
    assert [c["kind"] for c in calls] == ["tool/call", "tool/result"]
    assert calls[1]["error"]
    assert await agent.outcomes() == ["aborted", "completed"]


@pytest.mark.req("R70", "R84", "R120")
@pytest.mark.bug("B07")
@pytest.mark.inv(4, 5)
async def test_a_pending_question_is_cancelled_and_a_late_yes_is_refused(
    product: Product, tmp_path: Path
) -> None:
    mark = tmp_path / "asked-for"
    asking = [{"ask": "shell", "reason": "to test"}, {"run": f"touch {mark}"}]
    agent = await product.agent(asking, [ANSWER])
    await busy(agent)
    approval = (await agent.approval())["id"]
    urgent = await agent.urge("do something else")
    refused = await until(
        lambda: product.client.post(
            f"/api/approvals/{approval}/decision", json={"outcome": "allowed-once"}
        ),
        lambda answer: answer.status_code == 409,
    )
    assert refused.json()["type"].endswith("already_decided")
    await product.surfaced(urgent)
    await agent.idle()
    assert not mark.exists()
    view = await agent.view()
    assert view["pendingApprovals"] == []
    kinds = [
        e["kind"]
        for e in await agent.journal("approval/asked", "approval/decided", "turn/end")
    ]
    assert kinds[:3] == ["approval/asked", "approval/decided", "turn/end"]
    decided = await agent.journal("approval/decided")
    assert [d["outcome"] for d in decided] == ["cancelled"]
    assert await agent.lines(urgent) == CUT


@pytest.mark.req("R28")
async def test_an_idle_agent_is_woken_and_nothing_is_interrupted(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER])
    message = await busy(agent, "wake up")
    await agent.idle()
    urgent = (await agent.mark(message))["id"]
    await product.surfaced(urgent)
    await agent.idle()
    assert await agent.lines(urgent) == ["requested", "started"]
    assert await agent.journal("fence/held", "interrupt/requested") == []
    assert await agent.heard() == ["wake up", "wake up"]


@pytest.mark.req("R8", "R9")
@pytest.mark.inv(18)
async def test_a_message_that_was_read_before_is_read_again(product: Product) -> None:
    agent = await product.agent([BUSY], [ANSWER])
    message = await busy(agent, "look at this")
    first = message["deliveries"][0]["id"]
    again = (await agent.mark(message))["id"]
    assert again != first
    await product.surfaced(again)
    assert await agent.lines(again) == CUT
    assert await agent.heard() == ["look at this", "look at this"]
    found = await product.get(f"/api/messages/{message['id']}")
    states = {d["id"]: d["state"] for d in found["deliveries"]}
    assert states == {first: "surfaced", again: "surfaced"}


@pytest.mark.req("R12", "R20", "R132")
@pytest.mark.bug("B36")
async def test_a_retried_request_is_the_same_delivery_and_cuts_once(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [BUSY])
    await busy(agent)
    message = await agent.send("now")
    made = [await agent.mark(message, key=f"key-{agent.name}") for _ in range(3)]
    assert len({m["id"] for m in made}) == 1
    await product.surfaced(made[0]["id"])
    late = await agent.mark(message, key=f"key-{agent.name}")
    assert late["id"] == made[0]["id"]
    assert len(await agent.journal("interrupt/requested")) == 1
    assert await agent.heard() == ["a long task", "now"]
    await agent.stop()
    await agent.idle()


@pytest.mark.bug("B30")
async def test_two_urgent_messages_are_both_read_in_order_after_one_cut(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [BUSY], [BUSY])
    await busy(agent)
    first, second = await agent.send("one"), await agent.send("two")
    marked = [(await agent.mark(m))["id"] for m in (first, second)]
    for delivery in marked:
        await product.surfaced(delivery)
    await agent.stop()
    await agent.idle()
    heard = await agent.heard()
    assert [b for b in heard if b in ("one", "two")] == ["one", "two"]


@pytest.mark.req("R8", "R20")
@pytest.mark.inv(12)
async def test_an_urgent_copy_supersedes_the_queued_one(product: Product) -> None:
    agent = await product.agent([BUSY], [ANSWER], config={"steer": "none"})
    await busy(agent)
    message = await agent.send("urgent after all")
    urgent = (await agent.mark(message))["id"]
    ordinary = message["deliveries"][0]["id"]
    await product.surfaced(urgent)
    assert (await product.ended(ordinary))["state"] == "superseded"
    await agent.idle()
    assert await agent.heard() == ["a long task", "urgent after all"]


@pytest.mark.req("R29")
@pytest.mark.bug("B22")
@pytest.mark.inv(15)
async def test_queued_messages_of_another_target_come_after_the_urgent_one(
    product: Product,
) -> None:
    agent = await product.agent([BUSY], [ANSWER], [ANSWER], config={"steer": "none"})
    room = f"room-{agent.name}"
    await product.post("/api/targets", {"name": room, "agents": [agent.name]})
    await busy(agent)
    waiting = [await agent.send(body, to=room) for body in ("a", "b")]
    urgent = await agent.urge("first of all")
    await product.surfaced(urgent)
    for message in waiting:
        await product.surfaced(message["deliveries"][0]["id"])
    await agent.idle()
    assert await agent.heard() == ["a long task", "first of all", "a", "b"]


@pytest.mark.req("R14", "R15", "R16", "R124")
@pytest.mark.bug("B02", "B22")
async def test_stop_ends_the_run_and_the_next_message_runs(product: Product) -> None:
    agent = await product.agent([BUSY], [ANSWER], config={"steer": "none"})
    await busy(agent)
    queued = await agent.deliver("waits")
    await agent.received(queued)
    run = await agent.stop()
    view = await agent.idle()
    assert view["parked"]
    assert (await product.delivery(queued))["state"] == "queued"
    ended = of_kind(await agent.activity(), "run_ended")
    assert (ended[0]["runId"], ended[0]["text"]) == (run, "Interrupted by @user")
    assert await agent.heard() == ["a long task"]
    await product.surfaced(await agent.deliver("go on"))
    await product.surfaced(queued)
    await agent.idle()
    assert await agent.heard() == ["a long task", "waits", "go on"]
    assert await agent.outcomes() == ["aborted", "completed"]


@pytest.mark.req("R14")
async def test_stop_of_another_run_or_of_none_changes_nothing(product: Product) -> None:
    agent = await product.agent([BUSY], [BUSY])
    await busy(agent)
    old = await agent.stop()
    await agent.idle()
    refused = await agent.control(old, 409)
    assert refused["type"].endswith("not_running")
    await busy(agent, "another task")
    refused = await agent.control(old, 409)
    assert refused["type"].endswith("stale_run")
    assert (await agent.view())["currentRun"]["id"] != old
    assert await agent.outcomes() == ["aborted", None]
    assert await agent.stop() != old
    await agent.idle()


@pytest.mark.req("R37", "R38", "R39", "R43", "R130", "R138")
@pytest.mark.inv(7, 8)
async def test_late_words_of_the_cut_run_are_history_and_never_live(
    product: Product,
) -> None:
    late = [
        {"late": {"ms": ms, "step": {"say": "ghost", "ms": 0}}} for ms in (0, 100, 400)
    ]
    ghostly_send = {"late": {"ms": 200, "step": {"send": "ghost at large"}}}
    answering = [{"say": "still here " * 12, "ms": 60}]
    agent = await product.agent([*late, ghostly_send, BUSY], answering)
    async with product.live() as live:
        await busy(agent)
        urgent = await agent.urge("what now?")
        await product.surfaced(urgent)
        current = (await agent.running())["currentRun"]["id"]
        await agent.idle()
        await until(agent.said, bool)
    assert "ghost" not in live.progress(agent)
    assert live.progress(agent, current).split() == ["still", "here"] * 12
    assert "ghost" not in "".join(await agent.said())
    kept = await agent.journal("fence/late")
    assert {e["what"] for e in kept if "ghost" in e["detail"]} >= {"output", "send"}
    texts = [item["text"] for item in await agent.activity()]
    assert not any("ghost" in text for text in texts)
    assert (await agent.outcomes()) == ["aborted", "completed"]


@pytest.mark.req("R53", "R127", "R128")
@pytest.mark.bug("B06")
async def test_a_runtime_that_hears_nothing_is_killed_and_resumed(
    product: Product,
) -> None:
    deaf = {"deaf": ["interrupt", "TERM", "stdin"]}
    agent = await product.agent([deaf, BUSY], [ANSWER])
    await busy(agent)
    before = {p.pid for p in product.up.processes()}
    urgent = await agent.urge("answer this")
    await product.surfaced(urgent)
    await agent.idle()
    assert await agent.lines(urgent) == CUT
    assert await agent.outcomes() == ["aborted", "completed"]
    processes = await agent.journal("run/process")
    assert [(p["inc"], p["alive"]) for p in processes] == [
        (1, True),
        (1, False),
        (2, True),
    ]
    sessions = await agent.journal("run/session")
    assert len({s["token"] for s in sessions}) == 1  # resumed, not begun anew
    assert "SIG" not in "".join(i["text"] for i in await agent.activity())
    assert {p.pid for p in product.up.processes()} != before


@pytest.mark.req("R49", "R54", "R55", "R56", "R57", "R137")
@pytest.mark.inv(21)
async def test_a_failed_start_fails_the_delivery_and_claims_nothing(
    product: Product,
) -> None:
    agent = await product.agent(config={"start": [{"stderr": 60}, {"exit": 7}]})
    message = await agent.send("are you there?")
    urgent = (await agent.mark(message))["id"]
    found = await product.ended(urgent)
    assert found["state"] == "failed"
    assert "7" in found["diagnostic"]["problem"]
    assert found["diagnostic"]["whatToDo"]
    assert found["evidence"] is None
    assert await agent.lines(urgent) == ["requested", "failed"]
    assert await agent.seen() == []
    shown = await product.get(f"/api/targets/@{agent.name}/messages")
    assert [m["body"] for m in shown["messages"]] == ["are you there?"]
    view = await agent.idle()
    assert view["problem"]["problem"]
    assert view["problem"]["whatToDo"]


async def _async(value: Any) -> Any:
    return value
