"""Every row of the machine's table that a runtime can cause, caused by a real one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.product import of_kind
from tests.kit.product_agent import until

from agentteam_supervisor.session import machine

if TYPE_CHECKING:
    from tests.kit.product import Product
    from tests.kit.product_agent import Agent

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BUSY = {"say": "word " * 600, "ms": 30}
ANSWER = {"say": "at once", "ms": 1}
CUT = ["requested", "stopping", "interrupted", "started"]
HERE = "test_rows"

# Where a real process of the scripted runtime causes each row: file and test.
CAUSED = {
    "t1": ("test_urgent", "test_stop_ends_the_run_and_the_next_message_runs"),
    "t2": (HERE, "test_t2_t4_a_note_wakes_nobody_and_an_idle_cancel_clears_it"),
    "t3": ("test_urgent", "test_an_idle_agent_is_woken_and_nothing_is_interrupted"),
    "t4": (HERE, "test_t2_t4_a_note_wakes_nobody_and_an_idle_cancel_clears_it"),
    "t5": (HERE, "test_t5_t33_maintenance_runs_while_nothing_else_does"),
    "t6": (HERE, "test_t6_an_ordinary_message_joins_the_running_turn"),
    "t7": (HERE, "test_t7_a_refused_steer_runs_next"),
    "t8": ("test_urgent", "test_a_message_that_was_read_before_is_read_again"),
    "t9": (
        "test_bugs_messages",
        "test_cancel_that_keeps_the_inbox_keeps_all_of_it_in_order",
    ),
    "t10": (HERE, "test_t10_a_followup_is_a_turn_of_its_own"),
    "t12": (HERE, "test_t12_a_turn_that_ran_out_of_tokens_has_ended"),
    "t13": ("test_bugs_streams", "test_the_end_of_a_run_is_judged_by_its_result_alone"),
    "t13a": (HERE, "test_t13a_a_refused_submission_is_tried_again"),
    "t14": (
        "test_urgent",
        "test_what_is_being_said_is_cut_and_the_message_is_read_next",
    ),
    "t15": ("test_urgent", "test_stop_of_another_run_or_of_none_changes_nothing"),
    "t16": (HERE, "test_t16_a_second_cut_joins_the_first"),
    "t17": (
        "test_bugs_processes",
        "test_every_way_of_not_answering_a_stop_ends_by_the_ladder",
    ),
    "t18": (HERE, "test_t18_a_run_that_completes_under_hold_is_still_aborted"),
    "t19": ("test_urgent", "test_a_runtime_that_hears_nothing_is_killed_and_resumed"),
    "t20": (HERE, "test_t20_a_runtime_that_dies_under_hold_is_replaced"),
    "t21": ("test_urgent", "test_two_urgent_messages_are_both_read_in_order"),
    "t22": (
        "test_urgent",
        "test_queued_messages_of_another_target_come_after_the_urgent_one",
    ),
    "t23": ("test_urgent", "test_stop_ends_the_run_and_the_next_message_runs"),
    "t24": ("test_restart", "test_killed_in_every_phase_at_once_nothing_is_lost"),
    "t25": (HERE, "test_t25_a_lost_history_is_said_and_the_message_is_read"),
    "t27": ("test_bugs_processes", "test_children_end_with_a_runtime_that_leaves"),
    "t27a": (
        "test_bugs_processes",
        "test_a_runtime_killed_while_idle_is_replaced_by_the_next_message",
    ),
    "t28": (
        "test_urgent",
        "test_late_words_of_the_cut_run_are_history_and_never_live",
    ),
    "t29": (HERE, "test_t29_a_send_is_forwarded_or_held_by_what_the_agent_has_seen"),
    "t30": (HERE, "test_t30_what_read_history_shows_is_surfaced"),
    "t31": (HERE, "test_t31_an_urgent_message_ends_maintenance"),
    "t32": (HERE, "test_t32_a_cancel_ends_maintenance"),
    "t33": (HERE, "test_t5_t33_maintenance_runs_while_nothing_else_does"),
    "t34": (HERE, "test_t34_maintenance_beside_a_run_is_refused"),
    "t35": (HERE, "test_t35_a_removed_agent_leaves_nothing_and_no_open_delivery"),
    "t35a": ("test_restart", "test_a_clean_end_leaves_nothing_and_keeps_what_waits"),
    "t36": ("test_restart", "test_killed_in_every_phase_at_once_nothing_is_lost"),
    "t37": (HERE, "test_t37_an_urgent_message_to_a_starting_agent_is_read_first"),
    "t38": (
        "test_bugs_streams",
        "test_noise_instead_of_a_handshake_is_no_start_and_can_be_stopped",
    ),
    "t39": ("test_urgent", "test_a_failed_start_fails_the_delivery_and_claims_nothing"),
    "t40": ("test_restart", "test_killed_in_every_phase_at_once_nothing_is_lost"),
}
NOT_BY_A_RUNTIME = {
    "t11": "only a loop inside our own process waits for us at its step boundaries",
    "t13b": "the silence limit is off unless a host sets it",
    "t26": "nothing that a runtime does keeps its tree alive after SIGKILL",
    "t35b": "only the server gives a lease to somebody else",
}


def test_every_row_is_caused_or_has_a_reason_why_not() -> None:
    rows = re.findall(r"^\| (t\d+[a-z]?) \|", machine.__doc__ or "", re.MULTILINE)
    assert len(rows) > 40
    assert set(rows) == set(CAUSED) | set(NOT_BY_A_RUNTIME)
    assert not set(CAUSED) & set(NOT_BY_A_RUNTIME)
    for row, (file, test) in CAUSED.items():
        source = (ROOT / "tests" / "e2e" / f"{file}.py").read_text()
        assert re.search(rf"^(async )?def {test}", source, re.MULTILINE), row


async def begin(agent: Agent, body: str = "a long task") -> None:
    await agent.person.surfaced(await agent.deliver(body))


async def test_t2_t4_a_note_wakes_nobody_and_an_idle_cancel_clears_it(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER], [ANSWER])
    await begin(agent)
    await agent.answered(1)
    await agent.idle()
    before = await agent.journal()
    await agent.intervene("cancel")
    await agent.intervene("inject", messages=["a note"])
    await agent.until(lambda events: len(events) > len(before), "journal")
    added = (await agent.journal())[len(before) :]
    assert [e["kind"] for e in added] == ["inbox/spliced"]  # and nothing of the cancel
    await agent.intervene("cancel")
    await agent.recorded("inbox/spliced", reason="cancelled")
    await begin(agent, "next")
    await agent.idle()
    assert await agent.heard() == ["a long task", "next"]
    await agent.intervene("inject", messages=["another note"])
    await begin(agent, "last")
    assert await agent.heard() == ["a long task", "next", "another note", "last"]


async def test_t5_t33_maintenance_runs_while_nothing_else_does(
    product: Product,
) -> None:
    agent = await product.agent([ANSWER], [ANSWER], config={"maintainMs": 800})
    await begin(agent)
    await agent.idle()
    runs = await agent.runs()
    await agent.intervene("run_maintenance", task="compact")
    await agent.until(lambda view: view["detail"]["phase"] == "Maintenance")
    assert (await agent.view())["currentRun"] is None
    delivery = await agent.deliver("waits for its end")
    await agent.received(delivery)
    assert (await product.delivery(delivery))["state"] == "queued"
    assert await agent.runs() == runs
    await product.surfaced(delivery)
    await agent.idle()
    assert await agent.outcomes() == ["completed", "completed"]


async def test_t6_an_ordinary_message_joins_the_running_turn(product: Product) -> None:
    agent = await product.agent([{"wait": 700}, {"wait": 1}, ANSWER])
    await begin(agent)
    delivery = await agent.deliver("by the way")
    await product.surfaced(delivery)
    await agent.idle()
    assert len(await agent.runs()) == 1
    assert (await agent.runs())[0]["deliveries"][-1] == delivery
    assert await agent.journal("interrupt/requested", "fence/held") == []


async def test_t7_a_refused_steer_runs_next(product: Product) -> None:
    agent = await product.agent([{"refuse": "steer"}, {"wait": 700}], [ANSWER])
    await begin(agent)
    await product.surfaced(await agent.deliver("by the way"))
    await agent.idle()
    assert await agent.heard() == ["a long task", "by the way"]
    assert len(await agent.runs()) == 2
    reasons = [e["reason"] for e in await agent.journal("inbox/spliced")]
    assert "requeued" in reasons


async def test_t10_a_followup_is_a_turn_of_its_own(product: Product) -> None:
    agent = await product.agent([{"wait": 500}], [ANSWER])
    await begin(agent)
    await agent.intervene("followup", messages=["and then this"])
    await agent.until(lambda runs: len(runs) == 2, "runs")
    await agent.idle()
    assert await agent.outcomes() == ["completed", "completed"]
    assert await agent.heard() == ["a long task", "and then this"]


async def test_t12_a_turn_that_ran_out_of_tokens_has_ended(product: Product) -> None:
    agent = await product.agent([{"end": "max-tokens"}], [ANSWER])
    await begin(agent)
    await begin(agent, "next")
    await agent.idle()
    assert await agent.outcomes() == ["max-tokens", "completed"]


async def test_t13a_a_refused_submission_is_tried_again(product: Product) -> None:
    agent = await product.agent([{"refuse": "turn"}, ANSWER], [ANSWER])
    await begin(agent)
    await agent.idle()
    delivery = await agent.deliver("refused once")
    found = await product.surfaced(delivery)
    await agent.idle()
    assert found["attempt"] == 2
    assert await agent.heard() == ["a long task", "refused once"]
    assert await agent.outcomes() == ["completed", "error", "completed"]


@pytest.mark.inv(20, 24)
async def test_t16_a_second_cut_joins_the_first(product: Product) -> None:
    agent = await product.agent([{"deaf": ["interrupt"]}, BUSY], [ANSWER])
    await begin(agent)
    run = (await agent.running())["currentRun"]["id"]
    first = await agent.urge("one")
    await agent.recorded("fence/held")
    await agent.control(run)
    second = await agent.urge("two")
    for delivery in (first, second):
        await product.surfaced(delivery)
    await agent.until(lambda view: view["status"] == "idle")
    run_end = (await agent.journal("turn/end"))[0]
    assert (run_end["outcome"], run_end["cause"]) == ("aborted", "urgent")
    assert len(await agent.journal("fence/held")) == 1
    heard = await agent.heard()
    assert [b for b in heard if b in ("one", "two")] == ["one", "two"]


@pytest.mark.bug("B30")
async def test_t18_a_run_that_completes_under_hold_is_still_aborted(
    product: Product,
) -> None:
    agent = await product.agent([{"deaf": ["interrupt"]}, {"wait": 600}], [ANSWER])
    await begin(agent)
    urgent = await agent.urge("now")
    await product.surfaced(urgent)
    await agent.idle()
    run = (await agent.runs())[0]
    assert (run["outcome"], run["cause"]) == ("aborted", "urgent")
    assert "completed" in run["detail"]
    assert await agent.lines(urgent) == CUT
    assert len(await agent.journal("run/process")) == 1  # and needed no kill


async def test_t20_a_runtime_that_dies_under_hold_is_replaced(
    product: Product,
) -> None:
    dies: list[dict[str, Any]] = [{"deaf": ["interrupt"]}, {"wait": 700}, {"exit": 9}]
    agent = await product.agent(dies, [ANSWER])
    await begin(agent)
    urgent = await agent.urge("now")
    await product.surfaced(urgent)
    await agent.idle()
    assert await agent.lines(urgent) == CUT
    assert await agent.outcomes() == ["aborted", "completed"]
    gone = [p for p in await agent.journal("run/process") if not p["alive"]]
    assert "exit code 9" in gone[0]["detail"]


@pytest.mark.bug("B03")
async def test_t25_a_lost_history_is_said_and_the_message_is_read(
    product: Product,
) -> None:
    forgetful = await product.agent([{"exit": 1}], config={"refuseResume": True})
    broken = await product.agent([{"exit": 1}], config={"resumeError": "no disk"})
    for agent in (forgetful, broken):
        await begin(agent)
        await agent.until(lambda runs: runs[0]["outcome"] == "error", "runs")
    await product.surfaced(await forgetful.deliver("do you remember?"))
    notices = of_kind(await forgetful.activity(), "notice")
    assert [n["text"] for n in notices if "history not available" in n["text"]]
    delivery = await broken.deliver("do you remember?")
    view = await broken.until(lambda view: view["problem"])
    assert "no disk" in view["problem"]["problem"]
    assert (await product.delivery(delivery))["state"] == "queued"
    assert await broken.heard() == ["a long task"]
    texts = [i["text"] for i in await broken.activity()]
    assert not any("history not available" in text for text in texts)


@pytest.mark.req("R40", "R41", "R51")
@pytest.mark.inv(11)
async def test_t29_a_send_is_forwarded_or_held_by_what_the_agent_has_seen(
    product: Product,
) -> None:
    room = "room-of-sends"
    agent = await product.agent(
        [
            {"send": "first", "target": room},
            {"wait": 900},
            {"send": "stale", "target": room},
        ],
        [{"deaf": ["interrupt"]}, {"wait": 900}, {"send": "cut"}, {"wait": 100}],
        [ANSWER],
        config={"steer": "none"},
    )
    await product.post("/api/targets", {"name": room, "agents": [agent.name]})
    await begin(agent)
    await agent.recorded("send/decided", verdict="forwarded")
    unseen = await agent.send("unseen by then", to=room)
    await agent.recorded("send/decided", verdict="held")
    found = await product.surfaced(unseen["deliveries"][0]["id"])
    assert found["evidence"]["kind"] == "attached to a held reply"
    await agent.idle()
    await begin(agent, "once more")
    urgent = await agent.urge("stop sending")
    await product.surfaced(urgent)
    await agent.idle()
    spoken = [
        m["body"]
        for target in (room, f"@{agent.name}")
        for m in (await product.get(f"/api/targets/{target}/messages"))["messages"]
        if m["author"]["kind"] == "agent"
    ]
    assert {"stale", "cut"} & set(spoken) == set()
    assert "first" in spoken
    late = await agent.journal("fence/late")
    assert ("send", "cut") in [(e["what"], e["detail"]) for e in late]


@pytest.mark.req("R45", "R50")
@pytest.mark.inv(9)
async def test_t30_what_read_history_shows_is_surfaced(product: Product) -> None:
    room = "room-of-reading"
    agent = await product.agent(
        [{"wait": 900}, {"read": room}, {"wait": 300}], config={"steer": "none"}
    )
    await product.post("/api/targets", {"name": room, "agents": [agent.name]})
    await begin(agent)
    waiting = await agent.send("read me", to=room)
    found = await product.surfaced(waiting["deliveries"][0]["id"])
    assert found["evidence"]["kind"] == "read_history"
    await agent.idle()
    assert len(await agent.runs()) == 1


@pytest.mark.inv(28)
async def test_t31_an_urgent_message_ends_maintenance(product: Product) -> None:
    agent = await product.agent([ANSWER], [ANSWER], config={"maintainMs": 600_000})
    await begin(agent)
    await agent.idle()
    await agent.intervene("run_maintenance", task="compact")
    await agent.until(lambda view: view["detail"]["phase"] == "Maintenance")
    urgent = await agent.urge("now")
    await product.surfaced(urgent)
    await agent.idle()
    assert (await agent.heard())[-1] == "now"
    assert len(await agent.journal("run/process")) == 1  # the same process goes on


async def test_t32_a_cancel_ends_maintenance(product: Product) -> None:
    agent = await product.agent([ANSWER], [ANSWER], config={"maintainMs": 600_000})
    await begin(agent)
    await agent.idle()
    await agent.intervene("run_maintenance", task="compact")
    await agent.until(lambda view: view["detail"]["phase"] == "Maintenance")
    dropped = await agent.deliver("cleared")
    await agent.received(dropped)
    await agent.intervene("cancel")
    assert (await product.ended(dropped))["state"] == "cancelled"
    await agent.until(lambda view: view["detail"]["phase"] == "Idle")
    await begin(agent, "next")
    assert await agent.heard() == ["a long task", "next"]


async def test_t34_maintenance_beside_a_run_is_refused(product: Product) -> None:
    agent = await product.agent([BUSY])
    await begin(agent)
    refused = await agent.intervene("run_maintenance", 409, task="compact")
    assert refused["type"].endswith("not_idle")
    assert (await agent.view())["currentRun"]
    await agent.stop()
    await agent.idle()


@pytest.mark.bug("B01")
@pytest.mark.inv(34)
async def test_t35_a_removed_agent_leaves_nothing_and_no_open_delivery(
    product: Product,
) -> None:
    agent = await product.agent([{"run": "sleep 777"}, BUSY], config={"steer": "none"})
    await begin(agent)
    await agent.recorded("tool/call")
    waiting = await agent.send("waits")
    await agent.received(waiting["deliveries"][0]["id"])
    assert product.named("sleep 777")
    assert (await product.client.delete(agent.path)).status_code == 204
    found = await product.ended(waiting["deliveries"][0]["id"])
    assert found["state"] == "cancelled"
    assert found["diagnostic"]["whatToDo"]
    await until(lambda: _named(product, "sleep 777"), lambda left: not left)
    answer = await product.client.get(agent.path)
    assert answer.status_code == 404
    kept = await product.get(f"/api/messages/{waiting['id']}")
    assert kept["body"] == "waits"


async def _named(product: Product, part: str) -> list[Any]:
    return [p.pid for p in product.named(part)]


@pytest.mark.bug("B35")
async def test_t37_an_urgent_message_to_a_starting_agent_is_read_first(
    product: Product,
) -> None:
    agent = await product.agent(
        [ANSWER], [ANSWER], config={"start": [{"wait": 900}], "batchInput": False}
    )
    ordinary = await agent.deliver("ordinary")
    await agent.running()
    urgent = await agent.urge("urgent")
    with trio.fail_after(20):
        await product.surfaced(urgent)
        await product.surfaced(ordinary)
    await agent.idle()
    assert (await agent.heard())[0] == "urgent"
    assert await agent.lines(urgent) == ["requested", "started"]
    assert await agent.journal("fence/held") == []
