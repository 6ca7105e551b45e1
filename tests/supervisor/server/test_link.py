"""The link: who is let in, what is repeated, and what a restart leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.daemon_peer import (
    DaemonPeer,
    DaemonState,
    open_daemon,
    open_link,
)
from tests.kit.server import open_server
from trio_websocket import ConnectionClosed

from agentteam_protocol.activity import ActivityKind
from agentteam_protocol.codec import decode_envelope, encode_envelope
from agentteam_protocol.control import ControlResult
from agentteam_protocol.delivery import DeliveryState, Diagnostic, InterruptPolicy
from agentteam_protocol.frames import (
    ActivityReported,
    AgentControl,
    AgentDeliver,
    AgentGranted,
    AgentTroubled,
    ControlReported,
    DeliveryReceived,
    Envelope,
    FenceReported,
    HistoryAsked,
    HistoryGiven,
    SendAsked,
    SendJudged,
    SendRequested,
    StatusReported,
    Welcome,
)
from agentteam_protocol.ids import AgentId, DaemonId, Generation, SendId
from agentteam_supervisor.server.link import REPLACING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.server import RunningServer


async def away(server: RunningServer) -> None:
    await server.until("/api/agents/ada", lambda a: not a["daemon"]["connected"])


def deliveries(daemon: DaemonPeer) -> list[AgentDeliver]:
    return [f for f in daemon.state.inbox if isinstance(f, AgentDeliver)]


@pytest.mark.bug("B20")
async def test_returning_daemon_replaces_its_old_connection(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as old:
        await server.agent()
        await old.take(AgentGranted)
        async with open_daemon(server.port, state) as new:
            with trio.fail_after(5):
                await old.closed.wait()
            await server.say("@ada", "one")
            assert (await new.deliver()).message.body == "one"
            shown = await server.get("/api/agents/ada")
            assert shown["daemon"]["connected"]
            # The same process: the leases stand.
            assert shown["detail"]["leaseEpoch"] == 1


@pytest.mark.bug("B20")
async def test_old_connection_that_is_stuck_does_not_keep_the_daemon_out(
    server: RunningServer,
) -> None:
    state = DaemonState()
    await server.agent()
    async with open_link(server.port) as stuck:
        hello = encode_envelope(Envelope((state.hello(),))).decode()
        await stuck.send_message(hello)
        await stuck.get_message()
        for _ in range(30):
            await server.say("@ada", "x" * 400_000)
        started = trio.current_time()
        async with open_daemon(server.port, state) as daemon:
            assert trio.current_time() - started < REPLACING
            await daemon.deliver()


async def test_garbage_ends_the_connection_and_nothing_else(
    server: RunningServer,
) -> None:
    state = DaemonState()
    await server.agent()
    async with open_daemon(server.port, state) as daemon:
        await daemon.websocket.send_message('{"frames": [{"kind": "no:such"}]}')
        with trio.fail_after(5):
            await daemon.closed.wait()
    async with open_daemon(server.port, state) as daemon:
        await server.say("@ada", "one")
        await daemon.deliver()


async def test_frames_are_repeated_until_their_receipt(server: RunningServer) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        await daemon.take(AgentDeliver)
        # The daemon dies before it made anything durable.
        state.received = 0
    await away(server)
    state.inbox.clear()
    async with open_daemon(server.port, state) as daemon:
        frame = await daemon.deliver()
        assert frame.message.body == "one"
        await daemon.report()
    await away(server)
    state.inbox.clear()
    async with open_daemon(server.port, state) as daemon:
        await server.say("@ada", "two")
        assert (await daemon.deliver()).message.body == "two"
        assert not deliveries(daemon)


@pytest.mark.req("R18", "R132")
@pytest.mark.bug("B36")
async def test_repeated_frames_of_the_daemon_are_applied_once(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        frame = await daemon.deliver()
        await daemon.surface(frame)
        before = await server.delivery(frame.delivery)
        repeated = (
            DeliveryReceived(frame.delivery),
            daemon.moved(frame, DeliveryState.failed),
        )
        await daemon.send_raw(Envelope(repeated, 1, state.received))
        line = ActivityReported(frame.agent, ActivityKind.stopping)
        await daemon.report(line)
        await daemon.send_raw(Envelope((line,), state.sent, state.received))
        await daemon.idle(frame.agent)
        assert await server.delivery(frame.delivery) == before
        items = (await server.get("/api/agents/ada/activity"))["items"]
        assert [item["kind"] for item in items] == ["stopping"]


@pytest.mark.req("R18", "R132", "R6")
async def test_outbox_and_policy_survive_a_restart_of_the_server(
    tmp_path: Path,
) -> None:
    state = DaemonState()
    async with open_server(tmp_path) as server:
        async with open_daemon(server.port, state) as daemon:
            await server.agent()
            await daemon.take(AgentGranted)
            await daemon.run(AgentId((await server.agent("eve"))["id"]), "run_9")
        await away(server)
        message = await server.say("@ada", "one")
        urgent = await server.urgent(message["id"])
    async with open_server(tmp_path) as server:
        again = await server.urgent(message["id"])
        assert (again["id"], again["state"]) == (urgent["id"], "queued")
        async with open_daemon(server.port, state) as daemon:
            assert daemon.welcome.received == state.sent
            first, second = await daemon.deliver(), await daemon.deliver()
            assert first.interrupt_policy is None
            assert second.delivery == urgent["id"]
            assert second.interrupt_policy is InterruptPolicy.interrupt_current_run
            await daemon.surface(second)
            assert (await server.delivery(urgent["id"]))["state"] == "surfaced"
        shown = await server.get("/api/agents/ada")
        # The daemon's process is the same: its sessions went on.
        assert shown["detail"]["leaseEpoch"] == 1


async def test_stop_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    state = DaemonState()
    body = {"runId": "run_1", "action": "interrupt_current_run"}
    async with open_server(tmp_path) as server:
        async with open_daemon(server.port, state) as daemon:
            agent = AgentId((await server.agent())["id"])
            await daemon.take(AgentGranted)
            await daemon.run(agent, "run_1")
        await away(server)
        await server.post("/api/agents/ada/control", body, 202)
    async with open_server(tmp_path) as server, open_daemon(server.port, state) as peer:
        control = await peer.take(AgentControl)
        assert control.run_id == "run_1"
        told = ControlReported(control.control, agent, ControlResult.stopping)
        await peer.report(told)


async def test_new_process_of_the_daemon_gets_greater_epochs_first(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        await daemon.run(agent, "run_1")
    await away(server)
    await server.say("@ada", "one")
    state.boot = "boot2"
    async with open_daemon(server.port, state) as daemon:
        granted = await daemon.take(AgentGranted)
        assert granted.epoch == 2
        frame = await daemon.deliver()
        assert frame.message.body == "one"
        # The grant stands before what was waiting.
        assert state.heard.index(granted) < state.heard.index(frame)
        shown = await server.get("/api/agents/ada")
        assert (shown["status"], shown["currentRun"]) == ("idle", None)
        # What a generation of the old process still wants to say is refused.
        old = type(daemon.gen(agent))(1, 1)
        await daemon.send(SendRequested(SendId("snd_1"), agent, old, "@ada", "x"))
        assert (await daemon.take(SendJudged)).verdict == "rejected"


async def test_daemon_that_lost_its_state_gets_everything_open_again(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        await server.say("@ada", "two")
        await server.say("@ada", "three")
        seen, taken, _ = [await daemon.deliver() for _ in range(3)]
        await daemon.surface(seen)
        await daemon.report(daemon.moved(taken, DeliveryState.accepted))
    await away(server)
    async with open_daemon(server.port, DaemonState(boot="boot2")) as daemon:
        assert (await daemon.take(AgentGranted)).epoch == 2
        frame = await daemon.deliver()
        assert frame.message.body == "three"
        assert not deliveries(daemon)
        # What the runtime had is neither sent again nor claimed.
        shown = await server.delivery(taken.delivery)
        assert shown["state"] == "unknown"
        assert shown["diagnostic"]["whatToDo"]


async def test_another_daemon_takes_over_when_the_first_is_gone(
    server: RunningServer,
) -> None:
    first, second = DaemonState(), DaemonState(daemon=DaemonId("dmn_two"))
    async with open_daemon(server.port, first) as daemon:
        await server.agent()
        await server.say("@ada", "one")
        await daemon.deliver()
        await daemon.report()
    await away(server)
    async with open_daemon(server.port, second) as daemon:
        assert (await daemon.take(AgentGranted)).epoch == 2
        assert (await daemon.deliver()).message.body == "one"
    await away(server)
    async with open_daemon(server.port, first) as daemon:
        assert (await daemon.take(AgentGranted, lambda g: g.epoch > 1)).epoch == 3
        shown = await server.get("/api/agents/ada")
        assert shown["daemon"] == {"id": "dmn_one", "connected": True}


async def test_messages_sent_before_any_daemon_wait_for_the_first(
    server: RunningServer,
) -> None:
    await server.agent()
    message = await server.say("@ada", "one")
    urgent = await server.urgent(message["id"])
    async with open_daemon(server.port) as daemon:
        assert isinstance(daemon.welcome, Welcome)
        first, second = await daemon.deliver(), await daemon.deliver()
        assert (first.interrupt_policy, second.delivery) == (None, urgent["id"])


async def test_send_that_never_arrived_is_rejected_for_good(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        lost = SendId("snd_lost")
        await daemon.send(SendAsked(lost, agent))
        assert (await daemon.take(SendJudged)).verdict == "rejected"
        # It arrives after all: the agent was told otherwise, so it stays out.
        gen = daemon.gen(agent)
        await daemon.send(SendRequested(lost, agent, gen, "@ada", "x"))
        assert (await daemon.take(SendJudged)).verdict == "rejected"
        assert (await server.get("/api/targets/@ada/messages"))["head"] == 0
        known = SendId("snd_known")
        await daemon.send(SendRequested(known, agent, gen, "@ada", "y"))
        judged = await daemon.take(SendJudged)
        await daemon.send(SendAsked(known, agent))
        assert await daemon.take(SendJudged) == judged


async def test_a_send_that_no_message_can_hold_is_rejected_with_the_reason(
    server: RunningServer,
) -> None:
    async with open_daemon(server.port) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        sent = SendRequested(SendId("snd_1"), agent, daemon.gen(agent), "@ada", "a\0b")
        await daemon.send(sent)
        judged = await daemon.take(SendJudged)
        assert judged.verdict == "rejected"
        assert "NUL" in judged.reason
        assert (await server.get("/api/targets/@ada/messages"))["head"] == 0


async def test_history_begins_with_what_was_not_seen(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = AgentId((await server.agent())["id"])
        for number in range(4):
            await server.say("@ada", f"m{number}")
        first = await daemon.deliver()
        await daemon.surface(first)

        async def history(**asked: object) -> HistoryGiven:
            frame = HistoryAsked(1, agent, "@ada", **asked)  # type: ignore[arg-type] # the test's own words
            await daemon.send(frame)
            return await daemon.take(HistoryGiven)

        assert [m.body for m in (await history()).messages] == ["m1", "m2", "m3"]
        assert [m.body for m in (await history(limit=1)).messages] == ["m1"]
        assert [m.body for m in (await history(after=2)).messages] == ["m2", "m3"]
        await daemon.send(HistoryAsked(2, agent, "@bob"))
        assert (await daemon.take(HistoryGiven)).problem


async def test_large_backlog_arrives_in_order_and_whole(server: RunningServer) -> None:
    state = DaemonState()
    await server.agent()
    async with open_daemon(server.port, state):
        pass
    await away(server)
    for number in range(200):
        await server.say("@ada", f"m{number}")
    async with open_daemon(server.port, state) as daemon:
        bodies = [(await daemon.take(AgentDeliver)).message.body for _ in range(200)]
        assert bodies == [f"m{number}" for number in range(200)]


async def test_large_bodies_arrive_in_bearable_messages(
    server: RunningServer,
) -> None:
    state = DaemonState()
    agent = AgentId((await server.agent())["id"])
    async with open_daemon(server.port, state):
        pass
    await away(server)
    for number in range(6):
        await server.say("@ada", f"{number}" * 400_000)
    async with open_link(server.port) as websocket:
        hello = encode_envelope(Envelope((state.hello(),))).decode()
        await websocket.send_message(hello)
        numbers: list[str] = []
        while len(numbers) < 6:
            text = await websocket.get_message()
            assert len(text) < 1024 * 1024
            frames = decode_envelope(text).frames
            numbers += [
                f.message.body[0] for f in frames if isinstance(f, AgentDeliver)
            ]
        assert numbers == list("012345")
    await away(server)
    async with open_daemon(server.port, state) as daemon:
        await daemon.send(HistoryAsked(1, agent, "@ada"))
        given = await daemon.take(HistoryGiven)
        assert [m.body[0] for m in given.messages] == ["0"]


@pytest.mark.bug("B20")
async def test_daemon_that_does_not_read_does_not_hold_the_shutdown_up(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, grace=0.2) as server:
        await server.agent()
        async with open_link(server.port) as websocket:
            hello = encode_envelope(Envelope((DaemonState().hello(),))).decode()
            await websocket.send_message(hello)
            await websocket.get_message()
            for _ in range(30):
                await server.say("@ada", "x" * 400_000)
            started = trio.current_time()
            server.stop()
            with trio.fail_after(5):
                await server.stopped.wait()
            assert trio.current_time() - started < 3


async def test_server_going_down_says_so(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server:
        async with open_link(server.port) as websocket:
            hello = encode_envelope(Envelope((DaemonState().hello(),))).decode()
            await websocket.send_message(hello)
            await websocket.get_message()
            reasons: list[object] = []

            async def read() -> None:
                try:
                    await websocket.get_message()
                except ConnectionClosed as exc:
                    reasons.append(exc.reason)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                server.stop()
        assert "1001" in str(reasons[0])


async def test_fence_that_the_server_does_not_know_is_refused_in_words(
    server: RunningServer,
) -> None:
    state = DaemonState()
    async with open_daemon(server.port, state) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        await daemon.send(FenceReported(agent, Generation(1, 1), "ajar"))
        with trio.fail_after(5):
            await daemon.closed.wait()
        reason = daemon.websocket.closed
        assert reason is not None
        assert reason.code == 1002
        assert "fence" in str(reason.reason)
    state.unacknowledged.clear()
    state.sent = 0
    async with open_daemon(server.port, state) as daemon:
        await daemon.report(FenceReported(agent, Generation(1, 1), "hold"))


@pytest.mark.bug("B04")
async def test_trouble_without_a_number_is_shown_until_the_next_status(
    server: RunningServer,
) -> None:
    full = Diagnostic("the log is not writable", "free space")
    async with open_daemon(server.port, DaemonState()) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        up = StatusReported(agent, 1, False, "Idle", False)
        await daemon.send(AgentTroubled(agent, 1, full))
        shown = await server.until("/api/agents/ada", lambda a: a["problem"])
        assert shown["problem"]["problem"] == full.problem
        # Each at its place in one message, and none of a lease that is over.
        await daemon.report(up, AgentTroubled(agent, 1, full))
        assert (await server.get("/api/agents/ada"))["problem"]
        await daemon.report(AgentTroubled(agent, 1, full), up)
        assert (await server.get("/api/agents/ada"))["problem"] is None
        old = AgentTroubled(agent, 0, full)
        await daemon.report(old, FenceReported(agent, Generation(1, 1), "open"))
        assert (await server.get("/api/agents/ada"))["problem"] is None
