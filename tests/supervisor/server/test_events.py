"""Events: an exact resume, or a gap that is said; nobody waits for a slow watcher."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
import trio
from tests.kit.daemon_peer import open_daemon
from tests.kit.server import open_server, watch

from agentteam_protocol.approval import ApprovalRequest
from agentteam_protocol.frames import AgentGranted, ApprovalReported
from agentteam_protocol.ids import AgentId, ApprovalId, RunId
from agentteam_supervisor.server.sse import Gap, parse_cursor, place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit.server import RunningServer


def number(position: str) -> int:
    return int(position.rpartition(".")[2])


@pytest.mark.parametrize(
    ("text", "cursor"),
    [
        ("abc.7", 7),
        ("abd.7", None),
        ("abc.", None),
        ("abc.-1", None),
        ("7", None),
        ("", None),
        ("abc.7x", None),
        ("a.b.7", None),
    ],
)
def test_cursor_of_another_store_or_shape_is_none(
    text: str, cursor: int | None
) -> None:
    assert parse_cursor(text, "abc") == cursor


@pytest.mark.bug("B14")
def test_place_is_exact_or_a_gap_that_names_its_range() -> None:
    assert place(299, 201, 300) == (299, None)
    assert place(200, 201, 300) == (200, None)
    start, gap = place(5, 201, 300)
    assert start == 200
    assert gap is not None
    assert (gap.start, gap.end) == (6, 200)
    assert place(300, 201, 300) == (300, None)
    for cursor in (10_000, None):
        start, gap = place(cursor, 201, 300)
        assert (start, isinstance(gap, Gap)) == (300, True)
    assert place(0, 0, 0) == (0, None)


@pytest.mark.bug("B14")
async def test_resume_gives_the_exact_rest_or_says_the_gap(tmp_path: Path) -> None:
    async with open_server(tmp_path, event_retention=50) as server:
        await server.agent()
        async with watch(server) as events:
            store, _, first = (await events.next_position()).rpartition(".")
        for text in range(100):
            await server.say("@ada", str(text))
        head = int(first) + 100

        async def resume(cursor: str, count: int) -> list[Any]:
            async with watch(server, cursor) as reader:
                return [await reader.next() for _ in range(count)]

        (last,) = await resume(f"{store}.{head - 1}", 1)
        assert last.data["body"] == "99"
        rest = await resume(f"{store}.{head - 40}", 40)
        assert [e.data["body"] for e in rest] == [str(n) for n in range(60, 100)]
        gap, *held = await resume(f"{store}.{first}", 51)
        assert gap.kind == "gap"
        assert (gap.data["from"], gap.data["to"]) == (int(first) + 1, head - 50)
        assert [e.data["body"] for e in held] == [str(n) for n in range(50, 100)]
        for cursor in (f"{store}.{head + 10_000}", "other.3", "nonsense"):
            (gap,) = await resume(cursor, 1)
            assert gap.kind == "gap"
            assert gap.data["reason"]


@pytest.mark.bug("B14")
async def test_position_from_before_a_restart_is_good_after_it(tmp_path: Path) -> None:
    async with open_server(tmp_path / "a") as server:
        await server.agent()
        async with watch(server) as events:
            position = await events.next_position()
        await server.say("@ada", "while nobody watched")
    async with (
        open_server(tmp_path / "a") as server,
        watch(server, position) as events,
    ):
        event = await events.next()
        assert event.data["body"] == "while nobody watched"
    async with (
        open_server(tmp_path / "b") as server,
        watch(server, position) as events,
    ):
        assert (await events.next()).kind == "gap"


@pytest.mark.bug("B14")
async def test_watchers_that_come_and_go_see_no_hole_and_no_double(
    server: RunningServer,
) -> None:
    await server.agent()
    done = trio.Event()
    async with watch(server) as events:
        position = await events.next_position()
    start = number(position)
    seen: list[int] = []

    async def talk() -> None:
        for text in range(120):
            await server.say("@ada", str(text))
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        for _ in range(60):
            async with watch(server, position) as reader:
                for _ in range(2):
                    seen.append(number((await reader.next()).id))
                position = reader.position
        await done.wait()
    assert seen == list(range(start + 1, start + 121))


@pytest.mark.bug("B14")
async def test_open_approval_is_there_after_a_reconnect(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon:
        agent = AgentId((await server.agent())["id"])
        await daemon.take(AgentGranted)
        async with watch(server) as events:
            await events.next_position()
            request = ApprovalRequest(ApprovalId("apr_1"), RunId("run_1"), "shell")
            report = ApprovalReported(agent, request, daemon.gen(agent))
            await daemon.report(report)
            event = await events.next()
            assert (event.kind, event.data["state"]) == ("approval", "pending")
        async with watch(server) as events:
            await events.next_position()
            shown = await server.get("/api/agents/ada")
            assert [a["id"] for a in shown["pendingApprovals"]] == ["apr_1"]


async def test_events_are_the_objects_of_the_interface(server: RunningServer) -> None:
    async with open_daemon(server.port) as daemon, watch(server) as events:
        await events.next_position()
        agent = await server.agent()
        event = await events.next()
        assert (event.kind, event.data) == ("agent", agent)
        message = await server.say("@ada", "one")
        event = await events.next()
        assert (event.kind, event.data) == ("message", message)
        urgent = await server.urgent(message["id"])
        event = await events.next()
        assert event.kind == "delivery"
        assert {**event.data, "made": True, "readBefore": None} == urgent
        frame = await daemon.deliver()
        await daemon.surface(frame)
        event = await events.next()
        assert (event.kind, event.data["state"]) == ("delivery", "surfaced")
        await server.client.delete("/api/agents/ada")
        kinds = {(await events.next()).kind for _ in range(2)}
        assert kinds == {"delivery", "agent"}


async def test_texts_are_in_the_watchers_language(server: RunningServer) -> None:
    from agentteam_protocol.activity import ActivityKind
    from agentteam_protocol.frames import ActivityReported

    async with (
        open_daemon(server.port) as daemon,
        watch(server, Accept_Language="zh") as chinese,
        watch(server) as english,
    ):
        agent = AgentId((await server.agent())["id"])
        await daemon.report(ActivityReported(agent, ActivityKind.stopping))
        texts: list[str] = []
        for events in (chinese, english):
            while (event := await events.next()).kind != "activity":
                pass
            texts.append(event.data["text"])
        assert texts == ["正在停止当前 run…", "Stopping the current run…"]


async def flood(server: RunningServer, count: int, size: int) -> None:
    for _ in range(count):
        await server.say("@ada", "x" * size)


async def stalled(server: RunningServer) -> trio.SocketStream:
    """Subscribe with a small buffer and never read."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", server.port))
    stream = trio.SocketStream(sock)
    request = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
    await stream.send_all(request.encode())
    return stream


