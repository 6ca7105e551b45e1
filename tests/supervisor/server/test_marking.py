"""Marking urgent tells what was read before; withdrawing what was accepted waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kit.daemon_peer import open_daemon

from agentteam_protocol.delivery import DeliveryState
from agentteam_protocol.frames import AgentResolve

if TYPE_CHECKING:
    from tests.kit.server import RunningServer


@pytest.mark.inv(18)
async def test_marking_a_message_that_was_read_names_its_proof(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        message = await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.surface(frame)
        first = await server.urgent(message["id"])
        again = await server.urgent(message["id"])
    assert first["made"]
    assert first["readBefore"]["deliveryId"] == frame.delivery
    assert first["readBefore"]["evidence"]["kind"]
    assert (again["id"], again["made"]) == (first["id"], False)


async def test_marking_a_message_that_was_not_read_says_nothing_of_it(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port):
        await server.agent()
        message = await server.say("@ada", "one")
        marked = await server.urgent(message["id"])
    assert (marked["made"], marked["readBefore"]) == (True, None)


async def test_what_was_accepted_is_withdrawn_when_the_daemon_says_so(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.report(daemon.moved(frame, DeliveryState.accepted))
        path = f"/api/deliveries/{frame.delivery}/resolve"
        asked = await server.post(path, {"as": "dismiss"}, 202)
        assert asked["state"] == "accepted"
        assert (await daemon.take(AgentResolve)).delivery == frame.delivery
        await daemon.report(daemon.moved(frame, DeliveryState.cancelled))
        assert (await server.delivery(frame.delivery))["state"] == "cancelled"
