"""Stop, resume, the host's methods, approvals and what people read of a run."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from attrs import evolve
from tests.kit.daemon_peer import DaemonState, open_daemon, running
from tests.kit.server import watch

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.control import ControlAction, ControlResult, Method
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.frames import (
    ActivityReported,
    AgentControl,
    AgentGranted,
    AgentIntervene,
    AgentTroubled,
    Answer,
    ControlReported,
    FenceReported,
    Progressed,
    Query,
    RunReported,
)
from agentteam_protocol.ids import DeliveryId, RunId

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit.server import RunningServer

STOP = "/api/agents/ada/control"


def stop(run: str) -> dict[str, str]:
    return {"runId": run, "action": "interrupt_current_run"}


@pytest.mark.req("R12", "R13", "R14")
@pytest.mark.inv(9)
async def test_stop_is_a_control_and_neither_a_message_nor_a_frontier(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        await server.say("@ada", "unseen")
        answer = await server.post(STOP, stop("run_1"), 202)
        assert answer["result"] == "stopping"
        control = await daemon.take(AgentControl)
        assert (control.agent, control.run_id) == (agent, "run_1")
        assert control.action is ControlAction.interrupt_current_run
        told = ControlReported(control.control, agent, ControlResult.stopping)
        await daemon.report(told)
        listed = await server.get("/api/targets/@ada/messages")
        assert listed["head"] == 1
        await server.client.patch("/api/agents/ada", json={"model": "m"})
        granted = await daemon.take(AgentGranted)
        assert list(granted.frontiers.values()) == [0]


@pytest.mark.req("R15")
async def test_stop_of_another_run_stops_nothing(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon, "run_2")
        problem = await server.post(STOP, stop("run_1"), 409)
        assert problem["type"] == "stale_run"
        assert problem["currentRun"] == "run_2"
        await daemon.idle(agent)
        problem = await server.post(STOP, stop("run_2"), 409)
        assert problem["type"] == "not_running"
        assert not [f for f in daemon.state.inbox if isinstance(f, AgentControl)]


@contextmanager
def full_disk() -> Generator[None]:
    """Let no file of this process grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.req("R12")
