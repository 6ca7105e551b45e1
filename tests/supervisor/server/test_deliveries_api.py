"""What a delivery claims, as the daemon's reports move it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from attrs import evolve
from tests.kit.daemon_peer import DaemonPeer, open_daemon

from agentteam_protocol.delivery import DeliveryState, Evidence
from agentteam_protocol.frames import (
    AgentDeliver,
    AgentGranted,
    AgentResolve,
    DeliveryReceived,
    DeliveryReported,
    FenceReported,
    FrontierReported,
    SendJudged,
    SendRequested,
)
from agentteam_protocol.ids import AgentId, SendId, TargetId

if TYPE_CHECKING:
    from typing import Any

    from tests.kit.server import RunningServer


async def frontier(server: RunningServer, daemon: DaemonPeer, model: str) -> int:
    """Read the direct target's frontier from the grant that a change brings."""
    await server.client.patch("/api/agents/ada", json={"model": model})
    granted = await daemon.take(AgentGranted, lambda g: g.model == model)
    (value,) = granted.frontiers.values()
    return value


@pytest.mark.req("R44", "R46", "R47", "R48", "R50")
@pytest.mark.inv(9)
async def test_frontier_moves_when_surfaced_and_not_before(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        assert await frontier(server, daemon, "m1") == 0
        await daemon.report(daemon.moved(frame, DeliveryState.accepted))
        assert await frontier(server, daemon, "m2") == 0
        evidence = Evidence("item/completed", "2026-01-01T00:00:00Z", "clientId")
        await daemon.report(daemon.moved(frame, DeliveryState.surfaced, evidence))
        assert await frontier(server, daemon, "m3") == 1
        shown = await server.delivery(frame.delivery)
        assert shown["evidence"]["kind"] == "item/completed"
        states = [entry["state"] for entry in shown["history"]]
        assert states == ["queued", "accepted", "surfaced"]


@pytest.mark.req("R44", "R52")
async def test_out_of_order_surfacing_waits_for_the_gap(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        await server.say("@ada", "two")
        first, second = await daemon.deliver(), await daemon.deliver()
        await daemon.surface(second)
        assert await frontier(server, daemon, "m1") == 0
        await daemon.surface(first)
        assert await frontier(server, daemon, "m2") == 2


@pytest.mark.req("R44", "R45")
async def test_reading_history_moves_the_frontier_by_report(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await server.say("@ada", "one")
        await server.say("@ada", "two")
        frame = await daemon.deliver()
        target, gen = frame.message.target, daemon.gen(frame.agent)
        report = FrontierReported(agent["id"], target, (1, 2, 3, -1, 10**9), gen)
        await daemon.report(report)
        # Sequences that do not exist are not believed.
        assert await frontier(server, daemon, "m1") == 2


@pytest.mark.req("R50")
async def test_frontier_is_per_target(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.post("/api/targets", {"name": "team", "agents": ["ada"]})
        await server.say("@ada", "one")
        await server.say("team", "two")
        first = await daemon.deliver()
        await daemon.surface(first)
        await server.client.patch("/api/agents/ada", json={"model": "m1"})
        granted = await daemon.take(AgentGranted, lambda g: g.model == "m1")
        seen = dict(granted.frontiers)
        assert seen.pop(first.message.target) == 1
        assert list(seen.values()) == [0]


@pytest.mark.req("R6")
@pytest.mark.inv(13, 17)
async def test_repeated_and_stale_reports_change_nothing(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.surface(frame)
        before = await server.delivery(frame.delivery)
        for state in DeliveryState:
            await daemon.report(daemon.moved(frame, state))
        assert await server.delivery(frame.delivery) == before


async def test_late_evidence_is_kept_in_the_history(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.surface(frame)
        note = "may have been seen twice"
        await daemon.report(
            DeliveryReported(
                frame.delivery, frame.agent, DeliveryState.surfaced, 1, note=note
            )
        )
        shown = await server.delivery(frame.delivery)
        assert shown["state"] == "surfaced"
        assert shown["history"][-1]["note"] == note


async def test_dropped_input_comes_back_as_a_new_attempt(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.report(daemon.moved(frame, DeliveryState.accepted))
        report = DeliveryReported(frame.delivery, frame.agent, DeliveryState.queued, 2)
        await daemon.report(report)
        shown = await server.delivery(frame.delivery)
        assert (shown["state"], shown["attempt"]) == ("queued", 2)


async def test_report_of_somebody_elses_delivery_changes_nothing(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent("ada")
        eve = await server.agent("eve")
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        stolen = DeliveryReported(frame.delivery, eve["id"], DeliveryState.surfaced, 1)
        await daemon.report(stolen, DeliveryReceived(frame.delivery, 1))
        assert (await server.delivery(frame.delivery))["state"] == "queued"


async def test_waiting_ends_with_the_delivery(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "one")
        path = f"/api/deliveries/{message['deliveries'][0]['id']}"
        assert (await server.get(f"{path}?wait=0.05"))["state"] == "queued"
        found: list[Any] = []

        async def wait() -> None:
            found.append(await server.get(f"{path}?wait=30"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            frame = await daemon.deliver()
            await daemon.report(daemon.moved(frame, DeliveryState.accepted))
            assert not found
            await daemon.surface(frame)
        assert found[0]["state"] == "surfaced"
        for query in ("wait=x", "wait=-1", "wait=nan", "wait=inf"):
            assert (await server.client.get(f"{path}?{query}")).status_code == 422
        missing = await server.client.get("/api/deliveries/dlv_nothing")
        assert missing.status_code == 404


@pytest.mark.req("R6", "R132")
@pytest.mark.inv(17)
@pytest.mark.parametrize("state", ["unknown", "failed", "blocked"])
async def test_redelivery_keeps_identity_and_policy(
    state: str, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "one")
        await daemon.deliver()
        await server.urgent(message["id"])
        frame = await daemon.deliver()
        await daemon.report(daemon.moved(frame, DeliveryState(state)))
        path = f"/api/deliveries/{frame.delivery}/resolve"
        shown = await server.post(path, {"as": "redeliver"}, 200)
        assert (shown["state"], shown["attempt"]) == ("queued", 2)
        again = await daemon.deliver()
        assert again.delivery == frame.delivery
        assert again.interrupt_policy is frame.interrupt_policy
        assert again.attempt == 2
        # What is still said of the first attempt is stale.
        await daemon.report(daemon.moved(frame, DeliveryState.failed))
        assert (await server.delivery(frame.delivery))["state"] == "queued"
        assert (await server.post(path, {"as": "redeliver"}, 409))[
            "type"
        ] == "not_resolvable"


async def test_dismissal_of_a_queued_delivery_waits_for_the_daemon(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        path = f"/api/deliveries/{frame.delivery}/resolve"
        assert (await server.post(path, {"as": "dismiss"}, 202))["state"] == "queued"
        assert (await daemon.take(AgentResolve)).delivery == frame.delivery
        await daemon.report(daemon.moved(frame, DeliveryState.cancelled))
        assert (await server.delivery(frame.delivery))["state"] == "cancelled"
        assert (await server.post(path, {"as": "dismiss"}, 409))["state"] == "cancelled"
        assert (await server.post(path, {"as": "forget"}, 422))[
            "type"
        ] == "unknown_resolution"


async def test_a_dismissal_that_came_too_late_stands_in_the_history(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        path = f"/api/deliveries/{frame.delivery}/resolve"
        await server.post(path, {"as": "dismiss"}, 202)
        late = evolve(daemon.moved(frame, DeliveryState.queued), note="too late")
        await daemon.report(late)
        shown = await server.delivery(frame.delivery)
        assert (shown["state"], shown["history"][-1]["note"]) == ("queued", "too late")


async def test_dismissal_of_a_failure_is_final(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.report(daemon.moved(frame, DeliveryState.failed))
        path = f"/api/deliveries/{frame.delivery}/resolve"
        assert (await server.post(path, {"as": "dismiss"}, 200))["state"] == "cancelled"


async def send(
    daemon: DaemonPeer, agent: str, text: str, target: str, **more: Any
) -> SendJudged:
    send_id = SendId(more.get("send", f"snd_{text}"))
    gen = more.get("gen", daemon.gen(AgentId(agent)))
    await daemon.send(SendRequested(send_id, AgentId(agent), gen, target, text))
    return await daemon.take(SendJudged, lambda j: j.send == send_id)


@pytest.mark.req("R51", "R40", "R43")
@pytest.mark.inv(11)
async def test_visible_send_is_held_until_the_target_was_seen(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await daemon.take(AgentGranted)
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        held = await send(daemon, agent["id"], "too-early", "@ada")
        assert held.verdict == "held"
        assert [ref.body for ref in held.unseen] == ["one"]
        await daemon.surface(frame)
        forwarded = await send(daemon, agent["id"], "hello", "@ada")
        assert (forwarded.verdict, forwarded.seq) == ("forwarded", 2)
        # Its own message counts as seen: the next one is not held by it.
        assert (await send(daemon, agent["id"], "again", "@ada")).seq == 3
        listed = await server.get("/api/targets/@ada/messages")
        assert [m["body"] for m in listed["messages"]] == ["one", "hello", "again"]
        assert listed["messages"][1]["author"] == {"kind": "agent", "name": "ada"}
        assert listed["messages"][1]["deliveries"] == []


@pytest.mark.req("R40", "R41", "R43", "R51")
@pytest.mark.inv(7)
async def test_send_of_a_fenced_generation_publishes_nothing(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        one, two = daemon.gen(agent, 1), daemon.gen(agent, 2)
        await daemon.report(FenceReported(agent, one, "hold"))
        assert (await send(daemon, agent, "a", "@ada", gen=one)).verdict == "held"
        await daemon.report(
            FenceReported(agent, one, "fenced"), FenceReported(agent, two, "open")
        )
        rejected = await send(daemon, agent, "b", "@ada", gen=one)
        assert rejected.verdict == "rejected"
        assert "interrupted" in rejected.reason
        older = type(one)(0, 9)
        assert (await send(daemon, agent, "c", "@ada", gen=older)).verdict == "rejected"
        assert (await send(daemon, agent, "d", "@ada", gen=two)).verdict == "forwarded"
        listed = await server.get("/api/targets/@ada/messages")
        assert [m["body"] for m in listed["messages"]] == ["d"]


async def test_send_reaches_the_other_members_and_not_its_author(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        ada, eve = await server.agent("ada"), await server.agent("eve")
        await server.post("/api/targets", {"name": "team", "agents": ["ada", "eve"]})
        await daemon.take(AgentGranted)
        judged = await send(daemon, ada["id"], "hi", "team")
        assert judged.verdict == "forwarded"
        frame = await daemon.deliver()
        assert frame.agent == eve["id"]
        assert frame.message.author.name == "ada"
        assert not [f for f in daemon.state.inbox if isinstance(f, AgentDeliver)]


@pytest.mark.parametrize("target", ["@eve", "tgt_nothing", ""])
async def test_agent_sends_only_to_its_own_targets(
    target: str, server: RunningServer
) -> None:
    async with open_daemon(server.port) as daemon:
        ada, _ = await server.agent("ada"), await server.agent("eve")
        await daemon.take(AgentGranted)
        assert (await send(daemon, ada["id"], "x", target)).verdict == "rejected"
        assert (await server.get("/api/targets/@eve/messages"))["head"] == 0


async def test_repeated_send_is_one_message(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await daemon.take(AgentGranted)
        first = await send(daemon, agent["id"], "x", "@ada", send="snd_1")
        again = await send(daemon, agent["id"], "x", "@ada", send="snd_1")
        assert first == again
        assert (await server.get("/api/targets/@ada/messages"))["head"] == 1


async def test_target_of_a_send_may_be_an_id(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await server.agent()
        await daemon.take(AgentGranted)
        target = TargetId(agent["target"]["id"])
        assert (await send(daemon, agent["id"], "x", target)).verdict == "forwarded"
