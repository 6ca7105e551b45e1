"""Approvals over HTTP: a person decides once, and a cut overtakes the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.kit.daemon_peer import DaemonPeer, DaemonState, open_daemon, running

from agentteam_protocol.approval import ApprovalOutcome, ApprovalRequest
from agentteam_protocol.frames import ApprovalDecide, ApprovalReported
from agentteam_protocol.ids import AgentId, ApprovalId, RunId

if TYPE_CHECKING:
    from tests.kit.server import RunningServer


def asked(agent: AgentId, daemon: DaemonPeer, outcome: Any = None) -> ApprovalReported:
    request = ApprovalRequest(
        ApprovalId("apr_1"), RunId("run_1"), "shell", '{"command":"ls"}', "call_1"
    )
    return ApprovalReported(agent, request, daemon.gen(agent), outcome)


async def test_person_decides_an_approval_once(server: RunningServer) -> None:
    path = "/api/approvals/apr_1/decision"
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        await daemon.report(asked(agent, daemon))
        (pending,) = (await server.get("/api/approvals?state=pending"))["approvals"]
        assert (pending["toolName"], pending["callId"]) == ("shell", "call_1")
        assert "reason" not in pending
        shown = await server.get("/api/agents/ada")
        assert [a["id"] for a in shown["pendingApprovals"]] == ["apr_1"]
        decided = await server.post(path, {"outcome": "allowed-once"}, 200)
        assert decided["state"] == "allowed-once"
        frame = await daemon.take(ApprovalDecide)
        assert (frame.approval, frame.outcome) == (
            "apr_1",
            ApprovalOutcome.allowed_once,
        )
        problem = await server.post(path, {"outcome": "rejected"}, 409)
        assert problem["type"] == "already_decided"
        assert problem["decision"] == "allowed-once"
        assert (await server.get("/api/approvals?state=pending"))["approvals"] == []
        assert (await server.get("/api/agents/ada"))["pendingApprovals"] == []


async def test_cut_overtakes_a_persons_answer(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        await daemon.report(asked(agent, daemon))
        body = {"outcome": "allowed-once"}
        await server.post("/api/approvals/apr_1/decision", body, 200)
        await daemon.report(asked(agent, daemon, ApprovalOutcome.cancelled))
        (shown,) = (await server.get("/api/approvals"))["approvals"]
        assert shown["state"] == "cancelled"
        # Neither a repeat nor an earlier word opens or changes it again.
        await daemon.report(asked(agent, daemon, ApprovalOutcome.allowed_once))
        await daemon.report(asked(agent, daemon))
        (shown,) = (await server.get("/api/approvals"))["approvals"]
        assert shown["state"] == "cancelled"


async def test_bad_decisions_are_refused(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = await running(server, daemon)
        await daemon.report(asked(agent, daemon))
        path = "/api/approvals/apr_1/decision"
        for outcome in ("allowed", "cancelled", "unavailable", None, True):
            problem = await server.post(path, {"outcome": outcome}, 422)
            assert problem["type"] == "unknown_outcome"
        body = {"outcome": "rejected"}
        await server.post("/api/approvals/apr_2/decision", body, 404)
        answer = await server.client.get("/api/approvals?state=open")
        assert answer.status_code == 422


async def test_ask_of_a_process_that_is_gone_is_cancelled(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        agent = await running(server, daemon)
        await daemon.report(asked(agent, daemon))
    await server.until("/api/agents/ada", lambda a: not a["daemon"]["connected"])
    state.boot = "boot2"
    async with open_daemon(server.port, state):
        (shown,) = (await server.get("/api/approvals"))["approvals"]
        assert shown["state"] == "cancelled"