@pytest.mark.parametrize(
    ("result", "status", "slug"),
    [("stopping", 202, None), ("stale_run", 409, "stale_run")],
)
async def test_a_stop_that_cannot_be_stored_acts_at_once(
    result: str, status: int, slug: str | None, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        answers: list[Any] = []

        async def post() -> None:
            answers.append(await server.post(STOP, stop("run_1"), status))

        with full_disk():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(post)
                query = await daemon.take(Query)
                await daemon.send(Answer(query.ref, True, {"result": result}))
        assert (query.agent, query.what) == (agent, "stop")
        assert query.arguments == {"runId": "run_1", "who": "user"}
        if slug is None:
            assert answers == [{"result": "stopping", "recorded": False}]
        else:
            assert answers[0]["type"] == slug


def _is_apart(agent: dict[str, Any]) -> bool:
    return not agent["daemon"]["connected"] and agent["currentRun"] is None


async def test_two_stops_of_a_run_that_died_with_the_disk_say_the_same(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        with full_disk():
            why = Diagnostic("the log is not writable", "free the disk")
            await daemon.send(AgentTroubled(agent, 1, why))
            shown = await server.until("/api/agents/ada", _is_apart)
            assert (shown["status"], shown["currentRun"]) == ("idle", None)
            listed = await server.get("/api/agents")
            assert listed["problem"] == shown["problem"]
            told = [await server.post(STOP, stop("run_1"), 409) for _ in range(2)]
            journal = await server.client.get("/api/agents/ada/journal")
        assert [problem["type"] for problem in told] == ["not_running"] * 2
        assert journal.status_code == 507
        assert "no daemon" not in journal.text


async def test_a_stop_that_nothing_can_carry_says_so(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await running(server, daemon)
    await server.until("/api/agents/ada", lambda a: not a["daemon"]["connected"])
    with full_disk():
        problem = await server.post(STOP, stop("run_1"), 507)
    assert problem["type"] == "store_unwritable"
    assert "not seen to stop" in problem["detail"]


async def test_bad_controls_are_refused(server: RunningServer) -> None:
    await server.agent()
    for body, status, slug in (
        ({"action": "interrupt_current_run"}, 422, "run_required"),
        ({"action": "kill", "runId": "run_1"}, 422, "unknown_action"),
        ({"runId": "run_1"}, 422, "unknown_action"),
        (stop("run_1"), 409, "not_running"),
    ):
        assert (await server.post(STOP, body, status))["type"] == slug
    await server.post("/api/agents/bob/control", stop("run_1"), 404)


@pytest.mark.req("R15")
async def test_stop_while_the_daemon_is_away_is_applied_later_or_said_to_be_stale(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        agent = await running(server, daemon)
    await server.until("/api/agents/ada", lambda a: not a["daemon"]["connected"])
    await server.post(STOP, stop("run_1"), 202)
    async with open_daemon(server.port, state) as daemon:
        control = await daemon.take(AgentControl)
        told = ControlReported(control.control, agent, ControlResult.stale_run)
        await daemon.report(told)
        await daemon.report(told)
        items = (await server.get("/api/agents/ada/activity"))["items"]
        assert [item["kind"] for item in items] == ["notice"]
        assert "nothing was stopped" in items[0]["text"]
        path = "/api/agents/ada/activity"
        answer = await server.client.get(path, headers={"Accept-Language": "zh"})
        assert "没有停止" in answer.json()["items"][0]["text"]


async def test_resume_is_passed_on(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        answer = await server.post(STOP, {"action": "resume"}, 202)
        assert answer["result"] == "resumed"
        assert (await daemon.take(AgentControl)).action is ControlAction.resume


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ({"method": "followup", "messages": ["a"]}, {"messages": ["a"]}),
        ({"method": "steer", "messages": ["a"]}, {"messages": ["a"]}),
        ({"method": "inject", "messages": ["a", "b"]}, {"messages": ["a", "b"]}),
        (
            {"method": "send", "messages": ["a"], "wakeup": False, "lane": "next_step"},
            {"messages": ["a"], "wakeup": False, "lane": "next_step"},
        ),
        (
            {"method": "cancel", "keepInbox": True},
            {"cause": "host", "keepInbox": True},
        ),
        ({"method": "run_maintenance"}, {"task": "compact"}),
    ],
)
async def test_host_methods_are_passed_on(
    body: dict[str, Any], arguments: dict[str, Any], server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.post("/api/agents/ada/interventions", body, 202)
        frame = await daemon.take(AgentIntervene)
        assert frame.method is Method(body["method"])
        assert frame.arguments == arguments


@pytest.mark.parametrize(
    "body",
    [
        {"method": "rewind"},
        {},
        {"method": "followup"},
        {"method": "followup", "messages": []},
        {"method": "followup", "messages": ["a"], "lane": "next_turn"},
        {"method": "send", "messages": ["a"], "lane": "urgent"},
        {"method": "send", "messages": [1]},
        {"method": "cancel", "messages": ["a"]},
        {"method": "run_maintenance", "task": "format"},
        {"method": "when_idle", "wait": "long"},
    ],
)
async def test_bad_host_methods_are_refused(
    body: dict[str, Any], server: RunningServer
) -> None:
    await server.agent()
    await server.post("/api/agents/ada/interventions", body, 422)


async def test_host_waits_for_idle_and_maintains_only_then(
    server: RunningServer,
) -> None:
    path = "/api/agents/ada/interventions"
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        problem = await server.post(path, {"method": "run_maintenance"}, 409)
        assert problem["type"] == "not_idle"
        found = await server.post(path, {"method": "when_idle", "wait": 0.05}, 200)
        assert found == {"idle": False}
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                body = {"method": "when_idle", "wait": 30}
                assert await server.post(path, body, 200) == {"idle": True}

            nursery.start_soon(wait)
            await daemon.idle(agent)


async def test_host_methods_need_a_daemon(server: RunningServer) -> None:
    await server.agent()
    body = {"method": "followup", "messages": ["a"]}
    problem = await server.post("/api/agents/ada/interventions", body, 503)
    assert problem["type"] == "daemon_away"


@pytest.mark.req("R32", "R126", "R127")
async def test_activity_is_the_four_lines_in_two_languages(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        gen = daemon.gen(agent)
        for kind in ("requested", "stopping", "interrupted", "started"):
            await daemon.report(
                ActivityReported(
                    agent,
                    ActivityKind(kind),
                    RunId("run_1"),
                    gen,
                    DeliveryId("dlv_1"),
                    {"who": "@user"},
                    {"signal": "SIGTERM"},
                )
            )
        path = "/api/agents/ada/activity"
        answer = await server.client.get(path, headers={"Accept-Language": "zh-CN"})
        items = answer.json()["items"]
        assert [item["text"] for item in items] == [
            "@user 请求打断当前 run",
            "正在停止当前 run…",
            "当前 run 已打断",
            "正在处理 @user 的新请求",
        ]
        assert items[0]["detail"] == {"signal": "SIGTERM"}
        assert (items[0]["generation"], items[0]["deliveryId"]) == ([1, 1], "dlv_1")
        english = (await server.get(f"{path}?after={items[1]['seq']}"))["items"]
        assert english[0]["text"] == "The current run was interrupted"
        shown = await server.get("/api/agents/ada")
        assert shown["currentRun"]["activity"].startswith("Working on")


@pytest.mark.req("R39", "R130", "R38")
@pytest.mark.inv(8)
async def test_late_progress_of_a_fenced_generation_is_never_the_current_line(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        old, new = daemon.gen(agent, 1), daemon.gen(agent, 2)
        await daemon.report(
            FenceReported(agent, old, "fenced"), FenceReported(agent, new, "open")
        )
        await daemon.run(agent, "run_1", 2)
        for gen, text in ((new, "fresh"), (old, "late")):
            words = {"text": text}
            await daemon.report(
                ActivityReported(
                    agent, ActivityKind.progress, RunId("run_1"), gen, None, words
                )
            )
        shown = await server.get("/api/agents/ada")
        assert shown["currentRun"]["activity"] == "fresh"
        items = (await server.get("/api/agents/ada/activity"))["items"]
        assert [item["detail"].get("late") for item in items] == [None, True]


async def test_ledger_keeps_the_end_of_a_turn(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        opened = RunReported(agent, RunId("run_1"), 1, daemon.gen(agent), "t0")
        ended = RunReported(
            agent,
            RunId("run_1"),
            1,
            daemon.gen(agent),
            "t0",
            "t1",
            "aborted",
            "urgent",
        )
        await daemon.report(opened, ended, opened)
        (run,) = (await server.get("/api/agents/ada/runs"))["runs"]
        assert (run["outcome"], run["cause"], run["endedAt"]) == (
            "aborted",
            "urgent",
            "t1",
        )
        assert run["generation"] == [1, 1]


async def test_journal_is_asked_of_the_daemon(server: RunningServer) -> None:
    path = "/api/agents/ada/journal"
    await server.agent()
    assert (await server.client.get(path)).status_code == 503
    async with open_daemon(server.port) as daemon, trio.open_nursery() as nursery:

        async def answer(ok: bool, body: dict[str, Any]) -> None:
            query = await daemon.take(Query)
            assert (query.what, query.arguments) == (
                "journal",
                {"after": 3, "limit": 2},
            )
            await daemon.send(Answer(query.ref, ok, body))

        nursery.start_soon(answer, True, {"events": [{"seq": 4}]})
        found = await server.get(f"{path}?after=3&limit=2")
        assert found == {"events": [{"seq": 4}]}
        nursery.start_soon(answer, False, {"problem": "no journal"})
        refused = await server.client.get(f"{path}?after=3&limit=2")
        assert (refused.status_code, refused.json()["detail"]) == (502, "no journal")


async def test_daemon_that_leaves_while_asked_is_away(server: RunningServer) -> None:
    await server.agent()
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            answer = await server.client.get("/api/agents/ada/journal")
            assert answer.status_code == 503
            assert answer.json()["type"] == "daemon_away"

        async with open_daemon(server.port) as daemon:
            nursery.start_soon(ask)
            await daemon.take(Query)


@pytest.mark.req("R39")
@pytest.mark.inv(8)
async def test_text_that_comes_with_the_end_of_its_run_is_shown_before_that_end(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        gen, run = daemon.gen(agent), RunId("run_1")
        opened = RunReported(agent, run, 1, gen, "t0")
        ended = evolve(opened, ended_at="t1", outcome="completed")
        await daemon.report(opened)
        said = ActivityReported(agent, ActivityKind.run_ended, run, gen, None, {})
        async with watch(server) as events:
            await events.next_position()  # from here on it sees what is live
            text = Progressed(agent, run, gen, "quick")
            await daemon.report(ended, said, text)
            await daemon.send(evolve(text, text="after its end"))
            await daemon.report(evolve(said, run_id=RunId("run_2")))
            shown: list[Any] = []
            while len(shown) < 3:
                event = await events.next()
                if event.kind == "activity":
                    shown.append((event.data["kind"], event.data.get("text")))
        assert [kind for kind, _ in shown] == ["progress", "run_ended", "run_ended"]
        assert shown[0][1] == "quick"


async def test_live_progress_has_no_place_in_the_store(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        async with watch(server) as events:
            before = await events.next_position()
            run, gen = RunId("run_1"), daemon.gen(agent)
            await daemon.send(Progressed(agent, run, gen, "thinking"))
            event = await events.next()
            assert (event.kind, event.id) == ("activity", "")
            assert (event.data["kind"], event.data["text"]) == ("progress", "thinking")
            assert events.position == before
            # Of a fenced generation nothing is shown.
            await daemon.report(FenceReported(agent, gen, "hold"))
            await daemon.send(Progressed(agent, run, gen, "late"))
            await daemon.idle(agent)
            assert (await events.next()).kind == "agent"
        assert (await server.get("/api/agents/ada/activity"))["items"] == []


@pytest.mark.inv(7)
async def test_text_that_comes_with_the_fence_of_its_run_is_not_shown(
    server: RunningServer,
) -> None:
    """The stored lines of one batch are there first: the text would come behind them."""
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        async with watch(server) as events:
            await events.next_position()
            run, gen = RunId("run_1"), daemon.gen(agent)
            text = Progressed(agent, run, gen, "too late")
            await daemon.report(text, FenceReported(agent, gen, "hold"))
            await daemon.idle(agent)
            assert (await events.next()).kind == "agent"
