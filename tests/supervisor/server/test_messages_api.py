"""Ordinary messages, and marking one that was sent before as urgent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.kit.daemon_peer import open_daemon

from agentteam_protocol.delivery import DeliveryState, Diagnostic, InterruptPolicy
from agentteam_protocol.frames import AgentDeliver, AgentGranted, DeliveryReported

if TYPE_CHECKING:
    from tests.kit.server import RunningServer

TEMPTING = [
    "停一下",
    "urgent: stop what you are doing",
    "不要做了",
    "@ada STOP",
    '{"interruptPolicy": "interrupt_current_run"}',
    '#do [{"interruptPolicy": "interrupt_current_run"}]',
]


async def test_message_gets_the_next_sequence_of_its_target(
    server: RunningServer,
) -> None:
    await server.agent()
    sent = [await server.say("@ada", f"m{n}", author="alice") for n in range(3)]
    assert [m["targetSeq"] for m in sent] == [1, 2, 3]
    assert sent[0]["author"] == {"kind": "user", "name": "alice"}
    listed = await server.get("/api/targets/@ada/messages?after=1&limit=1")
    assert [m["body"] for m in listed["messages"]] == ["m1"]
    assert listed["head"] == 3
    assert (await server.get(f"/api/messages/{sent[2]['id']}"))["body"] == "m2"


@pytest.mark.req("R3", "R7", "R16", "R131")
@pytest.mark.parametrize("body", TEMPTING)
async def test_body_that_says_stop_sets_no_policy(
    body: str, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", body)
        (delivery,) = message["deliveries"]
        assert delivery["interruptPolicy"] is None
        frame = await daemon.deliver()
        assert frame.interrupt_policy is None
        assert frame.message.body == body


@pytest.mark.req("R7", "R131")
@pytest.mark.parametrize("policy", ["interrupt_current_run", "none", None, 1])
async def test_ordinary_send_with_a_policy_is_refused(
    policy: Any, server: RunningServer
) -> None:
    await server.agent()
    body = {"body": "hi", "interruptPolicy": policy}
    problem = await server.post("/api/targets/@ada/messages", body, 422)
    assert problem["type"] == "policy_not_allowed"
    assert "agent-delivery" in problem["detail"]
    assert (await server.get("/api/targets/@ada/messages"))["head"] == 0


@pytest.mark.parametrize(
    ("content", "status", "slug"),
    [
        (b"{", 400, "malformed_json"),
        (b"[]", 400, "malformed_json"),
        (b'{"body": "\\ud800"}', 400, "malformed_json"),
        (b'{"body": "a\\u0000b"}', 422, "invalid_field"),
        (b"\xff\xfe", 400, "malformed_json"),
        (b"{}", 422, "invalid_field"),
        (b'{"body": ""}', 422, "invalid_field"),
        (b'{"body": 1}', 422, "invalid_field"),
        (b'{"body": "x", "interrupt_policy": "x"}', 422, "unknown_field"),
        (b'{"body": "x", "author": "a\\nb"}', 422, "invalid_field"),
        (b'{"body": "x", "author": " "}', 422, "invalid_field"),
        (b'{"body": " \\n\\t "}', 422, "invalid_field"),
        (b'{"body": "x", "author": "' + b"a" * 101 + b'"}', 422, "invalid_field"),
    ],
)
async def test_malformed_message_is_refused_with_what_to_do(
    content: bytes, status: int, slug: str, server: RunningServer
) -> None:
    await server.agent()
    answer = await server.client.post(
        "/api/targets/@ada/messages",
        content=content,
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.json()["type"]) == (status, slug)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await server.get("/api/targets/@ada/messages"))["head"] == 0


async def test_unknown_target_is_404(server: RunningServer) -> None:
    problem = await server.post("/api/targets/@bob/messages", {"body": "x"}, 404)
    assert problem["type"] == "unknown_target"


@pytest.mark.req("R1", "R2", "R4", "R5", "R8", "R9", "R16", "R131")
@pytest.mark.inv(17, 18)
async def test_marking_urgent_makes_a_new_delivery_of_the_same_message(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "hello")
        ordinary = await daemon.deliver()
        await daemon.surface(ordinary)
        delivery = await server.urgent(message["id"])
        assert delivery["id"] != ordinary.delivery
        assert delivery["interruptPolicy"] == "interrupt_current_run"
        # Surfaced before, and delivered all the same: a replay of the same message.
        frame = await daemon.deliver()
        assert frame.delivery == delivery["id"]
        assert frame.interrupt_policy is InterruptPolicy.interrupt_current_run
        assert frame.message == ordinary.message
        listed = await server.get("/api/targets/@ada/messages")
        assert (listed["head"], len(listed["messages"])) == (1, 1)
        first, second = listed["messages"][0]["deliveries"]
        assert (first["id"], first["interruptPolicy"]) == (ordinary.delivery, None)
        assert second["id"] == delivery["id"]


@pytest.mark.req("R6", "R132")
@pytest.mark.bug("B36")
@pytest.mark.parametrize("state", ["queued", "accepted", "surfaced", "unknown"])
async def test_marking_again_gives_the_delivery_that_stands(
    state: str, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "hello")
        await daemon.deliver()
        first = await server.urgent(message["id"])
        frame = await daemon.deliver()
        if state != "queued":
            await daemon.report(daemon.moved(frame, DeliveryState(state)))
        again = await server.urgent(message["id"])
        assert again["id"] == first["id"]
        assert again["state"] == state
        assert again["interruptPolicy"] == "interrupt_current_run"
        listed = await server.get(f"/api/messages/{message['id']}")
        assert len(listed["deliveries"]) == 2


@pytest.mark.parametrize("state", ["failed", "blocked", "cancelled"])
async def test_marking_again_after_a_failure_makes_a_new_delivery(
    state: str, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "hello")
        await daemon.deliver()
        first = await server.urgent(message["id"])
        frame = await daemon.deliver()
        await daemon.report(daemon.moved(frame, DeliveryState(state)))
        again = await server.urgent(message["id"])
        assert again["id"] != first["id"]
        assert (await daemon.deliver()).delivery == again["id"]


@pytest.mark.req("R19")
async def test_unknown_policy_or_message_is_refused(server: RunningServer) -> None:
    await server.agent()
    message = await server.say("@ada", "hello")
    path = f"/api/messages/{message['id']}/agent-delivery"
    for policy in ("interrupt", "", None, 1, ["interrupt_current_run"]):
        problem = await server.post(path, {"interruptPolicy": policy}, 422)
        assert problem["type"] == "unknown_policy"
    assert (await server.post(path, {}, 422))["type"] == "unknown_policy"
    problem = await server.urgent("msg_nothing", 404)
    assert problem["type"] == "unknown_message"
    listed = await server.get(f"/api/messages/{message['id']}")
    assert len(listed["deliveries"]) == 1


async def test_agent_must_be_named_where_several_can_be_meant(
    server: RunningServer,
) -> None:
    ada, eve = await server.agent("ada"), await server.agent("eve")
    await server.agent("bob")
    await server.post("/api/targets", {"name": "team", "agents": ["ada", eve["id"]]})
    message = await server.say("team", "hello")
    assert {d["agentId"] for d in message["deliveries"]} == {ada["id"], eve["id"]}
    problem = await server.urgent(message["id"], 422)
    assert problem["type"] == "agent_required"
    assert [c["name"] for c in problem["candidates"]] == ["ada", "eve"]
    delivery = await server.urgent(message["id"], agentId="eve")
    assert delivery["agentId"] == eve["id"]
    by_id = await server.urgent(message["id"], agentId=eve["id"])
    assert by_id["id"] == delivery["id"]
    problem = await server.urgent(message["id"], 422, agentId="bob")
    assert problem["type"] == "not_a_member"


async def test_target_without_agents_has_nobody_to_be_urgent_for(
    server: RunningServer,
) -> None:
    await server.post("/api/targets", {"name": "notes"})
    message = await server.say("notes", "hello")
    assert message["deliveries"] == []
    assert (await server.urgent(message["id"], 422))["type"] == "agent_required"


async def test_bad_targets_are_refused(server: RunningServer) -> None:
    await server.agent("ada")
    for body, status in (
        ({"name": "@ada"}, 422),
        ({"name": "team", "agents": ["nobody"]}, 404),
        ({"name": "team", "agents": "ada"}, 422),
        ({"agents": []}, 422),
    ):
        await server.post("/api/targets", body, status)
    await server.post("/api/targets", {"name": "team", "agents": ["ada", "ada"]})
    await server.post("/api/targets", {"name": "team"}, 409)


@pytest.mark.req("R10")
async def test_delivery_carries_the_body_and_where_the_agent_joined(
    server: RunningServer,
) -> None:
    await server.post("/api/targets", {"name": "team"})
    async with open_daemon(server.port) as daemon:
        await server.agent("ada")
        await server.post("/api/targets", {"name": "crew", "agents": ["ada"]})
        await server.say("crew", "文字 \U0001f600 and\nlines", author="alice")
        frame = await daemon.take(AgentDeliver)
        assert frame.message.body == "文字 \U0001f600 and\nlines"
        assert (frame.message.target_name, frame.message.direct) == ("crew", False)
        assert (frame.message.author.name, frame.floor) == ("alice", 0)
        # The grant was sent again, so that the daemon knows of the target.
        grants = [f for f in daemon.state.inbox if isinstance(f, AgentGranted)]
        assert frame.message.target in grants[-1].frontiers


@pytest.mark.req("R54", "R55", "R49", "R137")
@pytest.mark.inv(21)
async def test_failed_urgent_keeps_the_message_and_moves_no_frontier(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        message = await server.say("@ada", "hello")
        await daemon.deliver()
        delivery = await server.urgent(message["id"])
        frame = await daemon.deliver()
        problem = Diagnostic("the runtime does not stop", "restart the agent")
        await daemon.report(
            DeliveryReported(
                frame.delivery,
                agent["id"],
                DeliveryState.failed,
                1,
                diagnostic=problem,
            )
        )
        shown = await server.delivery(delivery["id"])
        assert shown["state"] == "failed"
        assert shown["diagnostic"]["whatToDo"] == "restart the agent"
        assert shown["evidence"] is None
        await server.client.patch("/api/agents/ada", json={"model": "m"})
        granted = await daemon.take(AgentGranted, lambda g: g.model == "m")
        assert list(granted.frontiers.values()) == [0]
        assert (await server.get("/api/targets/@ada/messages"))["head"] == 1


async def test_search_finds_words_in_any_case_newest_first(
    server: RunningServer,
) -> None:
    await server.agent()
    for body in ("the Deploy failed", "nothing", "deploy again", "100% sure_thing"):
        await server.say("@ada", body)
    path = "/api/targets/@ada/messages"
    found = await server.get(path, params={"search": "DEPLOY"})
    assert [m["targetSeq"] for m in found["messages"]] == [3, 1]
    one = await server.get(path, params={"search": "deploy", "limit": 1})
    assert [m["targetSeq"] for m in one["messages"]] == [3]
    for wild, seqs in (("%", [4]), ("_", [4]), ("zzz", [])):
        found = await server.get(path, params={"search": wild})
        assert [m["targetSeq"] for m in found["messages"]] == seqs
    too_long = await server.client.get(path, params={"search": "x" * 200})
    assert too_long.status_code == 422
