"""Agents over HTTP: making, showing, changing and forgetting them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.daemon_peer import DaemonState, open_daemon

from agentteam_protocol.approval import ApprovalPolicy
from agentteam_protocol.delivery import Diagnostic
from agentteam_protocol.frames import AgentGranted, AgentRevoked, StatusReported

if TYPE_CHECKING:
    from tests.kit.server import RunningServer


async def test_new_agent_has_a_direct_target_of_its_name(server: RunningServer) -> None:
    agent = await server.agent(
        "ada", workdir="/tmp", model="m1", approvalPolicy="never"
    )
    assert agent["id"].startswith("agt_")
    assert agent["status"] == "idle"
    assert agent["currentRun"] is None
    assert agent["target"]["name"] == "@ada"
    assert (agent["workdir"], agent["model"]) == ("/tmp", "m1")
    targets = (await server.get("/api/targets"))["targets"]
    assert [(t["name"], t["direct"], t["head"]) for t in targets] == [("@ada", True, 0)]
    for ref in (agent["id"], "ada"):
        assert (await server.get(f"/api/agents/{ref}"))["id"] == agent["id"]
    assert (await server.get("/api/agents"))["agents"][0]["name"] == "ada"


@pytest.mark.parametrize("name", ["", "Ada", "-a", "a b", "@ada", "a" * 64, "阿达", 7])
async def test_bad_name_is_refused(name: Any, server: RunningServer) -> None:
    body = {"name": name, "runtime": "rehearsal"}
    problem = await server.post("/api/agents", body, 422)
    assert problem["type"] in {"invalid_name", "invalid_field"}
    assert problem["detail"]


@pytest.mark.parametrize(
    ("settings", "slug"),
    [
        ({"options": {"colour": "red"}}, "unknown_option"),
        ({"options": {"args": "x"}}, "invalid_option"),
        ({"options": {"command": "opencode acp"}}, "invalid_option"),
        ({"options": {"command": []}}, "invalid_option"),
        ({"options": {"command": ["", "acp"]}}, "invalid_option"),
        ({"options": {"env": {"A": 1}}}, "invalid_option"),
        ({"options": []}, "invalid_field"),
        ({"approvalPolicy": "always"}, "unknown_approval_policy"),
        ({"autoReply": "yes"}, "invalid_field"),
        ({"runtime": ""}, "invalid_field"),
        ({"colour": "red"}, "unknown_field"),
    ],
)
async def test_bad_settings_are_refused_by_name(
    settings: dict[str, Any], slug: str, server: RunningServer
) -> None:
    body = {"name": "ada", "runtime": "rehearsal", **settings}
    assert (await server.post("/api/agents", body, 422))["type"] == slug
    assert (await server.get("/api/agents"))["agents"] == []


async def test_name_is_unique_among_the_living(server: RunningServer) -> None:
    await server.agent("ada")
    body = {"name": "ada", "runtime": "rehearsal"}
    assert (await server.post("/api/agents", body, 409))["type"] == "name_taken"


@pytest.mark.parametrize("name", ["user", "system", "agent"])
async def test_a_word_of_the_api_is_no_name(server: RunningServer, name: str) -> None:
    body = {"name": name, "runtime": "rehearsal"}
    problem = await server.post("/api/agents", body, 422)
    assert problem["type"] == "reserved_name"
    assert "choose another" in problem["detail"]


async def test_a_session_of_a_person_belongs_to_one_agent(
    server: RunningServer,
) -> None:
    theirs = {"resume": "0b95"}
    await server.agent("ada", runtime="codex", options=theirs)
    await server.agent("bob", runtime="claude", options=theirs)
    body = {"name": "eve", "runtime": "codex", "options": theirs}
    problem = await server.post("/api/agents", body, 409)
    assert (problem["type"], problem["agent"]) == ("session_taken", "ada")
    await server.agent("eve", runtime="codex")
    changed = await server.client.patch("/api/agents/eve", json={"options": theirs})
    assert changed.status_code == 409
    same = await server.client.patch("/api/agents/ada", json={"options": theirs})
    assert same.status_code == 200
    await server.client.delete("/api/agents/ada")
    changed = await server.client.patch("/api/agents/eve", json={"options": theirs})
    assert changed.status_code == 200


async def test_runtime_that_the_daemon_does_not_have_is_refused(
    server: RunningServer,
) -> None:
    state = DaemonState(runtimes={"rehearsal": {"steer": "ack"}})
    async with open_daemon(server.port, state):
        body = {"name": "ada", "runtime": "codex"}
        problem = await server.post("/api/agents", body, 422)
        assert problem["type"] == "unknown_runtime"
        assert "rehearsal" in problem["detail"]
        agent = await server.agent("ada")
        assert agent["capabilities"] == {"steer": "ack"}


async def test_a_program_of_its_own_is_not_judged_by_that_of_the_machine(
    server: RunningServer,
) -> None:
    missing = {"problem": "there is no program codex"}
    async with open_daemon(server.port, DaemonState(runtimes={"codex": missing})):
        plain = await server.agent("ada", runtime="codex")
        own = await server.agent("eve", runtime="codex", options={"bin": "/own/codex"})
        assert plain["capabilities"] == missing
        assert own["capabilities"] == {}


async def test_values_of_the_environment_are_not_shown(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent("ada", options={"env": {"KEY": "secret"}})
        assert agent["options"] == {"env": {"KEY": "***"}}
        granted = await daemon.take(AgentGranted)
        assert granted.options == {"env": {"KEY": "secret"}}


async def test_changes_reach_the_daemon_under_the_same_epoch(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent("ada")
        first = await daemon.take(AgentGranted)
        change: dict[str, Any] = {
            "name": "eve",
            "model": "m2",
            "approvalPolicy": "never",
        }
        change |= {"workdir": "/srv", "options": {"bin": "/bin/x"}}
        answer = await server.client.patch("/api/agents/ada", json=change)
        assert answer.status_code == 200
        second = await daemon.take(AgentGranted)
        assert (second.name, second.model) == ("eve", "m2")
        assert (second.workdir, second.options) == ("/srv", {"bin": "/bin/x"})
        assert second.approval_policy is ApprovalPolicy.never
        assert second.epoch == first.epoch
        await server.say("@eve", "the target is renamed too")


async def test_change_to_a_taken_or_bad_name_is_refused(server: RunningServer) -> None:
    await server.agent("ada")
    await server.agent("eve")
    for name, status in (("eve", 409), ("Eve", 422)):
        answer = await server.client.patch("/api/agents/ada", json={"name": name})
        assert answer.status_code == status


@pytest.mark.parametrize(
    "settings",
    [
        {"workdir": "relative/path"},
        {"workdir": "/a\0b"},
        {"workdir": "/" + "a" * 4096},
        {"model": "m\0"},
        {"options": {"env": {"": "x"}}},
        {"options": {"env": {"A=B": "x"}}},
        {"options": {"env": {"A": "x\0"}}},
        {"options": {"args": ["\0"]}},
        {"options": {"bin": "/bin/\0"}},
        {"options": {"config": {"deep": ["\\\0"]}}},
        {"options": {"config": json.loads('{"a":' * 300 + "1" + "}" * 300)}},
    ],
)
async def test_settings_that_no_process_can_take_are_refused(
    server: RunningServer, settings: dict[str, Any]
) -> None:
    wanted = {"name": "ada", "runtime": "rehearsal", **settings}
    await server.post("/api/agents", wanted, 422)
    await server.agent("ada", options={"config": {"text": "\\u0000"}})
    answer = await server.client.patch("/api/agents/ada", json=settings)
    assert answer.status_code == 422


async def test_a_group_cannot_stand_in_an_agents_place(server: RunningServer) -> None:
    await server.agent("ada")
    group = {"name": "crew", "agents": ["ada"]}
    await server.post("/api/targets", group, 201)
    for path, body in (
        ("/api/targets", {**group, "name": "ada"}),
        ("/api/targets", {**group, "name": "agt_1"}),
        ("/api/agents", {"name": "crew", "runtime": "rehearsal"}),
        ("/api/agents", {"name": "tgt_1", "runtime": "rehearsal"}),
    ):
        refused = await server.post(path, body, 409)
        assert refused["type"] == "name_taken"
        assert "choose" in refused["detail"]


async def test_forgotten_agent_leaves_its_messages(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent("ada")
        message = await server.say("@ada", "hello")
        assert (await server.client.delete("/api/agents/ada")).status_code == 204
        revoked = await daemon.take(AgentRevoked)
        assert (revoked.agent, revoked.forget) == (agent["id"], True)
        assert (await server.client.get("/api/agents/ada")).status_code == 404
        assert (await server.get("/api/agents"))["agents"] == []
        kept = await server.get(f"/api/targets/{agent['target']['id']}/messages")
        assert [m["id"] for m in kept["messages"]] == [message["id"]]
        (delivery,) = kept["messages"][0]["deliveries"]
        assert delivery["state"] == "cancelled"
        assert delivery["diagnostic"]["whatToDo"]
        assert "may have been read" in delivery["history"][-1]["note"]
        # Who asks by its name hears where it is; what it did is read by its id.
        absent = (await server.client.get("/api/agents/ada/runs")).json()
        assert absent["removed"]["agent"] == agent["id"]
        assert agent["id"] in absent["detail"]
        absent = (await server.client.get("/api/targets/@ada/messages")).json()
        assert absent["removed"] == {"target": agent["target"]["id"]}
        for what, name in (("runs", "runs"), ("activity", "items")):
            assert name in await server.get(f"/api/agents/{agent['id']}/{what}")
        # The name is free again, and nothing of the old one comes along.
        again = await server.agent("ada")
        assert again["id"] != agent["id"]
        assert (await server.get("/api/targets/@ada/messages"))["head"] == 0


async def test_agent_shows_the_daemons_last_word(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await daemon.take(AgentGranted)
        await daemon.run(agent["id"], "run_1")
        shown = await server.get("/api/agents/ada")
        assert shown["status"] == "running"
        assert shown["currentRun"]["id"] == "run_1"
        assert shown["currentRun"]["generation"] == [1, 1]
        assert shown["daemon"] == {"id": "dmn_one", "connected": True}
        assert shown["problem"] is None
        problem = Diagnostic("no such program", "install it")
        await daemon.report(
            StatusReported(agent["id"], 1, False, "offline", True, problem=problem)
        )
        shown = await server.get("/api/agents/ada")
        assert (shown["status"], shown["parked"]) == ("idle", True)
        assert shown["currentRun"] is None
        assert shown["problem"] == {
            "problem": "no such program",
            "whatToDo": "install it",
        }


async def test_status_of_an_older_epoch_changes_nothing(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await daemon.take(AgentGranted)
        await daemon.report(StatusReported(agent["id"], 0, True, "running", False))
        assert (await server.get("/api/agents/ada"))["status"] == "idle"


async def test_absence_of_the_daemon_is_a_problem_with_what_to_do(
    server: RunningServer,
) -> None:
    await server.agent()
    async with open_daemon(server.port):
        assert (await server.get("/api/agents/ada"))["problem"] is None
    shown = await server.until(
        "/api/agents/ada", lambda agent: not agent["daemon"]["connected"]
    )
    assert "agentteam" in shown["problem"]["whatToDo"]


async def test_lists_go_on_after_a_sequence(server: RunningServer) -> None:
    for name in ("a1", "a2", "a3"):
        await server.agent(name)
    first = (await server.get("/api/agents?limit=2"))["agents"]
    rest = (await server.get(f"/api/agents?after={first[-1]['seq']}"))["agents"]
    assert [a["name"] for a in (*first, *rest)] == ["a1", "a2", "a3"]
    for query in ("limit=0", "limit=1001", "limit=x", "after=-1", "after=x"):
        answer = await server.client.get(f"/api/agents?{query}")
        assert answer.status_code == 422