@pytest.mark.bug("B20")
async def test_watcher_that_does_not_read_is_cut_and_delays_nobody(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, stall=0.3) as server:
        await server.agent()
        async with await stalled(server) as slow, watch(server) as events:
            await events.next_position()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood, server, 100, 100_000)
                with trio.fail_after(10):
                    for _ in range(100):
                        await events.next()
            with trio.fail_after(10):
                await _until_cut(slow)


@pytest.mark.bug("B20")
async def test_watcher_that_does_not_read_does_not_hold_the_shutdown_up(
    tmp_path: Path,
) -> None:
    async with open_server(tmp_path, grace=0.2) as server:
        await server.agent()
        async with await stalled(server):
            await flood(server, 100, 100_000)
            started = trio.current_time()
            server.stop()
            with trio.fail_after(5):
                await server.stopped.wait()
            assert trio.current_time() - started < 3


async def test_watcher_gets_a_sign_of_life(tmp_path: Path) -> None:
    async with (
        open_server(tmp_path, keepalive=0.02) as server,
        watch(server) as events,
    ):
        await events.next_position()
        with trio.fail_after(5):
            assert "still here" in await events.chunk()


async def test_end_of_the_server_ends_the_stream(tmp_path: Path) -> None:
    async with open_server(tmp_path) as server, watch(server) as events:
        await events.next_position()
        server.stop()
        with trio.fail_after(5), pytest.raises(EOFError):
            await events.next()


async def _until_cut(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some(65536):
            pass
    except trio.BrokenResourceError:
        pass
